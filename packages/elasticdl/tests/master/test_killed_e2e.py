"""A master that is killed comes back and goes on: every task is counted exactly once, whenever the kill comes."""

from __future__ import annotations

import dataclasses
import functools
import signal
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import TypeVar

import grpc
import pytest
from elasticdl.job import JobArgs
from elasticdl.master.store import EtcdStateStore, Key
from elasticdl.master.tasks.state import JobState, Stage
from elasticdl.rpc import elasticdl_pb2 as pb

from packages.elasticdl.tests.master.crashing import POINTS, Arguments, start
from packages.elasticdl.tests.master.jobs import PlainWorker, metrics, write_job
from tests.elastic.workers import free_port
from tidewater.elastic.etcd.client import EtcdStore

T = TypeVar("T")

PATIENCE_SECONDS = 120
TRAINING_TASKS = range(1, 21)
PASSING = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED, grpc.StatusCode.DEADLINE_EXCEEDED)
"""Of a master that was killed, as for a real worker."""

pytestmark = pytest.mark.e2e


class Master:
    """A master's process. One that was killed is started again under the same name."""

    def __init__(self, args: JobArgs, etcd: str, log: Path, name: str) -> None:
        self.address = f"127.0.0.1:{free_port()}"
        self.arguments = Arguments(str(log), self.address, name, etcd, args.to_json())
        self.process: ForkServerProcess | None = None

    def start(self, point: str = "none", count: int = 0) -> None:
        """Start a process that kills itself at a point."""
        self.process = start(self.arguments, point, count)

    def end(self) -> int | None:
        """Wait for the end; return the exit code."""
        assert self.process
        self.process.join(PATIENCE_SECONDS)
        return self.process.exitcode

    def close(self) -> None:
        """Leave nothing behind."""
        if self.process:
            self.process.kill()
            self.process.join()


@contextmanager
def master(args: JobArgs, etcd: str, tmp_path: Path, name: str = "master") -> Iterator[Master]:
    one = Master(args, etcd, tmp_path / f"{name}.log", name)
    try:
        yield one
    finally:
        one.close()


class Patient:
    """A worker that attends again, and repeats its calls, when the master goes away: as a worker has to."""

    def __init__(self, address: str, name: str) -> None:
        self.plain = PlainWorker(address, name)
        self.counted: list[pb.Task] = []
        self._over = False
        self.thread = threading.Thread(target=self._work, daemon=True)
        self.thread.start()

    def end(self) -> None:
        """Wait for the end of a worker that the master has stopped, or give up one that no master has reached."""
        self.thread.join(0.0 if not self.plain.told_to_stop.is_set() else PATIENCE_SECONDS)
        self._over = True
        self.plain.close()
        self.thread.join(PATIENCE_SECONDS)
        assert not self.thread.is_alive()

    def _work(self) -> None:
        try:
            self._do()
        except (grpc.RpcError, ValueError):
            if not self._over:  # else it was given up
                self.plain.close()  # or its stream would keep a task that no worker does
                raise

    def _do(self) -> None:
        self.plain.attend(again=True)
        while (task := self._repeated(self.plain.next_task)).type != pb.STOP:
            self.plain.holding = [task.id]
            states = metrics(1, task.end - task.start) if task.type == pb.EVALUATION else {}
            if self._repeated(functools.partial(self._report, task, states)):
                self.counted.append(task)
            self.plain.holding = []
        self.plain.told_to_stop.set()
        self.plain.lose_the_stream()

    def _report(self, task: pb.Task, states: dict[str, bytes]) -> bool:
        return self.plain.report(task.id, records=task.end - task.start, metric_states=states)

    def _repeated(self, call: Callable[[], T]) -> T:
        while True:
            try:
                return call()
            except grpc.RpcError as error:
                if self._over or error.code() not in PASSING:
                    raise


def job(tmp_path: Path, name: str) -> JobArgs:
    return write_job(tmp_path, job_name=name, num_epochs=2, validation_data=str(tmp_path / "test.csv"), num_workers=2)


def check_exact(workers: list[Patient], args: JobArgs, etcd: str) -> None:
    """Every task of every epoch was counted once, for the worker and in the record; so was the evaluation."""
    for each in workers:
        each.end()
    tasks = Counter(task.id for each in workers for task in each.counted)
    assert set(tasks.values()) == {1}
    assert sorted(task for task in tasks if task in TRAINING_TASKS) == list(TRAINING_TASKS)
    assert len(tasks) == len(TRAINING_TASKS) + 3
    fields = EtcdStateStore(EtcdStore((etcd,)), Key(args.job_name, args.run_id, "test")).take_over()
    assert fields is not None
    state = JobState.from_fields(fields)
    assert state.stage is Stage.DONE
    assert state.work.done_tasks() == list(TRAINING_TASKS)
    assert state.records == 200


COUNTS = (1, 2, 7, 24, 41)
IN_EVERY_RUN = set(zip(POINTS, COUNTS[1:4], strict=True))
KILLS = [
    pytest.param(point, count, marks=[] if (point, count) in IN_EVERY_RUN else pytest.mark.soak)
    for point in POINTS
    for count in COUNTS
]


@pytest.mark.parametrize(("point", "count"), KILLS)
def test_a_master_killed_at_a_point_goes_on_without_losing_or_repeating_a_task(
    etcd: str, tmp_path: Path, point: str, count: int
) -> None:
    args = job(tmp_path, f"{point}-{count}")
    with master(args, etcd, tmp_path) as one:
        one.start(point, count)
        workers = [Patient(one.address, f"worker-{index}") for index in range(2)]
        assert one.end() == -signal.SIGKILL
        one.start()
        assert one.end() == 0
        check_exact(workers, args, etcd)
    assert "Evaluation metrics[step=0]: {'accuracy': 0.12}" in (tmp_path / "master.log").read_text()


@pytest.mark.soak
def test_a_master_killed_again_and_again_ends_the_job(etcd: str, tmp_path: Path) -> None:
    args = job(tmp_path, "again-and-again")
    with master(args, etcd, tmp_path) as one:
        workers = [Patient(one.address, f"worker-{index}") for index in range(2)]
        for point, count in zip(POINTS * 3, (4, 7, 3, 9, 5, 6, 8, 4, 5), strict=True):
            one.start(point, count)
            assert one.end() == -signal.SIGKILL
        one.start()
        assert one.end() == 0
        check_exact(workers, args, etcd)


def test_a_second_master_waits_and_goes_on_when_the_first_is_killed(etcd: str, tmp_path: Path) -> None:
    args = job(tmp_path, "two-masters")
    with master(args, etcd, tmp_path, "first") as first, master(args, etcd, tmp_path, "second") as second:
        second.arguments = dataclasses.replace(second.arguments, address=first.address)
        first.start("after-store", 20)
        workers = [Patient(first.address, f"worker-{index}") for index in range(2)]
        second.start()
        assert first.end() == -signal.SIGKILL
        assert second.end() == 0
        check_exact(workers, args, etcd)


def test_a_master_that_is_started_again_after_the_end_says_so_and_ends(etcd: str, tmp_path: Path) -> None:
    args = job(tmp_path, "ended")
    with master(args, etcd, tmp_path) as one:
        one.start()
        workers = [Patient(one.address, f"worker-{index}") for index in range(2)]
        assert one.end() == 0
        one.start()
        late = Patient(one.address, "worker-late")
        assert one.end() == 0
        late.end()
        assert late.counted == []
        check_exact(workers, args, etcd)
