"""The Authorization header: a token, a password, or what a command prints (kept until it expires)."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import threading
import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from localcloud.standins.kubernetes.cluster.errors import Unreachable
from localcloud.standins.kubernetes.cluster.kubeconfig import Entry

EARLY_SECONDS: Final = 60
"""A token is renewed this long before it expires, so that it is valid when a request arrives."""
COMMAND_SECONDS: Final = 60


class Credentials:
    """The credentials of a kubeconfig's user entry. Many threads may use one instance; they share one token."""

    def __init__(self, user: Entry, now: Callable[[], float] = time.time) -> None:
        self._user = user
        self._now = now
        self._lock = threading.Lock()
        self._token = ""
        self._expires = 0.0

    @property
    def renewable(self) -> bool:
        """Whether a new token can replace one that the API server refused."""
        return bool(self._user.get("exec"))

    def headers(self) -> dict[str, str]:
        """Return the headers to send.

        Raises:
            Unreachable: The command that prints the token failed.
        """
        user = self._user
        if user.get("exec"):
            return {"Authorization": f"Bearer {self._exec_token(user['exec'])}"}
        if user.get("tokenFile"):
            return {"Authorization": f"Bearer {Path(user['tokenFile']).read_text().strip()}"}
        if user.get("token"):
            return {"Authorization": f"Bearer {user['token']}"}
        if user.get("username"):
            pair = f"{user['username']}:{user.get('password', '')}"
            return {"Authorization": f"Basic {base64.b64encode(pair.encode()).decode()}"}
        return {}

    def forget(self) -> None:
        """Get a new token for the next request."""
        with self._lock:
            self._expires = 0.0

    def _exec_token(self, entry: Entry) -> str:
        with self._lock:
            if self._now() >= self._expires - EARLY_SECONDS:
                status = run(entry)
                self._token = str(status.get("token") or "")
                stamp = status.get("expirationTimestamp")
                self._expires = datetime.fromisoformat(stamp).timestamp() if stamp else float("inf")
            return self._token


def run(entry: Entry) -> dict[str, Any]:
    """Run the command of a kubeconfig's `exec` entry and return its ExecCredential's status.

    Raises:
        Unreachable: It is missing, failed, took too long, or printed something else.
    """
    command = [str(entry.get("command", "")), *(str(argument) for argument in entry.get("args") or ())]
    line = f"getting credentials: `{' '.join(command)}`"
    version = entry.get("apiVersion") or "client.authentication.k8s.io/v1beta1"
    info = {"kind": "ExecCredential", "apiVersion": version, "spec": {"interactive": False}}
    variables = {str(item["name"]): str(item["value"]) for item in entry.get("env") or ()}
    environment = {**os.environ, **variables, "KUBERNETES_EXEC_INFO": json.dumps(info)}
    try:
        # Not the plug-in's own stdin: that belongs to the engine, and its end tells the plug-in to end.
        done = subprocess.run(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=COMMAND_SECONDS,
            check=False,
        )
    except FileNotFoundError as error:
        hint = entry.get("installHint") or ""
        raise Unreachable(f"getting credentials: `{command[0]}` is not on PATH. {hint}".rstrip()) from error
    except subprocess.TimeoutExpired as error:
        raise Unreachable(f"{line} did not end within {COMMAND_SECONDS} s") from error
    if done.returncode != 0:
        reason = done.stderr.decode(errors="replace").strip().splitlines()[-1:] or ["no message"]
        raise Unreachable(f"{line} failed with exit code {done.returncode}: {reason[0]}")
    try:
        return dict(json.loads(done.stdout)["status"])
    except (ValueError, KeyError, TypeError) as error:
        raise Unreachable(f"{line} printed no ExecCredential") from error
