"""Makes the turns: starts the jobs and measures."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import shutil
import statistics
import subprocess
import time
from argparse import Namespace
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.elastic import divided, faults, goodput, loops, paced, plan, results
from benchmarks.elastic.faults import Capped, Cycle, Fault
from benchmarks.elastic.jobs import Job
from benchmarks.elastic.systems import CODE, ROOT, SYSTEMS, Site, System
from benchmarks.elastic.timeline import Pair
from benchmarks.elastic.workers import names
from benchmarks.harness.command import Say, TurnFailed
from benchmarks.harness.plan import Turn
from benchmarks.harness.records import Found
from scripts import toolchain
from tests.elastic.workers import free_port
from tidewater.elastic.launch.lifeline import bound_to

NODES = 3
NEVER = 10**9
CHECKPOINT_STEPS = 100
LARGE_STEADY_STEPS = 5
DIVIDED: dict[str, Any] = {"steady_steps": 3, "gate_steps": 3}
"""Steps of the divided model take about a second."""
STATE_MEGABYTES, MEBIBYTE = 512, 1 << 20
TRANSFER_SECONDS = 300.0
TRANSFERS = 10
IDLE_SECONDS = 2.0
STEPS_SECONDS = 300.0
FAILURES = 3
"""Number of times that a system's job may break at one fault before the fault is skipped."""


class Bench:
    """Makes the turns of all measures. Its jobs of faults go on between turns."""

    def __init__(self, given: Namespace, folder: Path, say: Say) -> None:
        self._given, self._folder, self._say = given, folder, say
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
        parts = {"nodes": results.WORKERS[names.DIVIDED], **DIVIDED}
        self._campaigns = {
            # The large models' jobs of all systems together need more memory than a small machine has.
            names.SMALL: Campaign(self._open, say=say, keep=True),
            names.LARGE: Campaign(lambda system: self._open(system, **large), say=say, keep=False),
            names.DIVIDED: Campaign(
                lambda system: self._open(divided.OF_FAULTS[system.name], **parts), say=say, keep=False
            ),
        }

    def make(self, turn: Turn) -> Iterator[Found]:
        """Make a turn; yield what it gives as soon as it is known.

        Raises:
            TurnFailed: A job failed or took too long.
        """
        measure, systems = turn.series.label, [SYSTEMS[name] for name in turn.series.systems]
        if measure in plan.FAULTS:
            model = plan.model_of(measure)
            values = self._campaigns[model].run(systems[0], plan.FAULTS[measure], turn.number)
            for name, value in values.items():
                yield Found(results.named(name, model), systems[0].name, (value,), faults.unit(name))
            return
        self.end_campaigns()
        made: dict[str, Callable[[], Iterator[Found]]] = {
            "step": lambda: self._step(systems[0]),
            **{name: partial(self._loops, name, turn.number) for name in loops.LOOPS},
            "divided": self._divided,
            "divided-memory": lambda: self._divided_memory(turn.number),
            "checkpoint": lambda: self._checkpoint(systems, turn.number),
            "transfer": self._transfer,
            "goodput": lambda: self._goodput(systems[0], turn.number),
        }
        yield from made[measure]()

    def end_campaigns(self) -> None:
        """End the jobs of faults. Safe to call again."""
        for campaign in self._campaigns.values():
            campaign.end()

    def _open(self, system: System, **more: Any) -> Job:
        self._jobs += 1
        folder = self._folder / f"{self._jobs}-{system.name.replace(' ', '-')}"
        folder.mkdir()
        self._say(f"{system.name}: starts")
        return Job(system, replace(self._site, folder=folder, **more))

    @contextlib.contextmanager
    def _parked(self, systems: Sequence[System], number: int, **more: Any) -> Iterator[list[Job]]:
        """Provide a job of each system at its gate, to run in turns. All have ended afterwards.

        Every second number starts them in the reverse order: of two equal jobs with a divided model the one that starts
        first is 4 to 9 % slower for its lifetime.
        """
        with contextlib.ExitStack() as stack:
            jobs = [stack.enter_context(self._open(system, **more)) for system in systems]
            for job in reversed(jobs) if number % 2 else jobs:
                job.start()
                job.steady(world=job.site.nodes)
                job.park()
            yield jobs

    def _step(self, system: System) -> Iterator[Found]:
        """Compare with plain DDP, in one start for each size.

        There are as many workers as processors; otherwise the scheduler would decide which worker waits. Each system
        starts several times, because the memory addresses of a process make it a few per cent faster or slower for its
        lifetime.
        """
        for name, size in paced.SIZES.items():
            pairs = self._pairs(system, size)
            share = paced.ratio(pairs)
            self._say(f"{system.name}'s {name} steps take {share:.4f} times plain DDP's")
            seconds, ratio = results.STEPS[name]
            for who, each in (
                (system.name, [pair.system for pair in pairs]),
                (results.PLAIN_DDP, [pair.plain for pair in pairs]),
            ):
                yield Found(seconds, who, (1000 * statistics.median(each),), "ms")
            yield Found(ratio, system.name, (share,), "ratio")

    def _pairs(self, system: System, size: paced.Size) -> list[Pair]:
        nodes = min(NODES, len(os.sched_getaffinity(0)))
        more = {"checkpoint_every": NEVER, "nodes": nodes, "width": size.width, "plain_port": free_port()}
        with self._open(system, **more) as job:
            job.start()
            job.steady(world=nodes)
            last = job.lines[-1].step + paced.WARM_STEPS + size.steps
            job.wait(lambda lines: lines[-1].step > last or None, STEPS_SECONDS, f"step {last}")
            job.park()
            share = paced.idle_share(job, IDLE_SECONDS, time.sleep)
            self._say(f"{system.name}: held at its gate it takes {100 * share:.1f} % of a core")
            return job.pairs()[paced.WARM_STEPS :][: size.steps]

    def _loops(self, name: str, number: int) -> Iterator[Found]:
        """Compare two ways to write the same loop, in one start of both."""
        compared = loops.LOOPS[name]
        nodes = min(compared.nodes, len(os.sched_getaffinity(0)))
        more = {"python": compared.python} if compared.python else {}
        both = [compared.own, compared.other]
        with self._parked(both, number, checkpoint_every=NEVER, nodes=nodes, **more) as jobs:
            spent = paced.take_turns(jobs, loops.TURNS, steps=loops.STEPS, offset=0, say=self._say)
        seconds, ratio = results.LOOPS[name]
        for system, turns in zip(both, spent, strict=True):
            yield Found(seconds, system.name, (1000 * statistics.median(itertools.chain(*turns)),), "ms")
        yield Found(ratio, compared.own.name, (loops.ratio(*spent),), "ratio")

    def _divided(self) -> Iterator[Found]:
        """Compare a worker that divides its model with plain PyTorch, in a start of both in each order."""
        starts = []
        for number in range(2):
            with self._parked(divided.PAIR, number, checkpoint_every=NEVER, nodes=1, **DIVIDED) as jobs:
                starts.append(divided.take_turns(jobs, self._say))
        own, plain = zip(*starts, strict=True)
        yield from self._pair(results.DIVIDED_CPU, [one.cpu_seconds for one in own], [one.cpu_seconds for one in plain])
        yield from self._pair(results.DIVIDED, [one.seconds for one in own], [one.seconds for one in plain])

    def _divided_memory(self, number: int) -> Iterator[Found]:
        """Do the same for the memory of a process, in one start of both."""
        pair = divided.PAIR_WITHOUT_HEAP
        with self._parked(pair, number, checkpoint_every=NEVER, nodes=1, **DIVIDED) as jobs:
            own, plain = ([[divided.memory(job)]] for job in jobs)
        yield from self._pair(results.DIVIDED_MEMORY, own, plain, unit="MiB", scale=1 / MEBIBYTE)

    def _pair(
        self,
        measures: tuple[str, str],
        own: Sequence[Sequence[float]],
        plain: Sequence[Sequence[float]],
        unit: str = "ms",
        scale: float = 1000.0,
    ) -> Iterator[Found]:
        for system, values in zip(divided.PAIR, (own, plain), strict=True):
            yield Found(measures[0], system.name, (scale * statistics.median(itertools.chain(*values)),), unit)
        yield Found(measures[1], divided.OWN.name, (divided.ratio(own, plain),), "ratio")

    def _checkpoint(self, systems: Sequence[System], number: int) -> Iterator[Found]:
        """Measure one checkpoint per turn, in its middle, and compare with the steps before and after it."""
        middle = CHECKPOINT_STEPS // 2
        with self._parked(systems, number) as jobs:
            spent = paced.take_turns(jobs, self._given.turns, steps=CHECKPOINT_STEPS, offset=middle, say=self._say)
        for system, turns in zip(systems, spent, strict=True):
            shares = paced.shares_lost(turns, at=middle - paced.WAKING_STEPS - 1)
            self._say(f"{system.name}: {results.CHECKPOINT}, standard error {paced.spread(shares):.2f} %")
            yield Found(results.CHECKPOINT, system.name, tuple(shares), "%")

    def _transfer(self) -> Iterator[Found]:
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
            raise TurnFailed(f"the transfer ended with {done.returncode}:\n{done.stderr}")
        spent = json.loads(done.stdout)
        for system, way in (("tidewater", "peer"), (results.PLAIN_BROADCAST, "plain")):
            yield Found(results.TRANSFER, system, tuple(spent[way]), "s")
        yield Found(results.TRANSFER_MEMORY, "tidewater", tuple(spent["memory"]), "ratio")

    def _goodput(self, system: System, number: int) -> Iterator[Found]:
        given = self._given
        kills = goodput.scattered(
            seed=f"{given.seed}/{number}", count=given.kills, seconds=given.trace_seconds, nodes=NODES
        )
        self._say(f"{system.name}: kills at " + ", ".join(f"{kill.at:.0f}" for kill in kills))
        with self._open(system, device_seconds=given.device_ms / 1000, width=goodput.WIDTH) as job:
            job.start()
            shares = goodput.run(job, kills, given.trace_seconds, self._say)
        yield Found(results.UNDISTURBED, system.name, (shares.undisturbed,), "%")
        yield Found(results.GOODPUT, system.name, (shares.present,), "%")


def prepare(file: Path) -> Path:
    """Return the digits as one file that every worker of every system reads."""
    import numpy as np
    from sklearn.datasets import load_digits

    digits = load_digits()
    images = (digits.images[:, None] / 8 - 1).astype(np.float32)
    np.savez(file, images=images, labels=digits.target.astype(np.int64))
    return file


class Campaign:
    """Runs faults of one system after another. The jobs are kept in between, stopped at their gates.

    One job runs at a time. If a job breaks, it is restarted and the run is repeated. If the survivors don't continue
    within the fault's cap, the cap counts as the time of the run, and the job is restarted too.
    """

    def __init__(self, open_job: Callable[[System], Job], *, say: Say, keep: bool) -> None:
        """Args:
        open_job: Makes a job, not started.
        say: Called with the progress.
        keep: Keep the jobs of all systems until `end`. Otherwise a job ends when it is another system's turn.
        """
        self._open_job, self._say, self._keep = open_job, say, keep
        self._jobs: dict[str, Job] = {}
        self._broken: dict[tuple[str, str], int] = defaultdict(int)

    def run(self, system: System, fault: Fault, number: int) -> dict[str, float]:
        """Make run `number`, which determines the worker that is hit. Return the values by measure.

        Raises:
            TurnFailed: The system's job has broken too often at this fault.
        """
        for name in [name for name in self._jobs if name != system.name and not self._keep]:
            self._end(name)
        while self._broken[system.name, fault.name] < FAILURES:
            try:
                job = self._ready(system)
                values = Cycle(job, fault).run(victim=number % job.site.nodes)
                job.park()
                return values
            except Capped:
                self._end(system.name)
                return {fault.headline: fault.cap_seconds}
            except TurnFailed as error:
                self._broken[system.name, fault.name] += 1
                self._say(f"{error}\nthis run is repeated with a new job")
                self._end(system.name)
        raise TurnFailed(f"{system.name}: its job has broken {FAILURES} times at {fault.name}")

    def end(self) -> None:
        """End every process. Safe to call again."""
        for name in list(self._jobs):
            self._end(name)

    def _ready(self, system: System) -> Job:
        if system.name not in self._jobs:
            self._jobs[system.name] = job = self._open_job(system)
            job.start()
            job.steady(world=job.site.nodes)
        return self._jobs[system.name]

    def _end(self, name: str) -> None:
        if job := self._jobs.pop(name, None):
            job.end()
