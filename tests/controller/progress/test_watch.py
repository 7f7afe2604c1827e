"""Few processes are asked while jobs make steps, and all of a job that makes none."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, start_http_server

from tests.controller.decide.world import NOW, ago, pod
from tests.controller.progress.test_silence import page
from tidewater.controller.decide.observed import PodView
from tidewater.controller.progress.silence import Silence
from tidewater.controller.progress.watch import SPOT_CHECKS, Process, ProgressWatch, metrics, processes
from tidewater.elastic.observe.metrics import PrometheusMetrics

PORT = 9464
SIZE = 10


def workers(uid: str) -> list[PodView]:
    served: dict[str, Any] = {"address": "10.0.0.5", "metrics_ports": (PORT,)}
    return [pod(index, name=f"{uid}-worker-{index}", **served) for index in range(SIZE)]


class Jobs:
    """Jobs with ten workers each."""

    def __init__(self, *uids: str) -> None:
        self.running = list(uids)
        self.pods = {uid: {each.name: each for each in workers(uid)} for uid in uids}
        self.pages: dict[str, str] = {}
        """What pods serve; of the others: that the job makes steps."""
        self.asked: list[str] = []
        self.changed: list[str] = []
        self.watch = ProgressWatch(
            lambda: self.running, self.pods, self.changed.append, read=self.read, now=lambda: NOW
        )

    async def read(self, process: Process) -> str:
        self.asked.append(process.pod)
        return self.pages.get(process.pod, page())

    async def look(self) -> list[str]:
        """Look once; return the pods that were asked."""
        self.asked = []
        await self.watch.look()
        return self.asked


async def test_while_a_job_makes_steps_some_of_its_processes_are_asked_in_turn() -> None:
    jobs = Jobs("j", "k")
    looks = [await jobs.look() for _ in range(SIZE)]
    assert {len(asked) for asked in looks} == {2 * SPOT_CHECKS}
    assert len({pod for asked in looks for pod in asked}) == 2 * SIZE
    assert (jobs.changed, jobs.watch.silences) == ([], {})


async def test_a_silent_job_is_noticed_and_all_are_asked_until_it_goes_on() -> None:
    jobs = Jobs("j", "k")
    jobs.pages = {f"j-worker-{index}": page(75.0) for index in range(1, SIZE)} | {
        "j-worker-0": page(75.0, "j-worker-7")  # the others of a large job don't know the name
    }
    assert len(await jobs.look()) == 2 * SPOT_CHECKS + SIZE
    assert jobs.watch.silences == {"j": Silence(ago(75), ("j-worker-7",))}
    assert jobs.watch.sentence("j") == " No step since 11:58:45 UTC: it waits for j-worker-7 on node node-7."
    assert jobs.watch.sentence("k") == ""
    assert len(await jobs.look()) == SPOT_CHECKS + SIZE
    assert jobs.changed == ["j"]
    jobs.pages = {}
    await jobs.look()
    assert (jobs.changed, jobs.watch.silences) == (["j", "j"], {})


async def test_a_job_that_does_not_run_any_more_is_forgotten() -> None:
    jobs = Jobs("j")
    jobs.pages = {f"j-worker-{index}": page(75.0) for index in range(SIZE)}
    await jobs.look()
    jobs.running = []
    assert await jobs.look() == []
    assert jobs.watch.silences == {}


def test_pods_that_run_are_asked_at_each_port_that_they_name() -> None:
    served: dict[str, Any] = {"address": "10.0.0.5", "metrics_ports": (PORT, PORT + 1)}
    pods = [pod(0, **served), pod(1, "Pending", **served), pod(2, terminating=True, **served), pod(3)]
    assert processes(pods) == [Process("j-worker-0", "10.0.0.5", port) for port in (PORT, PORT + 1)]


def answer(port: int) -> str:
    """Return what a process serves, in real time."""
    with asyncio.Runner() as runner:
        return runner.run(metrics(Process("w", "127.0.0.1", port)))


def test_what_a_worker_serves_is_read_and_one_that_does_not_answer_has_an_empty_page(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    registry = CollectorRegistry()
    PrometheusMetrics(registry, job="j", worker="w").silent(75.0, ["w-1"])
    server, thread = start_http_server(0, addr="127.0.0.1", registry=registry)
    assert '\ntidewater_silent_seconds{waits_for="w-1"} 75.0\n' in answer(server.server_port)
    server.shutdown()
    server.server_close()
    thread.join()
    assert answer(server.server_port) == ""

    monkeypatch.setattr("tidewater.controller.progress.watch._ANSWER_SECONDS", 0.05)
    with socket.create_server(("127.0.0.1", 0)) as dumb:
        assert answer(dumb.getsockname()[1]) == ""
