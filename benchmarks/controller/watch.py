"""Notes when each pod of a namespace is created, by one watch that is opened before the first.

    with PodWatch(plane, "turn-1") as watch:
        watch.wait_for_pod("job-0-worker-0", deadline, check=process_runs)
        watch.created["job-0-worker-0"]     # on the monotonic clock

The API server sends metadata only, so that the watch costs it little.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import threading
import time
from collections.abc import Callable
from types import TracebackType

from benchmarks.harness.command import TurnFailed
from tests.control_plane import Plane

METADATA_ONLY = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
LONGEST_SECONDS = 4 * 3600
"""Of a watch: longer than any turn."""
WAKE_SECONDS = 1.0
"""Between two checks while nothing is created."""


def created(line: bytes) -> str | None:
    """Return the name of the pod that a line of a watch reports as new; None for other changes.

    Raises:
        TurnFailed: The line reports the end of the watch.
    """
    event = json.loads(line)
    if event["type"] == "ERROR":
        raise TurnFailed(f"the watch of pods: {event['object'].get('message', event['object'])}")
    return str(event["object"]["metadata"]["name"]) if event["type"] == "ADDED" else None


class PodWatch:
    """Pods of one namespace by the time of their creation."""

    def __init__(self, plane: Plane, namespace: str) -> None:
        self.created: dict[str, float] = {}
        self._path = f"/api/v1/namespaces/{namespace}/pods"
        self._plane = plane
        self._changed = threading.Condition()
        self._over: str | None = None
        self._connection = plane.connection()
        self._reader: threading.Thread | None = None

    def __enter__(self) -> PodWatch:
        """Open the watch; what is created from now on is seen."""
        version = self._plane.client.get(f"{self._path}?limit=1")["metadata"]["resourceVersion"]
        query = f"watch=1&resourceVersion={version}&timeoutSeconds={LONGEST_SECONDS}"
        self._connection.request("GET", f"{self._path}?{query}", headers={"Accept": METADATA_ONLY})
        response = self._connection.getresponse()
        if response.status != 200:
            raise TurnFailed(f"the watch of {self._path}: {response.status} {response.read()!r}")
        self._reader = threading.Thread(target=self._read, args=(response,), daemon=True)
        self._reader.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the watch."""
        if self._connection.sock is not None:
            with contextlib.suppress(OSError):
                self._connection.sock.shutdown(socket.SHUT_RDWR)
        if self._reader is not None:
            self._reader.join()
        self._connection.close()

    def wait_for_pod(self, name: str, deadline: float, check: Callable[[], None]) -> None:
        """Return when a pod of this name has been created.

        Args:
            name: The pod's.
            deadline: On the monotonic clock.
            check: Called now and then; raises if waiting has no use.

        Raises:
            TurnFailed: The deadline has passed, or the watch has ended.
        """
        self._wait(lambda: name in self.created, f"pod {name}", deadline, check)

    def wait_for_pods(self, count: int, deadline: float, check: Callable[[], None]) -> None:
        """Return when as many pods have been created; otherwise as `wait_for_pod`."""
        self._wait(lambda: len(self.created) >= count, f"{count} pods", deadline, check)

    def _wait(self, done: Callable[[], bool], what: str, deadline: float, check: Callable[[], None]) -> None:
        with self._changed:
            while not done():
                check()
                if self._over is not None:
                    raise TurnFailed(self._over)
                left = deadline - time.monotonic()
                if left <= 0:
                    raise TurnFailed(f"{what} not created in time; {len(self.created)} are in {self._path}")
                self._changed.wait(min(left, WAKE_SECONDS))

    def _take(self, line: bytes) -> None:
        """Note what a line of the watch reports."""
        if name := created(line):
            with self._changed:
                self.created[name] = time.monotonic()
                self._changed.notify_all()

    def _read(self, response: http.client.HTTPResponse) -> None:
        over = f"the watch of {self._path} has ended"
        try:
            for line in response:
                self._take(line)
        except (OSError, http.client.HTTPException, ValueError, TurnFailed) as error:
            over = f"{over}: {error}"
        with self._changed:
            self._over = over
            self._changed.notify_all()
