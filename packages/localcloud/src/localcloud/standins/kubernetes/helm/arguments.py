"""The inputs of a chart, from the program's values.

    arguments = read(inputs, "karpenter")     # raises InputPropertyError, which names the input

Values are plain afterwards, as with the official plug-in: what is secret in them isn't secret in the rendered objects,
except in the data of a Secret.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import pulumi
from pulumi.errors import InputPropertyError
from pulumi.provider.experimental.property_value import PropertyValue, ResourceReference

from localcloud.standins.algebra import NULL

COVERED: Final = frozenset("chart name namespace skipCrds values version".split())
_PULL: Final = "fetch the chart with `helm pull`, and give its folder or archive as `chart`"
REFUSED: Final = {
    "dependencyUpdate": "run `helm dependency update` in the chart's folder",
    "devel": "give the `version`",
    "includeHooks": "it has no effect on the objects of a stack",
    "keyring": _PULL,
    "plainHttp": _PULL,
    "postRenderer": "change the chart's values, or the resources with a transform",
    "repositoryOpts": _PULL,
    "resourcePrefix": "the names of the objects begin with the component's name",
    "skipAwait": "annotate the objects with pulumi.com/skipAwait by a transform",
    "valueYamlFiles": "give their contents as `values`",
    "verify": _PULL,
}
"""Inputs that the stand-in doesn't carry out, and what to do instead."""
_Kind = TypeVar("_Kind")


@dataclass(frozen=True)
class ChartArguments:
    """One chart.

    Attributes:
        chart: a folder, an archive or an address (`oci://…`).
        name: the release's name.
        prefix: begins the names of the children.
    """

    chart: str
    name: str
    prefix: str
    namespace: str = ""
    version: str = ""
    skip_crds: bool = False
    values: Mapping[str, Any] | None = None


def read(inputs: Mapping[str, PropertyValue], name: str) -> ChartArguments:
    """Read inputs that are all known.

    Args:
        inputs: The component's inputs.
        name: The component's name: that of the release unless the inputs say otherwise.

    Raises:
        InputPropertyError: An input is missing, unknown to the component, not covered, or of another type.
    """
    for key in sorted(inputs.keys() - COVERED):
        if key not in REFUSED:
            raise InputPropertyError(key, f"helm.sh/v4:Chart has no input {key}")
        if inputs[key].value not in (None, False):
            reason = f"not covered by the stand-in of the kubernetes provider: {REFUSED[key]}"
            raise InputPropertyError(key, reason)

    def get(key: str, kind: type[_Kind]) -> _Kind | None:
        return _typed(inputs.get(key, NULL), kind, key)

    chart = get("chart", str)
    if not chart:
        raise InputPropertyError("chart", "the chart's path or address is missing")
    values: Mapping[str, PropertyValue] | None = get("values", Mapping)  # type: ignore[type-abstract]
    return ChartArguments(
        chart=chart,
        name=get("name", str) or name,
        prefix=name,
        namespace=get("namespace", str) or "",
        version=get("version", str) or "",
        skip_crds=get("skipCrds", bool) or False,
        values=None if values is None else {key: _value(item, f"values.{key}") for key, item in values.items()},
    )


def _typed(value: PropertyValue, kind: type[_Kind], path: str) -> _Kind | None:
    inner: Any = value.value
    if inner is None or isinstance(inner, kind):
        return inner
    wanted = {str: "a string", bool: "a boolean"}.get(kind, "a map")
    raise InputPropertyError(path, f"must be {wanted}, not {type(inner).__name__}")


def _value(value: PropertyValue, path: str) -> Any:
    """Return one of the chart's values: null stays, as it removes one of the chart's defaults."""
    inner = value.value
    if isinstance(inner, Mapping):
        return {key: _value(item, f"{path}.{key}") for key, item in inner.items()}
    if isinstance(inner, pulumi.Asset):
        raise InputPropertyError(
            path, "an asset is not covered by the stand-in of the kubernetes provider: give a text"
        )
    if isinstance(inner, pulumi.Archive):
        raise InputPropertyError(path, "Archive values are not supported as a Helm value")
    if isinstance(inner, ResourceReference):
        raise InputPropertyError(path, "Resource values are not supported as a Helm value")
    if isinstance(inner, Sequence) and not isinstance(inner, str):
        return [_value(item, f"{path}[{index}]") for index, item in enumerate(inner)]
    if isinstance(inner, float) and inner.is_integer():
        return int(inner)
    return inner
