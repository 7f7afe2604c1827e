"""Compares Tidewater with torchrun, torchft and plain DDP: the cost of a failure, and of being prepared for one.

    make bench-elastic                                          # everything: three hours and more
    python -m benchmarks.elastic --runs 3 --systems tidewater,torchft --measures kill,term

All systems use the same small network, data, global batch and number of threads (one), with three workers on the
loopback of this machine. Every worker records each committed step with its time, and the results are computed from
these records. A partial run replaces only its own rows in benchmarks/out/elastic.json.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.elastic import faults, goodput, paced, results, trace
from benchmarks.elastic.campaign import Campaign
from benchmarks.elastic.jobs import Job, JobBroken
from benchmarks.elastic.processes import free_port
from benchmarks.elastic.systems import CODE, ROOT, SYSTEMS, Site, System
from benchmarks.elastic.timeline import Pair
from benchmarks.rows import OUT, Row, publish
from scripts import toolchain
from trainer.launch.lifeline import bound_to

NODES = 3
MEASURES = (*faults.FAULTS, "step", "checkpoint", "transfer", "goodput")
NEVER = 10**9
CHECKPOINT_STEPS = 100
STATE_MEGABYTES = 512
TRANSFER_SECONDS = 300.0
MEAN_SECONDS = 60.0
IDLE_SECONDS = 2.0
STEPS_SECONDS = 300.0
CAPS = {fault.headline: fault.cap_seconds for fault in faults.FAULTS.values()}


class Bench:
    """Runs measures and collects their rows."""

    def __init__(self, given: argparse.Namespace, folder: Path) -> None:
        self._given, self._folder = given, folder
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
        self.rows: list[Row] = []

    def say(self, text: str) -> None:
        """Print one line of progress."""
        print(f"[{time.monotonic() - self._begin:6.0f} s] {text}", flush=True)

    def run(self, measures: Sequence[str]) -> None:
        """Run the measures, quick ones first. Measures at which a system fails are omitted."""
        wanted: list[tuple[str, Callable[[], None]]] = []
        if found := [fault for name, fault in faults.FAULTS.items() if name in measures]:
            wanted.append(("faults", lambda: self._faults(found)))
        others = {
            "step": self._step,
            "checkpoint": self._checkpoint,
            "transfer": self._transfer,
            "goodput": self._goodput,
        }
        wanted += [(name, run) for name, run in others.items() if name in measures]
        for name, run in wanted:
            begin = time.monotonic()
            self.say(f"{name}: begins")
            try:
                run()
            except JobBroken as error:
                self.say(f"{name} is left out: {error}")
            self.say(f"{name}: took {(time.monotonic() - begin) / 60:.1f} min")

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

    def _systems(self, *without: str) -> list[System]:
        return [SYSTEMS[name] for name in self._given.systems if name not in without]

    def _faults(self, found: Sequence[faults.Fault]) -> None:
        given = self._given
        campaign = Campaign(self._open, found, runs=given.runs, say=self.say)
        try:
            campaign.run(self._systems())
        finally:
            for (measure, system), values in campaign.values.items():
                self.rows.append(Row.of(measure, system, values, unit=faults.unit(measure)))

    def _step(self) -> None:
        """Compare with plain DDP. torchrun's workers are plain DDP, so torchrun is not included.

        There are as many workers as processors; otherwise the scheduler would decide which worker waits. Each system
        starts several times, because the memory addresses of a process make it a few per cent faster or slower for its
        lifetime.
        """
        chosen = self._systems("torchrun", "torchrun tuned", "torchft 1 s")
        for name, size in paced.SIZES.items():
            starts: dict[str, list[list[Pair]]] = {system.name: [] for system in chosen}
            for start in range(self._given.runs):
                for system in chosen:
                    pairs = self._pairs(system, size)
                    starts[system.name].append(pairs)
                    share = f"{paced.ratio(pairs):.4f} times plain DDP's"
                    self.say(f"start {start + 1} of {self._given.runs}, {name} steps: {system.name}'s take {share}")
            self._compare(starts, *results.STEPS[name])

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

    def _compare(self, starts: dict[str, list[list[Pair]]], seconds: str, ratio: str) -> None:
        plain = [1000 * pair.plain for each in starts.values() for pairs in each for pair in pairs]
        self.rows.append(Row.of(seconds, results.PLAIN_DDP, plain, unit="ms"))
        for name, each in starts.items():
            self.rows.append(Row.of(seconds, name, [1000 * pair.system for pairs in each for pair in pairs], unit="ms"))
            ratios = [paced.ratio(pairs) for pairs in each]
            self.say(f"{name}: {ratio}, standard error {100 * paced.spread(ratios):.2f} %")
            self.rows.append(Row.of(ratio, name, ratios, unit="ratio"))

    def _checkpoint(self) -> None:
        """Measure one checkpoint per turn, in its middle, and compare with the steps before and after it."""
        middle = CHECKPOINT_STEPS // 2
        chosen = self._systems("torchrun tuned", "torchft", "torchft 1 s")
        with self._opened(chosen) as jobs:
            for job in jobs:
                job.start()
                job.steady(world=job.site.nodes)
                job.park()
            spent = paced.take_turns(jobs, self._given.turns, steps=CHECKPOINT_STEPS, offset=middle, say=self.say)
        for name, turns in zip([system.name for system in chosen], spent, strict=True):
            shares = paced.shares_lost(turns, at=middle - paced.WAKING_STEPS - 1)
            self.say(f"{name}: {results.CHECKPOINT}, standard error {paced.spread(shares):.2f} %")
            self.rows.append(Row.of(results.CHECKPOINT, name, shares, unit="%"))

    def _transfer(self) -> None:
        """Measure the transfer of a large state, which bounds the wait of a newcomer."""
        site = self._site
        command = [str(site.python), site.script("transfer.py"), str(STATE_MEGABYTES), str(self._given.runs)]
        environment = {**os.environ, **site.environment(node=0)}
        done = subprocess.run(
            command,
            env=environment,
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
            self.rows.append(Row.of(results.TRANSFER, system, spent[ways], unit="s"))

    def _goodput(self) -> None:
        seconds = self._given.trace_seconds
        kills = trace.poisson(seed=self._given.seed, mean_seconds=MEAN_SECONDS, seconds=seconds, nodes=NODES)
        self.say(f"goodput: {len(kills)} kills in {seconds:.0f} s: " + ", ".join(f"{kill.at:.0f}" for kill in kills))
        for system in self._systems():
            try:
                with self._open(system, device_seconds=self._given.device_ms / 1000) as job:
                    job.start()
                    share = goodput.run(job, kills, seconds, self.say)
            except JobBroken as error:
                self.say(f"goodput of {system.name} is left out: {error}")
                continue
            self.say(f"{system.name}: goodput {share:.1f} %")
            self.rows.append(Row.of(results.GOODPUT, system.name, [share], unit="%"))


def prepare(file: Path) -> Path:
    """Return the digits as one file that every worker of every system reads."""
    import numpy as np
    from sklearn.datasets import load_digits

    digits = load_digits()
    images = (digits.images[:, None] / 8 - 1).astype(np.float32)
    np.savez(file, images=images, labels=digits.target.astype(np.int64))
    return file


def choices(text: str, known: Sequence[str]) -> list[str]:
    """Return a comma-separated choice of `known`, in their order."""
    names = [name.strip() for name in text.split(",")]
    if wrong := [name for name in names if name not in known]:
        raise argparse.ArgumentTypeError(f"{', '.join(wrong)}: choose among {', '.join(known)}")
    return [name for name in known if name in names]


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """Return the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.elastic",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--runs", type=int, default=10, help="of each fault for each system, and starts of step (default %(default)s)"
    )
    parser.add_argument("--turns", type=int, default=40, help="of each job in checkpoint (default %(default)s)")
    parser.add_argument(
        "--systems",
        type=lambda text: choices(text, tuple(SYSTEMS)),
        default=list(SYSTEMS),
        help=f"comma-separated, of: {', '.join(SYSTEMS)} (default: all)",
    )
    parser.add_argument(
        "--measures",
        type=lambda text: choices(text, MEASURES),
        default=list(MEASURES),
        help=f"comma-separated, of: {', '.join(MEASURES)}; joins are measured after each fault (default: all)",
    )
    parser.add_argument("--trace-seconds", type=float, default=600.0, help="of goodput (default %(default)s)")
    parser.add_argument(
        "--device-ms",
        type=float,
        default=50.0,
        help="goodput: how long each step waits as if for an accelerator, so that the start of the returning worker "
        "finds a processor that is free, as it would on a machine of its own (default %(default)s)",
    )
    parser.add_argument("--seed", type=int, default=2, help="of the trace; 2 gives ten kills (default %(default)s)")
    return parser.parse_args(argv)


def main(argv: Sequence[str]) -> int:
    """Run the chosen measures and publish the rows, also those of an interrupted run."""
    given = parse(argv)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with tempfile.TemporaryDirectory(prefix="bench-elastic-") as folder:
        bench = Bench(given, Path(folder))
        try:
            bench.run(given.measures)
        finally:
            rows = results.merge(results.read(OUT / "elastic.json"), bench.rows, [*SYSTEMS, results.PLAIN_DDP])
            publish("elastic", rows)
            for note in results.notes(rows, CAPS):
                print(f"note: {note}")
            bench.say("done")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
