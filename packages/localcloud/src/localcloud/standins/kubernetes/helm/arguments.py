"""The inputs of a chart, from the program's values.

    arguments = read(inputs, "karpenter")     # raises InputPropertyError, which names the input

Values are plain afterwards, as with the official plug-in: what is secret in them isn't secret in the rendered objects,
except in the data of a Secret.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

import pulumi
from pulumi.errors import InputPropertyError
from pulumi.provider.experimental.property_value import PropertyValue, ResourceReference

from localcloud.standins.algebra import NULL

KNOWN: Final = frozenset(
    "chart dependencyUpdate devel includeHooks keyring name namespace plainHttp postRenderer repositoryOpts "
    "resourcePrefix skipAwait skipCrds valueYamlFiles values verify version".split()
)
"""`includeHooks` has no effect, as with the official plug-in: it matters only where objects are written to files."""
_REPOSITORY: Final = frozenset("caFile certFile keyFile password repo username".split())
_POST_RENDERER: Final = frozenset(("args", "command"))
_Kind = TypeVar("_Kind")


@dataclass(frozen=True)
class Repository:
    """Where the chart comes from, if it is neither a path nor an address."""

    url: str = ""
    username: str = ""
    password: str = ""
    ca_file: pulumi.Asset | None = None
    cert_file: pulumi.Asset | None = None
    key_file: pulumi.Asset | None = None


@dataclass(frozen=True)
class ChartArguments:
    """One chart."""

    chart: str
    """A folder, an archive, an address (`oci://…`), or a name in a repository."""
    name: str
    """The release's name."""
    prefix: str
    """Begins the names of the children."""
    namespace: str = ""
    version: str = ""
    devel: bool = False
    dependency_update: bool = False
    verify: bool = False
    plain_http: bool = False
    skip_crds: bool = False
    skip_await: bool = False
    keyring: pulumi.Asset | None = None
    repository: Repository = Repository()
    values: Mapping[str, Any] | None = None
    value_files: tuple[pulumi.Asset, ...] = ()
    post_renderer: tuple[str, ...] = ()
    """A command and its arguments."""


def read(inputs: Mapping[str, PropertyValue], name: str) -> ChartArguments:
    """Read inputs that are all known.

    Args:
        inputs: The component's inputs.
        name: The component's name: that of the release and the prefix unless the inputs say otherwise.

    Raises:
        InputPropertyError: An input is missing, unknown to the component, or of another type.
    """
    fields = _Fields(inputs, "", KNOWN)
    chart = fields.get("chart", str)
    if not chart:
        raise InputPropertyError("chart", "the chart's name, path or address is missing")
    prefix = fields.get("resourcePrefix", str)
    values = fields.map("values")
    return ChartArguments(
        chart=chart,
        name=fields.get("name", str) or name,
        prefix=name if prefix is None else prefix,
        namespace=fields.get("namespace", str) or "",
        version=fields.get("version", str) or "",
        devel=fields.get("devel", bool) or False,
        dependency_update=fields.get("dependencyUpdate", bool) or False,
        verify=fields.get("verify", bool) or False,
        plain_http=fields.get("plainHttp", bool) or False,
        skip_crds=fields.get("skipCrds", bool) or False,
        skip_await=fields.get("skipAwait", bool) or False,
        keyring=fields.get("keyring", pulumi.Asset),
        repository=_repository(fields.map("repositoryOpts") or {}),
        values=None if values is None else {key: _value(item, f"values.{key}") for key, item in values.items()},
        value_files=tuple(fields.items("valueYamlFiles", pulumi.Asset)),
        post_renderer=_post_renderer(fields.map("postRenderer")),
    )


def text_of(asset: pulumi.Asset, path: str) -> str:
    """Return an asset's text.

    Raises:
        InputPropertyError: There is no such file, or the asset is to be downloaded.
    """
    if isinstance(asset, pulumi.StringAsset):
        return asset.text
    if isinstance(asset, pulumi.FileAsset):
        try:
            return Path(asset.path).read_text()
        except (OSError, UnicodeDecodeError) as error:
            raise InputPropertyError(path, f"failed to read file {str(asset.path)!r}: {error}") from error
    reason = "a remote asset is not covered here by the local stand-in of the kubernetes provider: use a file or a text"
    raise InputPropertyError(path, reason)


class _Fields:
    """The members of a map, each of one type."""

    def __init__(self, members: Mapping[str, PropertyValue], path: str, known: frozenset[str]) -> None:
        self._members = members
        self._path = path
        for key in sorted(members.keys() - known):
            raise InputPropertyError(f"{path}{key}", f"helm.sh/v4:Chart has no input {path}{key}")

    def get(self, key: str, kind: type[_Kind]) -> _Kind | None:
        """Return a member; None if it is not set."""
        return _typed(self._members.get(key, NULL), kind, f"{self._path}{key}")

    def map(self, key: str) -> Mapping[str, PropertyValue] | None:
        """Return a member that is a map; None if it is not set."""
        return self.get(key, Mapping)  # type: ignore[type-abstract]

    def items(self, key: str, kind: type[_Kind]) -> list[_Kind]:
        """Return the items of a list; none if it is not set."""
        path = f"{self._path}{key}"
        values: Sequence[PropertyValue] = _typed(self._members.get(key, NULL), list, path) or []
        found = [_typed(value, kind, f"{path}[{index}]") for index, value in enumerate(values)]
        return [item for item in found if item is not None]


def _typed(value: PropertyValue, kind: type[_Kind], path: str) -> _Kind | None:
    inner: Any = value.value
    if inner is None or isinstance(inner, kind):
        return inner
    if isinstance(inner, Sequence) and not isinstance(inner, str) and kind is list:
        return list(inner)  # type: ignore[return-value]
    wanted = {str: "a string", bool: "a boolean", list: "a list", pulumi.Asset: "an asset"}.get(kind, "a map")
    raise InputPropertyError(path, f"must be {wanted}, not {type(inner).__name__}")


def _repository(members: Mapping[str, PropertyValue]) -> Repository:
    fields = _Fields(members, "repositoryOpts.", _REPOSITORY)
    return Repository(
        url=fields.get("repo", str) or "",
        username=fields.get("username", str) or "",
        password=fields.get("password", str) or "",
        ca_file=fields.get("caFile", pulumi.Asset),
        cert_file=fields.get("certFile", pulumi.Asset),
        key_file=fields.get("keyFile", pulumi.Asset),
    )


def _post_renderer(members: Mapping[str, PropertyValue] | None) -> tuple[str, ...]:
    if members is None:
        return ()
    fields = _Fields(members, "postRenderer.", _POST_RENDERER)
    command = fields.get("command", str)
    if not command:
        raise InputPropertyError("postRenderer.command", "the command is missing")
    return (command, *fields.items("args", str))


def _value(value: PropertyValue, path: str) -> Any:
    """Return one of the chart's values: an asset is its text; null stays, as it removes one of the chart's defaults."""
    inner = value.value
    if isinstance(inner, Mapping):
        return {key: _value(item, f"{path}.{key}") for key, item in inner.items()}
    if isinstance(inner, pulumi.Asset):
        return text_of(inner, path)
    if isinstance(inner, pulumi.Archive):
        raise InputPropertyError(path, "Archive values are not supported as a Helm value")
    if isinstance(inner, ResourceReference):
        raise InputPropertyError(path, "Resource values are not supported as a Helm value")
    if isinstance(inner, Sequence) and not isinstance(inner, str):
        return [_value(item, f"{path}[{index}]") for index, item in enumerate(inner)]
    if isinstance(inner, float) and inner.is_integer():
        return int(inner)
    return inner
