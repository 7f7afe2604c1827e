"""One turn with one job of many pods: it is created, grows by half as many workers, and shrinks back.

found = LargeRun(plane, system, 1000, Pace(), folder).run()

The pods run, as far as the API server knows: see `kubelet`. All waiting is for the job's status, which is asked for
a few times a second.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from typing_extensions import override

from benchmarks.controller import jobs, results
from benchmarks.controller.kubelet import Kubelet
from benchmarks.controller.plan import Pace
from benchmarks.controller.systems import System
from benchmarks.controller.turn import CALLS_SHOWN, MERGE_PATCH, POLL_SECONDS, TurnRun, working
from benchmarks.harness.command import TurnFailed
from tests.control_plane import Plane
from tests.processes import cpu_seconds

LONGEST_SECONDS = 900.0
"""Of a change of the job."""
JOB = jobs.job_name(0)


class LargeRun(TurnRun):
    """The turn of one system with one job of so many pods."""

    def __init__(self, plane: Plane, system: System, pods: int, pace: Pace, folder: Path) -> None:
        super().__init__(plane, system, 1, pace, folder)
        self._pods = pods

    @override
    def _measure(self) -> dict[str, float]:
        half = self._pods // 2
        kubelet = Kubelet(self._plane, self._namespace)
        with kubelet:
            found = self._made(kubelet, self._pods + half)
            begin = time.monotonic()
            found[results.GROWN] = self._sized(self._pods + half, lambda: True)
            found[results.GROWN_CREATED] = max(list(kubelet.created.values())) - begin
            self._settle(self._tail())
            found[results.SHRUNK] = self._sized(self._pods, lambda: len(kubelet.gone) >= half)
        found[results.STATUS] = len(json.dumps(self._status()))
        return {results.large(self._pods, measure): value for measure, value in found.items()}

    def _made(self, kubelet: Kubelet, most: int) -> dict[str, float]:
        count, tail, process = self._pods, self._tail(), self._running
        cpu, plane_cpu = cpu_seconds(process.tree()), self._plane.cpu_seconds()
        begin = time.monotonic()
        kind = self._system.kind
        self._plane.client.create(kind.path(self._namespace), kind.manifest(JOB, count, most))
        kubelet.wait_for_pods(count, begin + LONGEST_SECONDS, self._check)
        created = max(list(kubelet.created.values())) - begin
        self._until(lambda: self._active() == count, begin)
        run = time.monotonic()
        calls = working(self._settle(tail))
        kinds = {results.pod_call(str(call)): number / count for call, number in calls.most_common()}
        return {
            results.ALL_CREATED: created,
            results.ALL_RUN: run - begin,
            results.SAID: max(0.0, run - max(list(kubelet.running.values()))),
            results.POD_CALLS: calls.total() / count,
            **{what: number for what, number in kinds.items() if number >= CALLS_SHOWN / 10},
            results.POD_CPU: 1000 * (cpu_seconds(process.tree()) - cpu) / count,
            results.POD_PLANE_CPU: 1000 * (self._plane.cpu_seconds() - plane_cpu) / count,
        }

    def _sized(self, workers: int, also: Callable[[], bool]) -> float:
        """Resize the job; return the seconds until its status says that so many run, and something else holds."""
        path, kind = f"{self._system.kind.path(self._namespace)}/{JOB}", self._system.kind
        begin = time.monotonic()
        self._plane.client.request("PATCH", path, kind.resize(workers), MERGE_PATCH)
        self._until(lambda: self._active() == workers and also(), begin)
        return time.monotonic() - begin

    def _until(self, holds: Callable[[], bool], begin: float) -> None:
        while not holds():
            self._check()
            if time.monotonic() > begin + LONGEST_SECONDS:
                raise TurnFailed(f"{self._system.name}: the job's status is {self._status()}")
            time.sleep(POLL_SECONDS)

    def _active(self) -> int:
        worker = (self._status().get("replicaStatuses") or {}).get("Worker") or {}
        return int(worker.get("active") or 0)

    def _status(self) -> dict[str, Any]:
        found: dict[str, Any] = self._plane.client.get(f"{self._system.kind.path(self._namespace)}/{JOB}")
        return found.get("status") or {}
