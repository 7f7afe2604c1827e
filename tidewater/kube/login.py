"""How the user of a kubeconfig logs in: with a login plug-in such as `aws eks get-token`, a token or a password.

    httpx2.Client(auth=auth(connection.user, connection.cluster), headers=impersonation(connection.user))

A client certificate is part of TLS. Several threads may share one object.
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
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx2

from tidewater.kube.errors import LoginFailed
from tidewater.kube.kubeconfig import Section

VERSIONS = tuple(f"client.authentication.k8s.io/{version}" for version in ("v1", "v1beta1", "v1alpha1"))
_EARLY = timedelta(seconds=60)
_UNAUTHORIZED = 401
_SECONDS = 60.0
_HEADER = "!#$&'*+-.^_`|~"
"""What may be in a header's name in addition to letters and digits, without the percent sign."""


def auth(user: Section, cluster: Section, *, interactive: bool = True) -> httpx2.Auth | None:
    """Return how a user logs in; None without credentials.

    Args:
        user: the kubeconfig's section of the user. Its file names are absolute.
        cluster: the kubeconfig's section of the cluster, for a login plug-in that wants to know it.
        interactive: whether a login plug-in may talk to the user on the terminal.

    Raises:
        ValueError: the section is unusable.
    """
    for key in ("token", "tokenFile", "username", "password"):
        if not isinstance(user.get(key) or "", str):
            raise ValueError(f"{key} must be text")
    if user.get("exec"):
        return PluginAuth(user["exec"], cluster, interactive=interactive)
    if user.get("tokenFile"):
        return TokenFileAuth(user["tokenFile"])
    if user.get("token"):
        return BearerAuth(user["token"])
    if user.get("username"):
        return httpx2.BasicAuth(user["username"], user.get("password") or "")
    if user.get("auth-provider"):
        raise ValueError("auth-provider is not supported, nor is it by kubectl")
    return None


def impersonation(user: Section) -> list[tuple[bytes, bytes]]:
    """Return the headers with which the user acts as another user, who may have fewer rights.

    https://kubernetes.io/docs/reference/access-authn-authz/authentication/#user-impersonation

    Raises:
        ValueError: the kubeconfig does not say as whom. kubectl refuses this too.
    """
    name, uid = user.get("as") or "", user.get("as-uid") or ""
    groups, extra = user.get("as-groups") or [], user.get("as-user-extra") or {}
    if not isinstance(name, str) or not isinstance(groups, list):
        raise ValueError("as must be a name, and as-groups a list")
    if not isinstance(extra, dict) or not all(isinstance(values, list) for values in extra.values()):
        raise ValueError("as-user-extra must be a mapping of lists")
    if not name and (uid or groups or extra):
        raise ValueError("as-uid, as-groups and as-user-extra need a user in `as`")
    headers = [("User", name), ("Uid", uid), *(("Group", group) for group in groups)]
    headers += [(f"Extra-{quote(str(key), safe=_HEADER)}", value) for key, values in extra.items() for value in values]
    return [(f"Impersonate-{key}".encode(), str(value).encode()) for key, value in headers if value]


class BearerAuth(httpx2.Auth):
    """Send a token."""

    def __init__(self, token: str) -> None:
        self._token = token

    def auth_flow(self, request: httpx2.Request) -> Generator[httpx2.Request, httpx2.Response, None]:
        """Send the request with the token."""
        request.headers["Authorization"] = f"Bearer {self._token}"
        yield request


class TokenFileAuth(httpx2.Auth):
    """Send the token of a file. It is read for every request, since the kubelet renews a service account's token."""

    def __init__(self, file: str) -> None:
        self._file = file

    def auth_flow(self, request: httpx2.Request) -> Generator[httpx2.Request, httpx2.Response, None]:
        """Send the request with the token."""
        try:
            token = Path(self._file).read_text().strip()
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is not text"
            raise LoginFailed(
                f"the kubeconfig logs in with tokenFile {self._file}, which can't be read: {reason}",
                "Correct tokenFile, or choose another context.",
            ) from None
        request.headers["Authorization"] = f"Bearer {token}"
        yield request


@dataclass(frozen=True)
class Token:
    """A bearer token; `expires` is None if the plug-in did not say."""

    value: str
    expires: datetime | None = None

    def usable(self, now: datetime) -> bool:
        """Return whether it can be sent."""
        return self.expires is None or now < self.expires - _EARLY


class PluginAuth(httpx2.Auth):
    """Ask the plug-in for a token when one is needed, and once more when the API server refuses it.

    The protocol: https://kubernetes.io/docs/reference/config-api/client-authentication.v1/
    """

    def __init__(self, plugin: Section, cluster: Section, *, interactive: bool = True) -> None:
        self._plugin = plugin
        self._cluster = cluster
        self._interactive = interactive
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
                self._token = ask(self._plugin, self._cluster, interactive=self._interactive)
            return self._token


def ask(plugin: Section, cluster: Section, *, interactive: bool = True) -> Token:
    """Run the plug-in.

    Args:
        plugin: the `exec` section of the user.
        cluster: the section of the cluster.
        interactive: the plug-in reads standard input and writes to standard error, as with kubectl: it may ask for a
            code or a device. Otherwise it gets no input and a minute, and its last line is part of the error.

    Raises:
        LoginFailed: there is no such command, it fails, or it answers something else than a token.
    """
    version = plugin.get("apiVersion")
    if version not in VERSIONS:
        raise LoginFailed(f"the kubeconfig's login plug-in speaks {version}, which is none of {', '.join(VERSIONS)}")
    command = [str(plugin["command"]), *map(str, plugin.get("args") or [])]
    terminal = interactive and sys.stdin is not None and sys.stdin.isatty()
    information = json.dumps(_information(plugin, cluster, interactive=terminal))
    environment = {**os.environ, "KUBERNETES_EXEC_INFO": information}
    environment |= {str(each["name"]): _value(each) for each in plugin.get("env") or []}
    quiet: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stderr": subprocess.PIPE, "timeout": _SECONDS}
    line = f"`{' '.join(command)}`, with which the kubeconfig logs in,"
    try:
        done = subprocess.run(
            command, env=environment, stdout=subprocess.PIPE, check=False, **({} if interactive else quiet)
        )
    except OSError as error:
        hint = str(plugin.get("installHint") or f"Install {command[0]}, or put it on the PATH.")
        raise LoginFailed(f"the kubeconfig logs in with `{command[0]}`, and {error.strerror}", hint.strip()) from None
    except subprocess.TimeoutExpired:
        raise LoginFailed(f"{line} did not end within {_SECONDS:.0f} s", "Run it by hand.") from None
    if done.returncode != 0:
        said = (done.stderr or b"").decode(errors="replace").strip().splitlines()
        raise LoginFailed(
            f"{line} ended with exit status {done.returncode}" + (f": {said[-1]}" if said else ""),
            ("Its own message is above. " if interactive else "")
            + "Run it by hand, and log in again if the session has expired.",
        )
    return _token(done.stdout, line)


def _value(variable: Mapping[str, Any]) -> str:
    """Return the value of an environment variable; without one it is empty, as with kubectl."""
    value = variable.get("value")
    return "" if value is None else str(value)


def _information(plugin: Section, cluster: Section, *, interactive: bool) -> dict[str, Any]:
    spec: dict[str, Any] = {"interactive": interactive}
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
            f"{line} did not print a token",
            "Plug-ins that answer with a client certificate are not supported.",
        ) from None
