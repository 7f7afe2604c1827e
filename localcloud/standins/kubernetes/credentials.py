"""What proves to the API server who we are: a token, or a command that prints one (kept until it expires)."""

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

from localcloud.standins.kubernetes.errors import Unreachable
from localcloud.standins.kubernetes.kubeconfig import Connection, Exec

EARLY_SECONDS: Final = 60
"""A token is renewed this long before it expires, so that a request on its way does not find it stale."""
COMMAND_SECONDS: Final = 60


class Credentials:
    """The Authorization header for one connection. Safe to use from many threads; they share one token."""

    def __init__(self, connection: Connection, now: Callable[[], float] = time.time) -> None:
        self._connection = connection
        self._now = now
        self._lock = threading.Lock()
        self._token = ""
        self._expires = 0.0

    @property
    def renewable(self) -> bool:
        """Whether a refused token can be had anew."""
        return self._connection.exec is not None

    def headers(self) -> dict[str, str]:
        """The headers to send.

        Raises:
            Unreachable: the command that prints the token failed.
        """
        connection = self._connection
        if connection.exec is not None:
            return {"Authorization": f"Bearer {self._exec_token(connection.exec)}"}
        if connection.token_file:
            return {"Authorization": f"Bearer {Path(connection.token_file).read_text().strip()}"}
        if connection.token:
            return {"Authorization": f"Bearer {connection.token}"}
        if connection.basic:
            pair = base64.b64encode(":".join(connection.basic).encode()).decode()
            return {"Authorization": f"Basic {pair}"}
        return {}

    def forget(self) -> None:
        """Makes the next request ask for a fresh token: the API server refused this one."""
        with self._lock:
            self._expires = 0.0

    def _exec_token(self, command: Exec) -> str:
        with self._lock:
            if self._now() >= self._expires - EARLY_SECONDS:
                status = run(command)
                self._token = str(status.get("token") or "")
                stamp = status.get("expirationTimestamp")
                self._expires = datetime.fromisoformat(stamp).timestamp() if stamp else float("inf")
            return self._token


def run(command: Exec) -> dict[str, Any]:
    """Runs a credential command and gives its ExecCredential's status.

    Raises:
        Unreachable: it is missing, failed, took too long, or printed something else.
    """
    line = " ".join([command.command, *command.arguments])
    info = {"kind": "ExecCredential", "apiVersion": command.api_version, "spec": {"interactive": False}}
    environment = {**os.environ, **command.environment, "KUBERNETES_EXEC_INFO": json.dumps(info)}
    try:
        done = subprocess.run(
            [command.command, *command.arguments],
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=COMMAND_SECONDS,
            check=False,
        )
    except FileNotFoundError as error:
        raise Unreachable(
            f"getting credentials: `{command.command}` is not on PATH. {command.hint}".rstrip()
        ) from error
    except subprocess.TimeoutExpired as error:
        raise Unreachable(f"getting credentials: `{line}` did not end within {COMMAND_SECONDS} s") from error
    if done.returncode != 0:
        reason = done.stderr.strip().splitlines()[-1:] or ["no message"]
        raise Unreachable(f"getting credentials: `{line}` failed with exit code {done.returncode}: {reason[0]}")
    try:
        status = json.loads(done.stdout)["status"]
    except (ValueError, KeyError) as error:
        raise Unreachable(f"getting credentials: `{line}` printed no ExecCredential") from error
    return dict(status)
