"""What a divided model costs in a worker of several processes, against plain PyTorch's ``fully_shard``.

Two jobs of one worker make the same steps. They exist at the same time and take turns at their gates, a few steps each,
so that both see the same machine, and then again, started in the other order. Their CPU time is compared, too. Some of
it is for each second, not for each step.

Memory is measured in starts of their own, in which each tensor goes back to the kernel when it is freed: the most
anonymous memory that a process has during some steps. It is the peak RSS without what is mapped from files, mostly
torch's libraries, and so it is what the process needs, without what its heap keeps.
"""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from benchmarks.elastic import results
from benchmarks.elastic.jobs import Job
from benchmarks.elastic.systems import SYSTEMS, Site, System, etcd, torchrun_of_one, trainer_node
from benchmarks.elastic.timeline import step_seconds
from benchmarks.elastic.workers import names
from tests.processes import cpu_seconds

TURNS, STEPS = 6, 4
WAKING_STEPS = 1
"""Steps at the beginning of a turn that are not counted."""
_BATCH = ("--batch-size", str(names.DIVIDED_BATCH), "--micro-batch", str(names.MICRO_BATCH))
_PARTS = ("--shard", str(names.SHARDS))
_KIB = 1024


@dataclass
class Spent:
    """What a job has used in all its turns."""

    seconds: list[float] = field(default_factory=list)
    """Of a step: the median of each turn."""
    cpu_seconds: list[float] = field(default_factory=list)
    """CPU time of all its processes for a step: the mean of each turn."""


def take_turns(jobs: Sequence[Job], say: Callable[[str], None]) -> list[Spent]:
    """Let each parked job make TURNS times STEPS steps, in changing order. Return what each has spent."""
    ends = [max(line.step for line in job.lines) for job in jobs]
    chance, order = random.Random(0), list(range(len(jobs)))
    spent = [Spent() for _ in jobs]
    for turn in range(TURNS):
        chance.shuffle(order)
        for place in order:
            job, pids, begin = jobs[place], jobs[place].pids(), ends[place]
            job.forget()
            before = cpu_seconds(pids)
            ends[place] = job.run_to(begin + STEPS)
            spent[place].cpu_seconds.append((cpu_seconds(pids) - before) / STEPS)
            made = step_seconds(job.lines, node=0, first=begin + 1 + WAKING_STEPS, last=ends[place])
            spent[place].seconds.append(statistics.median(made))
        figures = (
            f"{job.system.name} {each.seconds[-1]:.3f} s ({each.cpu_seconds[-1]:.3f} s of CPU)"
            for job, each in zip(jobs, spent, strict=True)
        )
        say(f"turn {turn + 1} of {TURNS}: {', '.join(figures)}")
    return spent


def ratio(own: Sequence[Sequence[float]], other: Sequence[Sequence[float]]) -> float:
    """Return how many times the other's values one's own are: the median over the turns of each start, and the
    geometric mean of these, in which what the order of a start does to both has no part."""
    starts = zip(own, other, strict=True)
    return statistics.geometric_mean(
        statistics.median(mine / its for mine, its in zip(*start, strict=True)) for start in starts
    )


def memory(job: Job) -> float:
    """Return the memory that a process of a parked job needs for its steps, in bytes: the mean of those that train."""
    reset_peaks(job.pids())
    job.run_to(max(line.step for line in job.lines) + STEPS)
    return statistics.mean(sorted(map(peak, job.pids()))[-names.SHARDS :])  # the others only start these


def reset_peaks(pids: Sequence[int]) -> None:
    """Let the peaks of these processes be what they have now."""
    for pid in pids:
        Path(f"/proc/{pid}/clear_refs").write_text("5")  # proc(5): resets VmHWM


def peak(pid: int) -> int:
    """Return the most anonymous memory that a process has had since its peak was reset, in bytes."""
    found = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    most, *mapped = (int(found[name].split()[0]) for name in ("VmHWM", "RssFile", "RssShmem"))
    return _KIB * (most - sum(mapped))


def _replica(site: Site, port: int, number: int) -> list[str]:
    return torchrun_of_one(site, "divided/with_torchft.py", names.SHARDS)


def _plain(site: Site, port: int, number: int) -> list[str]:
    return torchrun_of_one(site, "divided/with_fsdp.py", names.SHARDS)


def _one_heap(site: Site, port: int, number: int) -> dict[str, str]:
    """Let all threads of a process use its main heap, which keeps its memory; see ``Site.environment``.

    The threads of gloo allocate as much as a layer in each sum. Whether another heap returns that to the kernel each
    time depends on its layout, and makes a step of either system a tenth slower for the lifetime of a process.
    """
    return {"MALLOC_ARENA_MAX": "1"}


def _no_heap(site: Site, port: int, number: int) -> dict[str, str]:
    """Let every tensor of 64 KiB or more have pages of its own, which go back to the kernel when it is freed."""
    return {"MALLOC_MMAP_THRESHOLD_": str(1 << 16), "MALLOC_TRIM_THRESHOLD_": str(1 << 16)}


def _of_torchft(name: str) -> System:
    other = SYSTEMS[name]
    return System(name, _replica, other.service, lambda *where: other.environment(*where) | _one_heap(*where))


OWN = System("tidewater", trainer_node("divided/with_tidewater.py", *_PARTS, *_BATCH), etcd, _one_heap)
PLAIN = System(results.PLAIN_FSDP, _plain, None, _one_heap)
PAIR = (OWN, PLAIN)
PAIR_WITHOUT_HEAP = tuple(replace(system, environment=_no_heap) for system in PAIR)
OF_FAULTS = {"tidewater": OWN, **{name: _of_torchft(name) for name in ("torchft", "torchft 1 s")}}
"""Of jobs that lose a worker, by the name of the system. Each worker divides the model among its processes."""
