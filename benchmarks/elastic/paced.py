"""Measures step times and checkpoints. Compared jobs run in turns, so that they see the same machine.

The time of a step is compared with plain training's within the same processes, step by step (see
`workers/plain_steps.py`). Checkpoints are measured in jobs that exist at the same time and run some steps in turns.
"""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from benchmarks.elastic.jobs import Job
from benchmarks.elastic.timeline import Pair, step_seconds
from tests.processes import cpu_seconds


@dataclass(frozen=True)
class Size:
    """How much a step computes, and how many of them are measured in each start of a system."""

    width: int
    steps: int


SIZES = {"short": Size(width=32, steps=300), "long": Size(width=96, steps=80)}
"""What a system adds to a step hardly depends on its length, so both are measured."""
WARM_STEPS = 20
"""Steps, in turns with plain ones, that are not counted."""
WAKING_STEPS = 5
"""Steps at the beginning of a turn that are not counted: the workers leave the gate one after another."""
WRITING_STEPS = 12
"""From the end of a step that sets off a checkpoint; the writing of the benchmark's small state takes less than one."""


def take_turns(
    jobs: Sequence[Job], turns: int, *, steps: int, offset: int, say: Callable[[str], None]
) -> list[list[list[float]]]:
    """Let each job make `steps` steps at a time, in changing order.

    Args:
        jobs: Running and steady.
        turns: How many times each gets its turn.
        steps: Of one turn.
        offset: Turns begin at multiples of `steps` plus this.
        say: Called with the progress.

    Returns:
        For each job, for each of its turns, how long the steps took but for the first WAKING_STEPS.
    """
    ends = [_aligned(job.park(), steps, offset) for job in jobs]
    for job, end in zip(jobs, ends, strict=True):
        job.run_to(end)
    order, chance = list(range(len(jobs))), random.Random(0)
    spent: list[list[list[float]]] = [[] for _ in jobs]
    for turn in range(turns):
        chance.shuffle(order)
        for place in order:
            job, begin = jobs[place], ends[place]
            job.forget()
            ends[place] = job.run_to(begin + steps)
            spent[place].append(step_seconds(job.lines, node=0, first=begin + 1 + WAKING_STEPS, last=ends[place]))
        if turn % 10 == 9 or turn == turns - 1:
            medians = [1000 * statistics.median(turned[-1]) for turned in spent]
            names = [job.system.name for job in jobs]
            figures = ", ".join(f"{name} {ms:.2f} ms" for name, ms in zip(names, medians, strict=True))
            say(f"turn {turn + 1} of {turns}: {figures}")
    return spent


def ratio(pairs: Sequence[Pair]) -> float:
    """Return how many times as long as plain training's steps the system's take, by the median of the pairs."""
    return statistics.median(pair.system / pair.plain for pair in pairs)


def shares_lost(turns: Sequence[Sequence[float]], at: int) -> list[float]:
    """Return the extra time of the steps around a checkpoint, as a percentage of each turn's time.

    The extra time is the time of WRITING_STEPS steps from `at` on, less the mean time of as many other steps of the
    turn. The step `at` sets off the checkpoint at its end, and the checkpoint is written long before the last of these
    steps. So the extra time contains pauses and the competition for the processors, and the comparison is with the same
    workers within the same seconds.
    """
    lost = []
    for turn in turns:
        around, others = turn[at : at + WRITING_STEPS], [*turn[:at], *turn[at + WRITING_STEPS :]]
        lost.append(100 * (sum(around) - len(around) * statistics.mean(others)) / sum(turn))
    return lost


def spread(values: Sequence[float]) -> float:
    """Return the standard error of the median, from the median absolute deviation (exact for a normal distribution)."""
    middle = statistics.median(values)
    deviation = 1.4826 * statistics.median(abs(value - middle) for value in values)
    return float(1.2533 * deviation / len(values) ** 0.5)


def idle_share(job: Job, seconds: float, sleep: Callable[[float], None]) -> float:
    """Return the CPU time that a parked job uses, as a share of one core."""
    pids = job.pids()
    before = cpu_seconds(pids)
    sleep(seconds)
    return (cpu_seconds(pids) - before) / seconds


def _aligned(step: int, steps: int, offset: int) -> int:
    """Return the next step after `step` that is `offset` more than a multiple of `steps`."""
    return step + 1 + (offset - step - 1) % steps
