"""What a run of the benchmark does, in which order, and how long that takes.

    tasks = wanted(["kill", "goodput"], ["tidewater", "torchft"], runs=3, have=records.count)
    print(told(tasks))

The systems take turns: in each round every system runs once. What an earlier run has recorded is not wanted again, so
an interrupted run continues where it stopped, and a run can be split by measures, systems and rounds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from benchmarks.elastic import faults, paced, results

FAULTS = {**faults.FAULTS, **{f"{name}-large": fault for name, fault in faults.FAULTS.items()}}
MEASURES = (*FAULTS, "step", "checkpoint", "transfer", "goodput")
ONCE = ("checkpoint", "transfer")
"""Measured in one go, with all systems in turns and many values."""
WITHOUT = {
    "step": ("torchrun", "torchrun tuned", "torchft 1 s"),
    "checkpoint": ("torchrun tuned", "torchft", "torchft 1 s", "tidewater restarted"),
    "transfer": ("torchrun", "torchrun tuned", "torchft", "torchft 1 s", "tidewater restarted"),
}
"""Systems for which a measure would say nothing: torchrun's workers are plain DistributedDataParallel; settings that
matter only after a failure; systems without checkpoints; the transfer is Tidewater's."""

_SECONDS: dict[str, dict[str, float]] = {
    "kill": {"torchft": 15, "torchft 1 s": 12, "torchrun tuned": 24, "torchrun": 75},
    "stop": {"torchft": 16, "torchft 1 s": 16, "torchrun tuned": 160, "torchrun": 200},
    "term": {"torchft": 15, "torchft 1 s": 12, "torchrun tuned": 24, "torchrun": 75},
    "kill-large": {"torchft": 45, "torchft 1 s": 45, "torchrun tuned": 60, "torchrun": 110},
    "stop-large": {"torchft": 45, "torchft 1 s": 45, "torchrun tuned": 190, "torchrun": 230},
    "term-large": {"torchft": 45, "torchft 1 s": 45, "torchrun tuned": 60, "torchrun": 110},
}
_OTHERWISE = {
    **{name: 40.0 if name.endswith("-large") else 9.0 for name in FAULTS},
    "step": 55.0,
    "checkpoint": 900.0,
    "transfer": 30.0,
    "goodput": 60.0,
}
"""Seconds of one run of one system on a quiet machine with 2 cores; goodput's without its trace."""


@dataclass(frozen=True)
class Task:
    """One run of one measure, of one system or of all in turns."""

    measure: str
    systems: tuple[str, ...]
    number: int
    """Of the run, from 0."""
    seconds: float
    """That it probably takes."""


def headline(measure: str) -> str:
    """Return the recorded measure that tells whether a run of `measure` has been made."""
    if measure in FAULTS:
        return results.named(FAULTS[measure].headline, large=measure.endswith("-large"))
    return {
        "step": results.STEPS[list(paced.SIZES)[-1]][1],
        "checkpoint": results.CHECKPOINT,
        "transfer": results.TRANSFER,
        "goodput": results.GOODPUT,
    }[measure]


def wanted(
    measures: Sequence[str],
    systems: Sequence[str],
    *,
    runs: int,
    have: Callable[[str, str], int],
    trace_seconds: float = 0.0,
) -> list[Task]:
    """Return what is missing, in the order in which it is run.

    Args:
        measures: Of MEASURES, in their order.
        systems: By name, in the table's order.
        runs: How many runs of each measure and system there are in the end.
        have: How many runs of a recorded measure and a system there are.
        trace_seconds: Length of goodput's traces.
    """
    found: list[Task] = []
    together = [name for name in measures if name in FAULTS and not name.endswith("-large")]
    large = [name for name in measures if name.endswith("-large")]
    rest = [[name] for name in measures if name not in FAULTS and name not in ONCE]
    for name in (name for name in measures if name in ONCE):
        chosen = [system for system in systems if system not in WITHOUT.get(name, ())]
        if chosen and not have(headline(name), chosen[0]):
            found.append(Task(name, tuple(chosen), 0, _OTHERWISE[name]))
    blocks = [block for block in (together, large, *rest) if block]
    rounds = [
        Task(name, (system,), number, _seconds(name, system) + (trace_seconds if name == "goodput" else 0))
        for block in blocks
        for number in range(runs)
        for system in systems
        for name in block
        if system not in WITHOUT.get(name, ()) and have(headline(name), system) <= number
    ]
    return rounds + found


def told(tasks: Sequence[Task]) -> str:
    """Return a table of the tasks and the time that they need."""
    runs = Counter((task.measure, ", ".join(task.systems)) for task in tasks)
    seconds: Counter[tuple[str, str]] = Counter()
    for task in tasks:
        seconds[task.measure, ", ".join(task.systems)] += round(task.seconds)
    lines = [f"{name:12} {who:32} {runs[name, who]:4} runs {seconds[name, who] / 60:7.1f} min" for name, who in runs]
    return "\n".join([*lines, f"{'in all':45} {len(tasks):4} runs {sum(seconds.values()) / 60:7.1f} min"])


def _seconds(measure: str, system: str) -> float:
    return _SECONDS.get(measure, {}).get(system, _OTHERWISE[measure])
