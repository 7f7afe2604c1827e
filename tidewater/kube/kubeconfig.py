"""Which kubeconfig, which context: the same choice as kubectl's.

    load(Access(context="prod"), os.environ).server

`$KUBECONFIG` may name several files; they are merged, and the first one that sets a name or a value wins:
https://kubernetes.io/docs/concepts/configuration/organize-cluster-access-kubeconfig/#merging-kubeconfig-files
"""

from __future__ import annotations

import difflib
import os
import re
import stat
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from tidewater.kube.errors import NoKubeconfig
from tidewater.kube.kinds import DNS_LABEL, LONGEST_LABEL

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
DEFAULT_NAMESPACE = "default"
NAMESPACE_RULE = "at most 63 lower-case letters, digits and '-', with a letter or digit at both ends"

Section = Mapping[str, Any]

_LISTS = {"clusters": "cluster", "contexts": "context", "users": "user"}
_PATHS = ("certificate-authority", "client-certificate", "client-key", "tokenFile")
_REWRITE = "Correct the file, or write it again, for EKS with `aws eks update-kubeconfig --name CLUSTER`."
_REMEDY = (
    "Name one with --kubeconfig FILE or $KUBECONFIG. `aws eks update-kubeconfig --name CLUSTER` writes one for EKS; "
    "for the stack of this repository, `pulumi stack output kubeconfig --show-secrets` prints it."
)


@dataclass(frozen=True)
class Access:
    """The flags that say which cluster is meant; empty: as kubectl would choose.

    Attributes:
        kubeconfig: a file.
        context: one of the kubeconfig's contexts.
        namespace: instead of that of the context.
        cluster: one of the kubeconfig's clusters, instead of that of the context.
        text: a kubeconfig's content, instead of any file.
    """

    kubeconfig: str = ""
    context: str = ""
    namespace: str = ""
    cluster: str = ""
    text: str = ""


@dataclass(frozen=True)
class Connection:
    """A cluster and a user, as the kubeconfig describes them, with absolute paths."""

    context: str
    namespace: str
    cluster: Section
    user: Section = field(default_factory=dict)

    @property
    def server(self) -> str:
        """Return the URL of the API server."""
        return str(self.cluster["server"])


def load(access: Access, environment: Mapping[str, str]) -> Connection:
    """Return what the flags, the environment and the files say.

    Raises:
        NoKubeconfig: no file, a file that can't be read, or a name in it that leads nowhere.
    """
    config, where = _read(access, environment)
    if not where:
        if "KUBERNETES_SERVICE_HOST" in environment and SERVICE_ACCOUNT.is_dir() and not access.context:
            return in_cluster(SERVICE_ACCOUNT, environment, access.namespace)
        raise NoKubeconfig("there is no kubeconfig: ~/.kube/config does not exist", _REMEDY)
    return chosen(config, access, where)


def contexts(access: Access, environment: Mapping[str, str]) -> list[str]:
    """Return the names of all contexts.

    Raises:
        NoKubeconfig: a file can't be read.
    """
    return sorted(map(str, _read(access, environment)[0]["contexts"]))


def active_cluster(access: Access, environment: Mapping[str, str]) -> Section:
    """Return the section of the cluster that is used; empty where the names lead nowhere.

    Raises:
        NoKubeconfig: a file can't be read.
    """
    config, _ = _read(access, environment)
    context = config["contexts"].get(access.context or config.get("current-context", ""), {})
    found: Section = config["clusters"].get(access.cluster or str(context.get("cluster")), {})
    return found


def _read(access: Access, environment: Mapping[str, str]) -> tuple[dict[str, Any], str]:
    """Return the merged kubeconfig and where it comes from, empty if it comes from nowhere."""
    if access.text:
        source = Path("the given text")
        return merged([(source, parsed(access.text, source))]), str(source)
    paths = files(access, environment)
    return merged([(path, read(path)) for path in paths]), ", ".join(map(str, paths))


def files(access: Access, environment: Mapping[str, str]) -> list[Path]:
    """Return the kubeconfig files to merge: the flag's, else those of $KUBECONFIG, else the one in the home directory.

    Raises:
        NoKubeconfig: the flag or $KUBECONFIG names only files that do not exist, or one in a closed directory.
    """
    if access.kubeconfig:
        path = _expanded(access.kubeconfig)
        if not _is_file(path):
            raise NoKubeconfig(f"--kubeconfig {access.kubeconfig}: there is no such file", _REMEDY)
        return [path]
    listed = environment.get("KUBECONFIG", "")
    if listed:
        found = [_expanded(name) for name in listed.split(os.pathsep) if name]
        existing = [path for path in found if _is_file(path)]
        if not existing:
            raise NoKubeconfig(f"$KUBECONFIG is {listed}, and there is no such file", _REMEDY)
        return existing
    default = Path(environment.get("HOME") or Path.home()) / ".kube" / "config"
    return [default] if _is_file(default) else []


def read(path: Path) -> Section:
    """Return a kubeconfig file's content.

    Raises:
        NoKubeconfig: it can't be read, or is no YAML mapping.
    """
    try:
        return parsed(path.read_text(), path)
    except OSError as error:
        raise NoKubeconfig(f"{path} can't be read: {error.strerror}", _REMEDY) from None
    except UnicodeDecodeError as error:
        raise NoKubeconfig(f"{path} is not YAML: {error}", _REMEDY) from None


def parsed(text: str, source: Path) -> Section:
    """Return a kubeconfig's content; JSON is YAML too.

    Raises:
        NoKubeconfig: it is no YAML mapping.
    """
    try:
        content = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise NoKubeconfig(f"{source} is not YAML: {error}", _REMEDY) from None
    if content is None:
        return {}
    if not isinstance(content, dict):
        raise NoKubeconfig(f"{source} is not a kubeconfig: it holds no mapping", _REMEDY)
    return content


def merged(contents: Iterable[tuple[Path, Section]]) -> dict[str, Any]:
    """Return one kubeconfig of several; lists become mappings by name, relative paths become absolute.

    Raises:
        NoKubeconfig: something is not the list or the mapping that it must be.
    """
    result: dict[str, Any] = {plural: {} for plural in _LISTS}
    for path, content in contents:
        if content.get("current-context"):
            result.setdefault("current-context", str(content["current-context"]))
        for plural in _LISTS:
            for name, section in _entries(path, content, plural):
                result[plural].setdefault(name, section)
    return result


def chosen(config: Mapping[str, Any], access: Access, where: str) -> Connection:
    """Return the context that the flag or the file names.

    Raises:
        NoKubeconfig: there is no such context, cluster or user.
    """
    name = access.context or config.get("current-context", "")
    contexts: Mapping[str, Section] = config["contexts"]
    if not name:
        raise NoKubeconfig(f"no current-context is set in {where}", f"Use --context with one of {_names(contexts)}.")
    if name not in contexts:
        near = difflib.get_close_matches(name, [str(each) for each in contexts], n=1)
        hint = f"Did you mean {near[0]}? " if near else ""
        raise NoKubeconfig(f"there is no context {name} in {where}", f"{hint}It has {_names(contexts)}.")
    context = contexts[name]
    named = access.cluster or context.get("cluster")
    cluster = config["clusters"].get(str(named))
    if not cluster or not cluster.get("server"):
        raise NoKubeconfig(f"context {name} names cluster {named}, which {where} does not describe")
    user = config["users"].get(str(context.get("user")))
    if user is None and context.get("user"):
        raise NoKubeconfig(f"context {name} names user {context['user']}, which {where} does not describe")
    _check_plugin((user or {}).get("exec"), f"`exec` of user {context.get('user')} in {where}")
    namespace = str(access.namespace or context.get("namespace") or DEFAULT_NAMESPACE)
    if not access.namespace and not is_namespace(namespace):
        raise NoKubeconfig(
            f"context {name} names namespace {namespace!r} in {where}, and no namespace can have that name",
            f"A name has {NAMESPACE_RULE}.",
        )
    return Connection(name, namespace, cluster, user or {})


def is_namespace(name: str) -> bool:
    """Return whether a namespace can have that name."""
    return len(name) <= LONGEST_LABEL and re.fullmatch(DNS_LABEL, name) is not None


def in_cluster(account: Path, environment: Mapping[str, str], namespace: str) -> Connection:
    """Return the connection of a pod's service account."""
    host, port = environment["KUBERNETES_SERVICE_HOST"], environment.get("KUBERNETES_SERVICE_PORT", "443")
    own = account / "namespace"
    return Connection(
        context="in-cluster",
        namespace=namespace or (own.read_text().strip() if own.is_file() else DEFAULT_NAMESPACE),
        cluster={
            "server": f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}",
            "certificate-authority": str(account / "ca.crt"),
        },
        user={"tokenFile": str(account / "token")},
    )


def _expanded(name: str) -> Path:
    try:
        return Path(name).expanduser()
    except RuntimeError:
        # As a shell does: `~nobody/config` is a relative path if there is no such user.
        return Path(name)


def _is_file(path: Path) -> bool:
    """Return whether there is such a file. Unlike `Path.is_file`, do so on every Python for a closed directory too.

    Raises:
        NoKubeconfig: the file system doesn't answer.
    """
    try:
        return stat.S_ISREG(path.stat().st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:
        raise NoKubeconfig(f"{path} can't be read: {error.strerror}", _REMEDY) from None


def _entries(path: Path, content: Section, plural: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the names and sections of a list in a file."""
    entries, key = content.get(plural) or [], _LISTS[plural]
    if not isinstance(entries, list):
        raise NoKubeconfig(f"{path} is not a kubeconfig: {plural} is not a list", _REWRITE)
    for index, entry in enumerate(entries):
        if not isinstance(entry, dict) or entry.get("name") in (None, ""):
            raise NoKubeconfig(f"{path} is not a kubeconfig: {plural}[{index}] is not a mapping with a name", _REWRITE)
        name = str(entry["name"])
        section = _mapping(entry.get(key), f"`{key}` of {name}", path)
        _mapping(section.get("exec"), f"`exec` of {name}", path)
        yield name, _absolute(section, path.parent)


def _mapping(value: Any, what: str, path: Path) -> Section:
    found: Any = value or {}
    if not isinstance(found, dict):
        raise NoKubeconfig(f"{path} is not a kubeconfig: {what} is not a mapping", _REWRITE)
    return found


def _check_plugin(plugin: Section | None, what: str) -> None:
    """Check what names a login plug-in, for the user of the chosen context only, as kubectl does."""
    if not plugin:
        return
    if not plugin.get("command"):
        raise NoKubeconfig(f"{what} names no command", _REWRITE)
    for key in ("args", "env"):
        if not isinstance(plugin.get(key) or [], list):
            raise NoKubeconfig(f"`{key}` in {what} is not a list", _REWRITE)
    for entry in plugin.get("env") or []:
        if not isinstance(entry, dict) or not entry.get("name"):
            raise NoKubeconfig(f"`env` in {what} has an entry without a name", _REWRITE)


def _absolute(section: Section, folder: Path) -> dict[str, Any]:
    """Return a section with its file names made absolute: they are relative to the file that has them."""
    result = dict(section)
    for key in _PATHS:
        if result.get(key):
            result[key] = str(folder.absolute() / str(result[key]))
    plugin = result.get("exec")
    if plugin and os.sep in str(plugin.get("command", "")):
        result["exec"] = {**plugin, "command": str(folder.absolute() / str(plugin["command"]))}
    return result


def _names(contexts: Mapping[str, Section]) -> str:
    return ", ".join(sorted(map(str, contexts))) or "no context at all"
