"""A job of real processes: a master with etcd, parameter servers and workers, started again as an ElasticJob does it.

with Job(farm, folder, etcd, args) as job:
    job.start(workers=2)
    assert job.finish() == 0
    job.metrics()[-1]        # Metrics(step=230, values={"accuracy": 0.97})
"""

from __future__ import annotations

import ast
import re
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import elasticdl
from elasticdl.job import JobArgs

from packages.elasticdl.tests.processes.forked import Forked, fork
from tests.elastic.workers import PATIENCE_SECONDS, free_port
from tests.farm import Farm
from tidewater.contract import exit_codes

ZOO = Path(elasticdl.__file__).parent / "zoo" / "templates"
DIGITS = "mnist.mnist_functional_api.custom_model"
RECOMMENDER = "recommender.wide_and_deep.custom_model"
KILLED = -signal.SIGKILL


def job_args(data: Path, **changes: Any) -> JobArgs:
    """Return a job that trains the example model on records in `train` and evaluates it on those in `test`."""
    fields: dict[str, Any] = {
        "job_name": "e2e",
        "model_zoo": str(ZOO),
        "model_def": DIGITS,
        "training_data": str(data / "train"),
        "validation_data": str(data / "test"),
        "num_minibatches_per_task": 4,
    }
    return JobArgs(**{**fields, **changes})


@dataclass(frozen=True)
class Metrics:
    """A line `Evaluation metrics[step=200]: {...}` of a master's log."""

    step: int
    values: dict[str, float]


class Job:
    """The processes of a job. It is a context manager; they end with it."""

    def __init__(self, farm: Farm, folder: Path, etcd: str, args: JobArgs, *, points: Path | None = None) -> None:
        # The name is unique even if the test runs twice with the same etcd.
        self.args = replace(args, job_name=f"{args.job_name}-{time.monotonic_ns():x}")
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self._farm, self._etcd, self._points = farm, etcd, points
        self._ports = [free_port() for _ in range(args.num_ps_pods + 1)]
        self.master: Forked | None = None
        self.servers: list[Forked] = []
        self.workers: dict[str, Forked] = {}
        """Of all workers, those that have ended too, by pod."""
        self.started = 0
        """Number of processes that were started."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self.processes:
            process.kill()

    @property
    def processes(self) -> list[Forked]:
        """Return the present processes."""
        return [*([self.master] if self.master else []), *self.servers, *self.workers.values()]

    @property
    def living_workers(self) -> list[Forked]:
        """Return the workers that run."""
        return [worker for worker in self.workers.values() if worker.poll() is None]

    def start(self, *, workers: int) -> None:
        """Start all processes."""
        self.start_master()
        self.servers = [self._server(index) for index in range(self.args.num_ps_pods)]
        for _ in range(workers):
            self.start_worker()

    def start_master(self, name: str = "master") -> None:
        """Start the master, for the first time or again; with another name it waits until the one before has ended."""
        argv = ["--job", self.args.job_name, "--name", name, "--host", "127.0.0.1", "--port", str(self._ports[0])]
        argv += ["--etcd", self._etcd, "--ps_addrs", self._addresses(), "--job_args", self.args.to_json()]
        self.master = self._fork("master", "master", argv)

    def start_server(self, index: int) -> None:
        """Start a parameter server again."""
        self.servers[index] = self._server(index)

    def start_worker(self) -> Forked:
        """Start a worker under the next number."""
        name = f"elasticdl-{self.args.job_name}-worker-{len(self.workers)}"
        argv = ["--job", self.args.job_name, "--name", name, "--master_addr", f"127.0.0.1:{self._ports[0]}"]
        argv += ["--ps_addrs", self._addresses(), "--job_args", self.args.to_json()]
        self.workers[name] = self._fork("worker", name, argv)
        return self.workers[name]

    def revive(self) -> list[str]:
        """Start again what was killed; return the kinds of processes that were."""
        revived = []
        if self.master and self.master.poll() == KILLED:
            self.start_master()
            revived.append("master")
        for index, server in enumerate(self.servers):
            if server.poll() == KILLED:
                self.start_server(index)
                revived.append("ps")
        for name, worker in list(self.workers.items()):
            if worker.poll() == KILLED and not name.endswith("+"):
                self.workers[f"{name}+"] = self.workers.pop(name)  # it has its successor
                self.start_worker()
                revived.append("worker")
        return revived

    def finish(self, seconds: float = PATIENCE_SECONDS, *, act: Callable[[], object] = lambda: None) -> int:
        """Start again what is killed until the master ends; return its exit code, once the workers have ended, too.

        `act` is called again and again meanwhile.
        """
        assert self.master
        deadline = time.monotonic() + seconds
        while (code := self.master.poll()) is None or code == KILLED:
            if time.monotonic() > deadline:
                raise AssertionError(f"the job did not end in {seconds:g} s:\n{self.told()}")
            self.revive()
            act()
            self._farm.pause(0.02)
        for worker in self.living_workers:
            worker.wait(60)
        return code

    def wait_for(self, condition: Callable[[], object], seconds: float = PATIENCE_SECONDS) -> None:
        """Wait until something holds; fail with all logs if it does not in time, or before the job ends."""
        deadline = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > deadline or (self.master and self.master.poll() is not None and not condition()):
                raise AssertionError(f"it did not come to pass in {seconds:g} s, or before the end:\n{self.told()}")
            self._farm.pause(0.02)

    def log(self) -> str:
        """Return the log of all masters."""
        path = self.folder / "master.log"
        return path.read_text() if path.exists() else ""

    def metrics(self) -> list[Metrics]:
        """Return the metrics in the master's log."""
        found = re.findall(r"Evaluation metrics\[step=(\d+)\]: (\{.*\})", self.log())
        return [Metrics(int(step), ast.literal_eval(values)) for step, values in found]

    def done(self) -> tuple[int, int, int]:
        """Return tasks, records and version of the master's last line; fail if there is none."""
        found = re.findall(r"Job done: (\d+) tasks, (\d+) records, version (\d+)", self.log())
        assert found, self.told()
        tasks, records, version = found[-1]
        return int(tasks), int(records), int(version)

    def told(self) -> str:
        """Return the ends of all logs, for the message of a failed test."""
        codes = {process.name: process.poll() for process in self.processes}
        logs = [f"--- {path.name}\n{path.read_text()[-3000:]}" for path in sorted(self.folder.glob("*.log"))]
        return "\n".join([str(codes), *logs])

    def failed_workers(self) -> dict[str, int]:
        """Return the exit codes of workers that ended neither with success nor by a kill."""
        codes = {name: worker.poll() for name, worker in self.workers.items()}
        return {
            name: code for name, code in codes.items() if code is not None and code not in (exit_codes.FINISHED, KILLED)
        }

    def _server(self, index: int) -> Forked:
        argv = ["--job", self.args.job_name, "--index", str(index), "--servers", str(self.args.num_ps_pods)]
        argv += ["--host", "127.0.0.1", "--port", str(self._ports[1 + index])]
        argv += ["--master_addr", f"127.0.0.1:{self._ports[0]}", "--job_args", self.args.to_json()]
        return self._fork("ps", f"ps-{index}", argv)

    def _addresses(self) -> str:
        return ",".join(f"127.0.0.1:{port}" for port in self._ports[1:])

    def _fork(self, kind: str, name: str, argv: list[str]) -> Forked:
        self.started += 1
        return fork(self._farm, kind, self.folder / f"{name}.log", argv, self._points)
