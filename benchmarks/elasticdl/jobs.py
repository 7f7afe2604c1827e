"""One job of one system: its processes, each on a core of its own as far as there are cores.

with Job(system, args, etcd, folder) as job:
    job.start()
    job.wait(job.ended, "the end")
    job.loss_times()

The master and server 0 are on core 0, worker 0 on core 1, and so on in turns. Every process computes with one thread.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

from elasticdl.job import JobArgs

from benchmarks.elasticdl.rate import loss_times
from benchmarks.elasticdl.systems import ALLREDUCE, LOCAL, PLAIN, System
from benchmarks.harness.command import TurnFailed
from scripts.toolchain import paths
from tests.elastic.workers import free_port
from tests.processes import Process

POLL_SECONDS = 0.02
WAIT_SECONDS = 300.0
_ENVIRONMENT = {"OMP_NUM_THREADS": "1", "PYTHONPATH": paths.IMPORTS}


class Job:
    """The processes of one job. Leaving the `with` block ends all."""

    def __init__(self, system: System, args: JobArgs, etcd: str, folder: Path) -> None:
        self.system, self._args, self._etcd, self._folder = system, args, etcd, folder
        self._master = f"127.0.0.1:{free_port()}"
        self._servers = [f"127.0.0.1:{free_port()}" for _ in range(system.servers)]
        self._others: list[Process] = []
        self.master: Process | None = None
        self.workers: list[Process] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in (*self.workers, *self._others, *([self.master] if self.master else [])):
            process.end()

    def start(self) -> None:
        """Start all processes."""
        args, addresses = ["--job_args", self._args.to_json()], ",".join(self._servers)
        if self._servers:
            where = ["--host", "127.0.0.1", "--port", self._master.partition(":")[2]]
            given = ["--job", self._args.job_name, "--etcd", self._etcd, "--ps_addrs", addresses]
            self.master = self._process("master", 0, ["elasticdl.master", *where, *given, *args])
        for index, address in enumerate(self._servers):
            which = ["--job", self._args.job_name, "--index", str(index), "--servers", str(len(self._servers))]
            where = ["--host", "127.0.0.1", "--port", address.partition(":")[2], "--master_addr", self._master]
            self._others.append(self._process(f"ps-{index}", index, ["elasticdl.ps", *which, *where, *args]))
        for _ in range(self.system.workers):
            self.start_worker()

    def start_worker(self) -> Process:
        """Start a worker under the next number."""
        number = len(self.workers)
        name, text = f"worker-{number}", self._args.to_json()
        programs = {
            PLAIN: ["benchmarks.elasticdl.plain", text],
            LOCAL: ["elasticdl.local", text],
            ALLREDUCE: ["elasticdl.allreduce", "--name", name, "--etcd", self._etcd, "--job_args", text],
        }
        servers = ["--master_addr", self._master, "--ps_addrs", ",".join(self._servers), "--job_args", text]
        default = ["elasticdl.worker", "--job", self._args.job_name, "--name", name, *servers]
        self.workers.append(self._process(name, number + 1, programs.get(self.system.kind, default)))
        return self.workers[-1]

    def ended(self) -> bool:
        """Return whether the job has ended with success; raise TurnFailed if it has failed."""
        deciding = [self.master] if self.master else self.workers
        codes = [process.exit_code for process in deciding]
        if any(codes):
            raise TurnFailed(f"exit codes {codes}\n{self.last_lines()}")
        return all(code == 0 for code in codes)

    def loss_times(self) -> list[float]:
        """Return when losses were logged; by all-reduce every worker logs the same ones, so those of one count."""
        logs = [worker.log.read_text() for worker in self.workers]
        return [at for log in (logs[:1] if self.system.kind == ALLREDUCE else logs) for at in loss_times(log)]

    def wait(self, condition: Callable[[], object], what: str) -> float:
        """Return when something has come to pass, on the clock of the logs; raise TurnFailed if it doesn't in time."""
        deadline = time.monotonic() + WAIT_SECONDS
        while not condition():
            if time.monotonic() > deadline:
                raise TurnFailed(f"{what} did not come in {WAIT_SECONDS:.0f} s\n{self.last_lines()}")
            time.sleep(POLL_SECONDS)
        return time.time()

    def last_lines(self) -> str:
        """Return the ends of all logs."""
        processes = [*([self.master] if self.master else []), *self._others, *self.workers]
        return "\n".join(f"--- {process.name}\n{process.last_lines()}" for process in processes)

    def _process(self, name: str, core: int, module: list[str]) -> Process:
        cores = sorted(os.sched_getaffinity(0))
        pinned = ["taskset", "-c", str(cores[core % len(cores)])]
        return Process(name, [*pinned, sys.executable, "-m", *module], _ENVIRONMENT, self._folder)
