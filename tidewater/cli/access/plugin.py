"""Login plug-ins: the command that a kubeconfig names for a token, such as `aws eks get-token`.

    httpx2.Client(auth=PluginAuth(user["exec"], connection))

The protocol: https://kubernetes.io/docs/reference/config-api/client-authentication.v1/
A token is used until it expires or the API server refuses it. Several threads may share one object.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Generator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx2

from tidewater.cli.errors import LoginFailed

VERSIONS = tuple(f"client.authentication.k8s.io/{version}" for version in ("v1", "v1beta1", "v1alpha1"))
_EARLY = timedelta(seconds=60)
_UNAUTHORIZED = 401


@dataclass(frozen=True)
class Token:
    """A bearer token; `expires` is None if the plug-in did not say."""

    value: str
    expires: datetime | None = None

    def usable(self, now: datetime) -> bool:
        """Return whether it can be sent."""
        return self.expires is None or now < self.expires - _EARLY


class PluginAuth(httpx2.Auth):
    """Ask the plug-in for a token when one is needed, and once more when the API server refuses it."""

    def __init__(self, plugin: Mapping[str, Any], cluster: Mapping[str, Any]) -> None:
        self._plugin = plugin
        self._cluster = cluster
        self._token: Token | None = None
        self._lock = threading.Lock()

    def sync_auth_flow(self, request: httpx2.Request) -> Generator[httpx2.Request, httpx2.Response, None]:
        """Send the request with a token."""
        token = self._current(refused=None)
        request.headers["Authorization"] = f"Bearer {token.value}"
        response = yield request
        if response.status_code == _UNAUTHORIZED:
            request.headers["Authorization"] = f"Bearer {self._current(refused=token).value}"
            yield request

    def _current(self, *, refused: Token | None) -> Token:
        """Return a token other than the one that was refused. One thread asks, the others wait for its answer."""
        with self._lock:
            if self._token is None or self._token is refused or not self._token.usable(datetime.now(UTC)):
                self._token = ask(self._plugin, self._cluster)
            return self._token


def ask(plugin: Mapping[str, Any], cluster: Mapping[str, Any]) -> Token:
    """Run the plug-in. Its standard error goes to the user, as with kubectl: it may ask for a code or a device.

    Raises:
        LoginFailed: there is no such command, it fails, or it answers something else than a token.
    """
    version = plugin.get("apiVersion")
    if version not in VERSIONS:
        raise LoginFailed(f"the kubeconfig's login plug-in speaks {version}, which is none of {', '.join(VERSIONS)}")
    command = [str(plugin["command"]), *map(str, plugin.get("args") or [])]
    environment = {**os.environ, "KUBERNETES_EXEC_INFO": json.dumps(_information(plugin, cluster))}
    environment |= {str(each["name"]): _value(each) for each in plugin.get("env") or []}
    try:
        done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=False)
    except OSError as error:
        hint = str(plugin.get("installHint") or f"Install {command[0]}, or put it on the PATH.")
        raise LoginFailed(f"the kubeconfig logs in with `{command[0]}`, and {error.strerror}", hint.strip()) from None
    line = " ".join(command)
    if done.returncode != 0:
        raise LoginFailed(
            f"`{line}`, by which the kubeconfig logs in, ended with exit status {done.returncode}",
            "Its own message is above. Run it by hand, and log in again if the session has expired.",
        )
    return _token(done.stdout, line)


def _value(variable: Mapping[str, Any]) -> str:
    """Return the value of an environment variable; without one it is empty, as with kubectl."""
    value = variable.get("value")
    return "" if value is None else str(value)


def _information(plugin: Mapping[str, Any], cluster: Mapping[str, Any]) -> dict[str, Any]:
    spec: dict[str, Any] = {"interactive": sys.stdin is not None and sys.stdin.isatty()}
    if plugin.get("provideClusterInfo"):
        spec["cluster"] = {
            "server": cluster["server"],
            "certificate-authority-data": cluster.get("certificate-authority-data", ""),
            "insecure-skip-tls-verify": bool(cluster.get("insecure-skip-tls-verify", False)),
        }
    return {"apiVersion": plugin["apiVersion"], "kind": "ExecCredential", "spec": spec}


def _token(answer: bytes, line: str) -> Token:
    try:
        status = json.loads(answer)["status"]
        expires = status.get("expirationTimestamp")
        return Token(str(status["token"]), datetime.fromisoformat(expires) if expires else None)
    except (ValueError, KeyError, TypeError, AttributeError):
        raise LoginFailed(
            f"`{line}`, by which the kubeconfig logs in, did not print a token",
            "Plug-ins that answer with a client certificate are not supported.",
        ) from None
