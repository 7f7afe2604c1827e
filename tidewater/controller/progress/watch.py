"""Asks the workers of running jobs whether they make steps.

    watch = ProgressWatch(running, pods, changed=due)
    await watch.run()                       # for ever
    watch.sentence(uid)                     # what the job's condition says of it

The workers have no rights at the API server. So the controller reads their metrics, as Prometheus does: at the pods'
addresses, without credentials. It asks some processes of each job in turn, and all of them only while one says that the
job is silent.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from tidewater.controller.decide.observed import PodView
from tidewater.controller.progress.silence import Silence, judged, sentence

LOOK_SECONDS = 15.0
SPOT_CHECKS = 3
"""Processes of a job that are asked each time. More than one: those that wait in line don't know of a silence."""

_AT_ONCE = 32
_ANSWER_SECONDS = 3.0
_MOST_BYTES = 1 << 20
_REQUEST = "GET /metrics HTTP/1.0\r\nHost: {host}\r\n\r\n"


@dataclass(frozen=True)
class Process:
    """A process of a worker."""

    pod: str
    host: str
    port: int


def processes(pods: Iterable[PodView]) -> list[Process]:
    """Return the processes that serve metrics."""
    running = [pod for pod in pods if pod.phase == "Running" and pod.address and not pod.terminating]
    return [Process(pod.name, pod.address, port) for pod in running for port in pod.metrics_ports]


async def metrics(process: Process) -> str:
    """Return what a process serves; empty if it does not answer in time."""
    with contextlib.suppress(OSError, TimeoutError):
        async with asyncio.timeout(_ANSWER_SECONDS):
            reader, writer = await asyncio.open_connection(process.host, process.port)
            try:
                writer.write(_REQUEST.format(host=process.host).encode())
                answer = b""
                while len(answer) < _MOST_BYTES and (part := await reader.read(_MOST_BYTES)):
                    answer += part
            finally:
                writer.close()
            return answer.decode(errors="replace")
    return ""


class ProgressWatch:
    """Knows which running jobs make no step.

    Args:
        running: Returns the uids of the jobs that run.
        pods: Of all jobs, by the uid of their job and by their name.
        changed: Called with a job's uid when something else is to be said of it.
        read: Returns what a process serves.
        now: Returns the time in UTC.
    """

    def __init__(
        self,
        running: Callable[[], Iterable[str]],
        pods: Mapping[str, Mapping[str, PodView]],
        changed: Callable[[str], None],
        *,
        read: Callable[[Process], Awaitable[str]] = metrics,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self.silences: dict[str, Silence] = {}
        self._running, self._pods = running, pods
        self._changed, self._read, self._now = changed, read, now
        self._looks = 0
        self._free = asyncio.Semaphore(_AT_ONCE)

    def sentence(self, uid: str) -> str:
        """Return what the condition of a job says of its silence; empty if it is not silent."""
        return sentence(self.silences.get(uid), self._pods.get(uid, {}))

    async def run(self) -> None:
        """Look again and again, for ever."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            await self.look()

    async def look(self) -> None:
        """Ask the workers of all jobs once."""
        self._looks += 1
        jobs = {uid: found for uid in self._running() if (found := processes(self._pods.get(uid, {}).values()))}
        for uid in self.silences.keys() - jobs.keys():
            del self.silences[uid]
        await asyncio.gather(*(self._look_at(uid, processes) for uid, processes in jobs.items()))

    async def _look_at(self, uid: str, processes: Sequence[Process]) -> None:
        before = self.silences.get(uid)
        if before is None:
            first = self._looks * SPOT_CHECKS
            some = [processes[(first + each) % len(processes)] for each in range(min(SPOT_CHECKS, len(processes)))]
            if judged(await self._ask(some), None, self._now()) is None:
                return
        found = judged(await self._ask(processes), before, self._now())
        if found is None:
            self.silences.pop(uid, None)
        else:
            self.silences[uid] = found
        if found != before:
            self._changed(uid)

    async def _ask(self, processes: Sequence[Process]) -> dict[str, list[str]]:
        """Return what the processes of each pod serve."""

        async def ask(process: Process) -> str:
            async with self._free:
                return await self._read(process)

        answers = defaultdict[str, list[str]](list)
        for process, text in zip(processes, await asyncio.gather(*map(ask, processes)), strict=True):
            answers[process.pod].append(text)
        return answers
