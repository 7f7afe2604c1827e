"""A real API server for tests of what it accepts."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.control_plane import Plane

PATIENCE_SECONDS = 180.0


@dataclass(frozen=True)
class ApiServer:
    """A running API server, and a user with every right."""

    plane: Plane

    def request(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> tuple[int, dict[str, Any]]:
        """Send a request; return the HTTP status and the object in the answer, or {} if it has none.

        A path that the API server does not have yet is answered with plain text.
        """
        headers = {"Content-Type": "application/json"}
        with contextlib.closing(self.plane.connection()) as connection:
            connection.request(method, path, None if body is None else json.dumps(body), headers)
            answer = connection.getresponse()
            content = answer.read()
            is_object = (answer.getheader("Content-Type") or "").startswith("application/json")
            return answer.status, json.loads(content) if is_object else {}

    def kubectl(self, *arguments: str, stdin: str | None = None) -> str:
        """Run kubectl; return what it prints."""
        return self.plane.kubectl(*arguments, stdin=stdin)


def eventually(ask: Callable[[], bool]) -> None:
    """Return once the answer is true, for what the API server does some time after a request."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not ask():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.1)


@contextlib.contextmanager
def running(folder: Path) -> Iterator[ApiServer]:
    """Run etcd and kube-apiserver while the context lasts."""
    plane = Plane(folder, ["nobody"])
    try:
        plane.start()
        yield ApiServer(plane)
    finally:
        plane.end()
