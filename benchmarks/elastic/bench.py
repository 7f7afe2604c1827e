"""Carries out the tasks of a run: starts the jobs, measures, and records every result at once."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import statistics
import subprocess
import time
from argparse import Namespace
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.elastic import faults, goodput, paced, plan, results, trace
from benchmarks.elastic.campaign import Campaign
from benchmarks.elastic.jobs import Job, JobBroken
from benchmarks.elastic.processes import free_port
from benchmarks.elastic.systems import CODE, ROOT, SYSTEMS, Site, System
from benchmarks.elastic.timeline import Pair
from benchmarks.elastic.workers import names
from benchmarks.records import Records
from scripts import toolchain
from tidewater.elastic.launch.lifeline import bound_to

NODES = 3
NEVER = 10**9
CHECKPOINT_STEPS = 100
LARGE_STEADY_STEPS = 5
STATE_MEGABYTES = 512
TRANSFER_SECONDS = 300.0
TRANSFERS = 10
IDLE_SECONDS = 2.0
STEPS_SECONDS = 300.0


class Bench:
    """Runs tasks and records their results."""

    def __init__(self, given: Namespace, folder: Path, records: Records) -> None:
        self._given, self._folder, self._records = given, folder, records
        self._begin = time.monotonic()
        self._jobs = 0
        for name in CODE:
            shutil.copytree(ROOT / name, folder / "code" / name, ignore=shutil.ignore_patterns("out", "__pycache__"))
        self._site = Site(
            python=toolchain.bench_python(),
            etcd=toolchain.binary("etcd"),
            data=prepare(folder / "digits.npz"),
            code=folder / "code",
            folder=folder,
            nodes=NODES,
            checkpoint_every=CHECKPOINT_STEPS,
        )
        large = {"model": names.LARGE, "steady_steps": LARGE_STEADY_STEPS}
        self._campaigns = {
            # The large model's jobs of all systems together need more memory than a small machine has.
            False: Campaign(self._open, found=self._found(large=False), say=self.say, keep=True),
            True: Campaign(
                lambda system: self._open(system, **large), found=self._found(large=True), say=self.say, keep=False
            ),
        }

    def say(self, text: str) -> None:
        """Print one line of progress."""
        print(f"[{time.monotonic() - self._begin:6.0f} s] {text}", flush=True)

    def run(self, tasks: Sequence[plan.Task]) -> None:
        """Carry the tasks out. Those at which a system fails are left out, with a message."""
        expected = spent = 0.0
        total = sum(task.seconds for task in tasks)
        try:
            for number, task in enumerate(tasks):
                pace = spent / expected if expected else 1.0
                left = pace * (total - expected) / 60
                self.say(
                    f"{number + 1} of {len(tasks)}: {task.measure}, {', '.join(task.systems)}; {left:.0f} min left"
                )
                begin = time.monotonic()
                if task.measure not in plan.FAULTS:
                    self._end_campaigns()
                try:
                    self._one(task)
                except JobBroken as error:
                    self.say(f"{task.measure} is left out: {error}")
                expected, spent = expected + task.seconds, spent + time.monotonic() - begin
        finally:
            self._end_campaigns()

    def _one(self, task: plan.Task) -> None:
        systems = [SYSTEMS[name] for name in task.systems]
        if task.measure in plan.FAULTS:
            campaign = self._campaigns[task.measure.endswith("-large")]
            campaign.run(systems[0], plan.FAULTS[task.measure], task.number)
            return
        run: dict[str, Callable[[], None]] = {
            "step": lambda: self._step(systems[0]),
            "checkpoint": lambda: self._checkpoint(systems),
            "transfer": self._transfer,
            "goodput": lambda: self._goodput(systems[0], task.number),
        }
        run[task.measure]()

    def _end_campaigns(self) -> None:
        for campaign in self._campaigns.values():
            campaign.end()

    def _found(self, *, large: bool) -> Callable[[str, str, float], None]:
        def record(measure: str, system: str, value: float) -> None:
            self._records.add(results.named(measure, large=large), system, [value], unit=faults.unit(measure))

        return record

    def _open(self, system: System, **more: Any) -> Job:
        self._jobs += 1
        folder = self._folder / f"{self._jobs}-{system.name.replace(' ', '-')}"
        folder.mkdir()
        self.say(f"{system.name}: starts")
        return Job(system, replace(self._site, folder=folder, **more))

    @contextlib.contextmanager
    def _opened(self, systems: Sequence[System], **more: Any) -> Iterator[list[Job]]:
        """Provide one job of each system, to run in turns. All have ended afterwards."""
        with contextlib.ExitStack() as stack:
            yield [stack.enter_context(self._open(system, **more)) for system in systems]

    def _step(self, system: System) -> None:
        """Compare with plain DDP, in one start for each size.

        There are as many workers as processors; otherwise the scheduler would decide which worker waits. Each system
        starts several times, because the memory addresses of a process make it a few per cent faster or slower for its
        lifetime.
        """
        for name, size in paced.SIZES.items():
            pairs = self._pairs(system, size)
            share = paced.ratio(pairs)
            self.say(f"{system.name}'s {name} steps take {share:.4f} times plain DDP's")
            seconds, ratio = results.STEPS[name]
            for who, each in (
                (system.name, [pair.system for pair in pairs]),
                (results.PLAIN_DDP, [pair.plain for pair in pairs]),
            ):
                self._records.add(seconds, who, [1000 * statistics.median(each)], unit="ms")
            self._records.add(ratio, system.name, [share], unit="ratio")

    def _pairs(self, system: System, size: paced.Size) -> list[Pair]:
        nodes = min(NODES, len(os.sched_getaffinity(0)))
        more = {"checkpoint_every": NEVER, "nodes": nodes, "width": size.width, "beside": free_port()}
        with self._open(system, **more) as job:
            job.start()
            job.steady(world=nodes)
            last = job.lines[-1].step + paced.WARM_STEPS + size.steps
            job.wait(lambda lines: lines[-1].step > last or None, STEPS_SECONDS, f"step {last}")
            job.park()
            share = paced.idle_share(job, IDLE_SECONDS, time.sleep)
            self.say(f"{system.name}: held at its gate it takes {100 * share:.1f} % of a core")
            return job.pairs()[paced.WARM_STEPS :][: size.steps]

    def _checkpoint(self, systems: Sequence[System]) -> None:
        """Measure one checkpoint per turn, in its middle, and compare with the steps before and after it."""
        middle = CHECKPOINT_STEPS // 2
        with self._opened(systems) as jobs:
            for job in jobs:
                job.start()
                job.steady(world=job.site.nodes)
                job.park()
            spent = paced.take_turns(jobs, self._given.turns, steps=CHECKPOINT_STEPS, offset=middle, say=self.say)
        for system, turns in zip(systems, spent, strict=True):
            shares = paced.shares_lost(turns, at=middle - paced.WAKING_STEPS - 1)
            self.say(f"{system.name}: {results.CHECKPOINT}, standard error {paced.spread(shares):.2f} %")
            self._records.add(results.CHECKPOINT, system.name, shares, unit="%")

    def _transfer(self) -> None:
        """Measure the transfer of a large state, which bounds the wait of a newcomer."""
        site = self._site
        command = [str(site.python), site.script("transfer.py"), str(STATE_MEGABYTES), str(TRANSFERS)]
        done = subprocess.run(
            command,
            env={**os.environ, **site.environment(node=0)},
            capture_output=True,
            text=True,
            timeout=TRANSFER_SECONDS,
            check=False,
            preexec_fn=bound_to(os.getpid()),
        )
        if done.returncode:
            raise JobBroken(f"the transfer ended with {done.returncode}:\n{done.stderr}")
        spent = json.loads(done.stdout)
        for system, ways in (("tidewater", "peer"), (results.PLAIN_SOCKET, "plain")):
            self._records.add(results.TRANSFER, system, spent[ways], unit="s")

    def _goodput(self, system: System, number: int) -> None:
        given = self._given
        kills = trace.scattered(
            seed=f"{given.seed}/{number}", count=given.kills, seconds=given.trace_seconds, nodes=NODES
        )
        self.say(f"{system.name}: kills at " + ", ".join(f"{kill.at:.0f}" for kill in kills))
        with self._open(system, device_seconds=given.device_ms / 1000, width=goodput.WIDTH) as job:
            job.start()
            shares = goodput.run(job, kills, given.trace_seconds, self.say)
        self.say(f"{system.name}: {shares.present:.1f} % of the present workers', {shares.undisturbed:.1f} % of all")
        self._records.add(results.UNDISTURBED, system.name, [shares.undisturbed], unit="%")
        self._records.add(results.GOODPUT, system.name, [shares.present], unit="%")


def prepare(file: Path) -> Path:
    """Return the digits as one file that every worker of every system reads."""
    import numpy as np
    from sklearn.datasets import load_digits

    digits = load_digits()
    images = (digits.images[:, None] / 8 - 1).astype(np.float32)
    np.savez(file, images=images, labels=digits.target.astype(np.int64))
    return file
