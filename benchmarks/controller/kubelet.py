"""Runs the pods of one namespace without nodes: it binds them, says that they run, and ends those that are deleted.

kubelet = Kubelet(plane, "turn-1")               # a PodWatch as well
with kubelet:
    kubelet.wait_for_pods(1000, deadline, check)
    kubelet.running["job-0-worker-0"]            # since when the API server knows that it runs, on the monotonic clock
    kubelet.gone                                 # names of the pods that are gone
"""

from __future__ import annotations

import json
import time
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType

from localcloud.kube.errors import ApiError
from typing_extensions import override

from benchmarks.controller.watch import PodWatch
from tests.control_plane import Plane

THREADS = 4
NODE = "node-0"
MERGE_PATCH = "application/merge-patch+json"
_NOT_FOUND = 404
_RUNNING = {
    "phase": "Running",
    "conditions": [{"type": "PodScheduled", "status": "True"}, {"type": "Ready", "status": "True"}],
}


class Kubelet(PodWatch):
    """The kubelets and the scheduler of a namespace, with room for every pod."""

    def __init__(self, plane: Plane, namespace: str) -> None:
        super().__init__(plane, namespace)
        self.running: dict[str, float] = {}
        self.gone: set[str] = set()
        self._pool = ThreadPoolExecutor(THREADS)

    @override
    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the watch and what is still to be done."""
        super().__exit__(kind, value, trace)
        self._pool.shutdown(cancel_futures=True)

    @override
    def _take(self, line: bytes) -> None:
        super()._take(line)
        event = json.loads(line)
        metadata = event["object"]["metadata"]
        if event["type"] == "ADDED":
            self._pool.submit(self._start, metadata["name"])
        elif event["type"] == "DELETED":
            self.gone.add(metadata["name"])
        elif metadata.get("deletionTimestamp"):
            self._pool.submit(self._end, metadata["name"])

    def _start(self, name: str) -> None:
        path, client = f"{self._path}/{name}", self._plane.client
        target = {"apiVersion": "v1", "kind": "Node", "name": NODE}
        binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": target}
        client.create(f"{path}/binding", binding)
        client.request("PATCH", f"{path}/status", {"status": _RUNNING}, MERGE_PATCH)
        self.running[name] = time.monotonic()

    def _end(self, name: str) -> None:
        try:
            self._plane.client.request("DELETE", f"{self._path}/{name}", {"gracePeriodSeconds": 0})
        except ApiError as error:
            if error.status != _NOT_FOUND:
                raise
