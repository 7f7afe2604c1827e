"""Reads a kubeconfig: the API server's address, how to trust it, and who we are to it.

connection = Kubeconfig.load(contents_or_path).connection(context=None, cluster=None)
"""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from localcloud.standins.kubernetes.errors import Unreachable


@dataclass(frozen=True)
class Exec:
    """A command that prints credentials (`aws eks get-token`)."""

    command: str
    arguments: tuple[str, ...]
    environment: Mapping[str, str]
    api_version: str
    hint: str


@dataclass(frozen=True)
class Connection:
    """How to talk to one cluster as one user."""

    server: str
    name: str
    ca_pem: str | None = None
    verify: bool = True
    server_name: str | None = None
    certificate_pem: str | None = None
    key_pem: str | None = None
    token: str | None = None
    token_file: str | None = None
    basic: tuple[str, str] | None = None
    exec: Exec | None = None
    namespace: str = "default"


@dataclass(frozen=True)
class Kubeconfig:
    """A parsed kubeconfig, its lists as maps by name."""

    clusters: Mapping[str, Mapping[str, Any]]
    contexts: Mapping[str, Mapping[str, Any]]
    users: Mapping[str, Mapping[str, Any]]
    current_context: str
    folder: Path

    @staticmethod
    def load(contents_or_path: str) -> Kubeconfig:
        """Reads the contents of a kubeconfig (YAML or JSON), or the file that the text is the path of.

        Raises:
            Unreachable: it is neither.
        """
        text, folder = contents_or_path, Path()
        if "\n" not in text and len(text) < 4096 and not text.lstrip().startswith("{"):
            path = Path(text).expanduser()
            if path.is_file():
                text, folder = path.read_text(), path.parent
        tree = _parse(text)
        if not isinstance(tree, dict):
            raise Unreachable(
                "failed to parse kubeconfig data in `kubernetes:config:kubeconfig`: it is no mapping and no file"
            )
        return Kubeconfig(
            clusters=_by_name(tree, "clusters", "cluster"),
            contexts=_by_name(tree, "contexts", "context"),
            users=_by_name(tree, "users", "user"),
            current_context=str(tree.get("current-context") or ""),
            folder=folder,
        )

    @staticmethod
    def ambient(environment: Mapping[str, str]) -> Kubeconfig:
        """The kubeconfig that kubectl would take: the first file of $KUBECONFIG that exists, else ~/.kube/config."""
        for candidate in [*environment.get("KUBECONFIG", "").split(os.pathsep), "~/.kube/config"]:
            if candidate and Path(candidate).expanduser().is_file():
                return Kubeconfig.load(candidate)
        raise Unreachable(
            "unable to load Kubernetes client configuration from kubeconfig file: there is none. "
            "Set the provider's `kubeconfig`, or KUBECONFIG"
        )

    def active_cluster(self, context: str | None, cluster: str | None) -> Mapping[str, Any]:
        """The entry of the cluster in use; empty where the names lead nowhere."""
        active = self.contexts.get(context or self.current_context, {})
        return self.clusters.get(cluster or str(active.get("cluster", "")), {})

    def connection(self, context: str | None, cluster: str | None) -> Connection:
        """How to talk to the cluster in use.

        Raises:
            Unreachable: the context, the cluster or its server is missing.
        """
        context_name = context or self.current_context
        active = self.contexts.get(context_name)
        if active is None:
            raise Unreachable(f'context "{context_name}" does not exist in the kubeconfig')
        name = cluster or str(active.get("cluster", ""))
        entry = self.clusters.get(name)
        if entry is None or not entry.get("server"):
            raise Unreachable(f'cluster "{name}" does not exist in the kubeconfig, or has no server')
        user = self.users.get(str(active.get("user", "")), {})
        basic = (str(user["username"]), str(user.get("password", ""))) if user.get("username") else None
        return Connection(
            server=str(entry["server"]).rstrip("/"),
            name=name,
            ca_pem=self._pem(entry, "certificate-authority"),
            verify=not entry.get("insecure-skip-tls-verify"),
            server_name=entry.get("tls-server-name"),
            certificate_pem=self._pem(user, "client-certificate"),
            key_pem=self._pem(user, "client-key"),
            token=user.get("token"),
            token_file=user.get("tokenFile"),
            basic=basic,
            exec=_exec(user.get("exec")),
            namespace=str(active.get("namespace") or "default"),
        )

    def _pem(self, entry: Mapping[str, Any], key: str) -> str | None:
        data = entry.get(f"{key}-data")
        if data:
            return base64.b64decode(data).decode()
        path = entry.get(key)
        try:
            return (self.folder / Path(str(path)).expanduser()).read_text() if path else None
        except OSError as error:
            raise Unreachable(f"the kubeconfig's {key} cannot be read: {error}") from error


def _parse(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        import yaml  # only kubeconfigs that are no JSON pay for it

        try:
            return yaml.safe_load(text)
        except yaml.YAMLError as error:
            raise Unreachable(f"failed to parse kubeconfig data in `kubernetes:config:kubeconfig`: {error}") from error


def _by_name(tree: Mapping[str, Any], plural: str, singular: str) -> dict[str, Mapping[str, Any]]:
    return {str(item.get("name")): item.get(singular) or {} for item in tree.get(plural) or []}


def _exec(entry: Mapping[str, Any] | None) -> Exec | None:
    if not entry:
        return None
    return Exec(
        command=str(entry.get("command", "")),
        arguments=tuple(str(argument) for argument in entry.get("args") or ()),
        environment={str(item["name"]): str(item["value"]) for item in entry.get("env") or ()},
        api_version=str(entry.get("apiVersion") or "client.authentication.k8s.io/v1beta1"),
        hint=str(entry.get("installHint") or ""),
    )
