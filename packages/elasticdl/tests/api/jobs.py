"""A script of one's own in real processes: a master, and workers with the environment of an ElasticJob's pods."""

from __future__ import annotations

import re
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from elasticdl.job import JobArgs, Strategy

from tests.elastic.workers import PATIENCE_SECONDS, free_port
from tests.farm import Farm
from tests.programs import Forked
from tidewater.contract import env, exit_codes

KILLED = -signal.SIGKILL


@dataclass(frozen=True)
class Update:
    """A line of the example script."""

    step: int
    records: int
    workers: int


class Process(Forked):
    """A process with its log."""

    def came_late(self) -> bool:
        """Return whether it came after the end of the job. It ends with an error: it has no trained model to store."""
        return "the job has ended with a model of" in self.text()

    def kill(self) -> None:
        self.signal(signal.SIGKILL)
        self.wait()

    def updates(self) -> list[Update]:
        """Return the updates in the log of the example script."""
        found = re.findall(r"update=(\d+) records=(\d+) workers=(\d+)", self.text())
        return [Update(*map(int, each)) for each in found]

    def shards(self) -> list[int]:
        """Return the shards that the worker has reported as done."""
        return [int(each) for each in re.findall(r"Shard (\d+) is done", self.text())]


class Job:
    """A master and workers. It is a context manager; they end with it."""

    def __init__(
        self, farm: Farm, folder: Path, etcd: str, script: Sequence[str], *, least: int = 1, **flags: Any
    ) -> None:
        """Start the master. Training begins with `least` workers."""
        self.args = JobArgs(
            job_name=f"script-{time.monotonic_ns():x}",
            distribution_strategy=Strategy.ALLREDUCE,
            job_command=" ".join(script),
            num_ps_pods=0,
            **flags,
        )
        self._farm, self._folder, self._etcd, self._script, self._port = farm, folder, etcd, script, free_port()
        self._least = least
        self.workers: list[Process] = []
        self._masters = 0
        self.master = self.start_master()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for process in (self.master, *self.workers):
            process.kill()

    def start_master(self) -> Process:
        """Start the master, for the first time or again."""
        own = ["--job", self.args.job_name, "--host", "127.0.0.1", "--port", str(self._port), "--etcd", self._etcd]
        words = ["-m", "elasticdl.master", *own, "--name", "master", "--job_args", self.args.to_json()]
        self._masters += 1
        self.master = Process(self._farm, "master", words, self._folder / f"master-{self._masters}.log")
        return self.master

    def tasks(self) -> int:
        """Return the number of tasks that were done, as the master says at the end."""
        found = re.search(r"Job done: (\d+) tasks", self.master.text())
        assert found, self.told()
        return int(found[1])

    def start(self, *more: str) -> Process:
        """Start a worker."""
        name = f"w{len(self.workers)}"
        variables = {
            "ELASTICDL_MASTER_ADDR": f"127.0.0.1:{self._port}",
            "ELASTICDL_JOB_ARGS": self.args.to_json(),
            env.JOB: f"elasticdl-{self.args.job_name}",
            env.ETCD: self._etcd,
            env.WORKER: name,
            env.HOST: "127.0.0.1",
            env.MIN_WORKERS: str(self._least),
        }
        words, log = [*self._script, *more], self._folder / f"{name}.log"
        self.workers.append(Process(self._farm, name, words, log, variables))
        return self.workers[-1]

    def updates(self) -> list[Update]:
        """Return the updates in the logs of all workers."""
        return [update for worker in self.workers for update in worker.updates()]

    def wait_for(self, condition: Callable[[], object]) -> None:
        """Wait until something holds; fail with all logs if it does not in time, or if a worker has failed."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not condition():
            ended = [worker for worker in self.workers if worker.poll() not in (None, 0, KILLED, exit_codes.LEFT)]
            if any(not worker.came_late() for worker in ended) or time.monotonic() > deadline:
                raise AssertionError(self.told())
            time.sleep(0.02)

    def told(self) -> str:
        """Return the ends of all logs."""
        return "\n---\n".join(process.text()[-3000:] for process in (self.master, *self.workers))
