"""Which kubeconfig, which context: the same choice as kubectl's.

    load(Access(context="prod"), os.environ).server

`$KUBECONFIG` may name several files; they are merged, and the first one that sets a name or a value wins:
https://kubernetes.io/docs/concepts/configuration/organize-cluster-access-kubeconfig/#merging-kubeconfig-files
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from cli.errors import NoKubeconfig
from cli.kube import Access
from cli.naming import NAMESPACE_RULE, is_namespace

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
DEFAULT_NAMESPACE = "default"

Section = Mapping[str, Any]

_LISTS = {"clusters": "cluster", "contexts": "context", "users": "user"}
_PATHS = ("certificate-authority", "client-certificate", "client-key", "tokenFile")
_REMEDY = (
    "Name one with --kubeconfig FILE or $KUBECONFIG. `aws eks update-kubeconfig --name CLUSTER` writes one for EKS; "
    "for the stack of this repository, `pulumi stack output kubeconfig --show-secrets` prints it."
)


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
    paths = files(access, environment)
    if not paths:
        if "KUBERNETES_SERVICE_HOST" in environment and SERVICE_ACCOUNT.is_dir() and not access.context:
            return in_cluster(SERVICE_ACCOUNT, environment, access.namespace)
        raise NoKubeconfig("there is no kubeconfig: ~/.kube/config does not exist", _REMEDY)
    return chosen(merged([(path, read(path)) for path in paths]), access, paths)


def contexts(access: Access, environment: Mapping[str, str]) -> list[str]:
    """Return the names of all contexts.

    Raises:
        NoKubeconfig: a file can't be read.
    """
    config = merged([(path, read(path)) for path in files(access, environment)])
    return sorted(map(str, config["contexts"]))


def files(access: Access, environment: Mapping[str, str]) -> list[Path]:
    """Return the kubeconfig files to merge: the flag's, else those of $KUBECONFIG, else the one in the home directory.

    Raises:
        NoKubeconfig: the flag or $KUBECONFIG names only files that do not exist.
    """
    if access.kubeconfig:
        path = Path(access.kubeconfig).expanduser()
        if not path.is_file():
            raise NoKubeconfig(f"--kubeconfig {access.kubeconfig}: there is no such file", _REMEDY)
        return [path]
    listed = environment.get("KUBECONFIG", "")
    if listed:
        found = [Path(name).expanduser() for name in listed.split(os.pathsep) if name]
        existing = [path for path in found if path.is_file()]
        if not existing:
            raise NoKubeconfig(f"$KUBECONFIG is {listed}, and there is no such file", _REMEDY)
        return existing
    default = Path(environment.get("HOME") or Path.home()) / ".kube" / "config"
    return [default] if default.is_file() else []


def read(path: Path) -> Section:
    """Return a kubeconfig file's content.

    Raises:
        NoKubeconfig: it can't be read, or is no YAML mapping.
    """
    try:
        content = yaml.safe_load(path.read_text())
    except OSError as error:
        raise NoKubeconfig(f"{path} can't be read: {error.strerror}", _REMEDY) from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise NoKubeconfig(f"{path} is not YAML: {error}", _REMEDY) from None
    if content is None:
        return {}
    if not isinstance(content, dict):
        raise NoKubeconfig(f"{path} is not a kubeconfig: it holds no mapping", _REMEDY)
    return content


def merged(contents: Iterable[tuple[Path, Section]]) -> dict[str, Any]:
    """Return one kubeconfig of several; lists become mappings by name, relative paths become absolute."""
    result: dict[str, Any] = {name: {} for name in _LISTS}
    for path, content in contents:
        if content.get("current-context"):
            result.setdefault("current-context", content["current-context"])
        for name, key in _LISTS.items():
            for item in content.get(name) or []:
                result[name].setdefault(item.get("name"), _absolute(item.get(key) or {}, path.parent))
    return result


def chosen(config: Mapping[str, Any], access: Access, paths: Iterable[Path]) -> Connection:
    """Return the context that the flag or the file names.

    Raises:
        NoKubeconfig: there is no such context, cluster or user.
    """
    where = ", ".join(map(str, paths))
    name = access.context or config.get("current-context", "")
    contexts: Mapping[str, Section] = config["contexts"]
    if not name:
        raise NoKubeconfig(f"no current-context is set in {where}", f"Use --context with one of {_names(contexts)}.")
    if name not in contexts:
        near = difflib.get_close_matches(name, [str(each) for each in contexts], n=1)
        hint = f"Did you mean {near[0]}? " if near else ""
        raise NoKubeconfig(f"there is no context {name} in {where}", f"{hint}It has {_names(contexts)}.")
    context = contexts[name]
    cluster = config["clusters"].get(context.get("cluster"))
    if not cluster or not cluster.get("server"):
        raise NoKubeconfig(f"context {name} names cluster {context.get('cluster')}, which {where} does not describe")
    user = config["users"].get(context.get("user"))
    if user is None and context.get("user"):
        raise NoKubeconfig(f"context {name} names user {context['user']}, which {where} does not describe")
    namespace = str(access.namespace or context.get("namespace") or DEFAULT_NAMESPACE)
    if not access.namespace and not is_namespace(namespace):
        raise NoKubeconfig(
            f"context {name} names namespace {namespace!r} in {where}, and no namespace can have that name",
            f"A name has {NAMESPACE_RULE}.",
        )
    return Connection(name, namespace, cluster, user or {})


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


def _absolute(section: Section, folder: Path) -> dict[str, Any]:
    """Return a section with its file names made absolute: they are relative to the file that has them."""
    result = dict(section)
    for key in _PATHS:
        if result.get(key):
            result[key] = str(folder.absolute() / result[key])
    plugin = result.get("exec")
    if plugin and os.sep in str(plugin.get("command", "")):
        result["exec"] = {**plugin, "command": str(folder.absolute() / plugin["command"])}
    return result


def _names(contexts: Mapping[str, Section]) -> str:
    return ", ".join(sorted(map(str, contexts))) or "no context at all"
