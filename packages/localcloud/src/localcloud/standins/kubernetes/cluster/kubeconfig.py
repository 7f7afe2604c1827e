"""Reads a kubeconfig: the API server's address, how to trust it, and who calls.

connection = Kubeconfig.load(contents_or_path).connection(context=None, cluster=None)
"""

from __future__ import annotations

import base64
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from localcloud.standins.kubernetes.cluster.errors import Unreachable

Entry = Mapping[str, Any]


@dataclass(frozen=True)
class Connection:
    """How to talk to one cluster as one user; `user` is the kubeconfig's entry."""

    server: str
    name: str
    ca_pem: str | None = None
    verify: bool = True
    server_name: str | None = None
    certificate_pem: str | None = None
    key_pem: str | None = None
    user: Entry | None = None
    namespace: str = "default"


@dataclass(frozen=True)
class Kubeconfig:
    """A parsed kubeconfig, its lists as maps by name."""

    clusters: Mapping[str, Entry]
    contexts: Mapping[str, Entry]
    users: Mapping[str, Entry]
    current_context: str
    folder: Path

    @staticmethod
    def load(contents_or_path: str) -> Kubeconfig:
        """Read the contents of a kubeconfig (YAML or JSON), or the file that the text is the path of.

        Raises:
            Unreachable: It is neither.
        """
        text, folder = contents_or_path, Path()
        if "\n" not in text and len(text) < 4096 and not text.lstrip().startswith("{"):
            path = Path(text).expanduser()
            if path.is_file():
                text, folder = path.read_text(), path.parent
        tree = _parse(text)

        def by_name(plural: str, singular: str) -> dict[str, Entry]:
            return {str(item.get("name")): item.get(singular) or {} for item in tree.get(plural) or []}

        return Kubeconfig(
            clusters=by_name("clusters", "cluster"),
            contexts=by_name("contexts", "context"),
            users=by_name("users", "user"),
            current_context=str(tree.get("current-context") or ""),
            folder=folder,
        )

    @staticmethod
    def ambient(environment: Mapping[str, str]) -> Kubeconfig:
        """Return kubectl's kubeconfig: the first file of $KUBECONFIG that exists, else ~/.kube/config."""
        for candidate in [*environment.get("KUBECONFIG", "").split(os.pathsep), "~/.kube/config"]:
            if candidate and Path(candidate).expanduser().is_file():
                return Kubeconfig.load(candidate)
        raise Unreachable(
            "unable to load Kubernetes client configuration from kubeconfig file: there is none. "
            "Set the provider's `kubeconfig`, or KUBECONFIG"
        )

    def active_cluster(self, context: str | None, cluster: str | None) -> Entry:
        """Return the entry of the cluster in use; empty where the names lead nowhere."""
        active = self.contexts.get(context or self.current_context, {})
        return self.clusters.get(cluster or str(active.get("cluster", "")), {})

    def connection(self, context: str | None, cluster: str | None) -> Connection:
        """Return how to talk to the cluster in use.

        Raises:
            Unreachable: The context, the cluster or its server is missing.
        """
        active = self.contexts.get(context or self.current_context)
        if active is None:
            raise Unreachable(f'context "{context or self.current_context}" does not exist in the kubeconfig')
        name = cluster or str(active.get("cluster", ""))
        entry = self.active_cluster(context, cluster)
        if not entry.get("server"):
            raise Unreachable(f'cluster "{name}" does not exist in the kubeconfig, or has no server')
        user = self.users.get(str(active.get("user", "")), {})
        return Connection(
            server=str(entry["server"]).rstrip("/"),
            name=name,
            ca_pem=self._pem(entry, "certificate-authority"),
            verify=not entry.get("insecure-skip-tls-verify"),
            server_name=entry.get("tls-server-name"),
            certificate_pem=self._pem(user, "client-certificate"),
            key_pem=self._pem(user, "client-key"),
            user=user,
            namespace=str(active.get("namespace") or "default"),
        )

    def _pem(self, entry: Entry, key: str) -> str | None:
        data = entry.get(f"{key}-data")
        if data:
            return base64.b64decode(data).decode()
        path = entry.get(key)
        try:
            return (self.folder / Path(str(path)).expanduser()).read_text() if path else None
        except OSError as error:
            raise Unreachable(f"the kubeconfig's {key} cannot be read: {error}") from error


def _parse(text: str) -> Entry:
    try:
        tree = yaml.safe_load(text)  # JSON is YAML, too
    except yaml.YAMLError as error:
        raise Unreachable(f"failed to parse kubeconfig data in `kubernetes:config:kubeconfig`: {error}") from error
    if not isinstance(tree, dict):
        raise Unreachable(
            "failed to parse kubeconfig data in `kubernetes:config:kubeconfig`: it is neither a mapping nor a file"
        )
    return tree
