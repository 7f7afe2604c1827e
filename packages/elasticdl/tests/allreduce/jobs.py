"""Jobs of AllreduceStrategy in real processes."""

from __future__ import annotations

import ast
import re
import signal
import time
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

from elasticdl.job import JobArgs, Strategy

from packages.elasticdl.tests.processes.jobs import job_args
from tests.farm import Farm
from tests.programs import Forked

KILLED = -signal.SIGKILL


def digits(records: Path, output: Path, **changes: Any) -> JobArgs:
    """Return a job that trains on the digits."""
    together = {"distribution_strategy": Strategy.ALLREDUCE, "num_ps_pods": 0, "num_workers": 2}
    fields = {"minibatch_size": 32, "num_epochs": 5, "log_loss_steps": 10, "output": str(output)}
    return job_args(records, **{**together, **fields, **changes})


class Job:
    """The workers of a job. It is a context manager; they end with it."""

    def __init__(self, farm: Farm, folder: Path, etcd: str, args: JobArgs) -> None:
        # The name is unique even if the test runs twice with the same etcd.
        self.args = replace(args, job_name=f"{args.job_name}-{time.monotonic_ns():x}")
        self._farm, self._folder, self._etcd = farm, folder, etcd
        folder.mkdir(parents=True, exist_ok=True)
        self.workers: list[Forked] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for worker in self.workers:
            if worker.poll() is None:
                worker.signal(signal.SIGKILL)
                worker.wait()

    def start(self, *more: str) -> Forked:
        """Start a worker; `more` are flags of the trainer."""
        name = f"w{len(self.workers)}"
        own = ["--job", self.args.job_name, "--name", name, "--etcd", self._etcd, "--job_args", self.args.to_json()]
        fast = ["--worker", name, "--host", "127.0.0.1", "--lease-seconds", "3", *more]
        words = ["-m", "elasticdl.allreduce", *own, *fast]
        worker = Forked(self._farm, name, words, self._folder / f"{name}.log")
        self.workers.append(worker)
        worker.others = self.workers
        return worker

    def metrics(self) -> list[tuple[int, dict[str, float]]]:
        """Return steps and values of all lines with metrics."""
        found = [re.findall(r"Evaluation metrics\[step=(\d+)\]: (\{.*\})", each.text()) for each in self.workers]
        return [(int(step), ast.literal_eval(values)) for each in found for step, values in each]

    def samples(self) -> dict[int, set[int]]:
        """Return the samples of each step, of all workers that have reported it; fail if two had the same one."""
        found: dict[int, set[int]] = {}
        for worker in self.workers:
            for step, text in re.findall(r"Samples of step (\d+): ([\d,]*)", worker.text()):
                mine = {int(sample) for sample in text.split(",") if sample}
                assert not found.setdefault(int(step), set()) & mine, f"step {step} of {worker.name}"
                found[int(step)] |= mine
        return found
