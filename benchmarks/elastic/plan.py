"""The measures of each system, how often they are made, and how long one turn takes."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.elastic import faults, paced, results
from benchmarks.elastic.workers import names
from benchmarks.harness.plan import Series

FAULTS = {
    name if model == names.SMALL else f"{name}-{model}": fault
    for model, each in results.FAULTS.items()
    for name, fault in faults.FAULTS.items()
    if fault in each
}
MEASURES = (*FAULTS, "step", *results.LOOPS, "divided", "divided-memory", "goodput", "checkpoint", "transfer")
ONCE = ("checkpoint", "transfer")
"""Measured in one go, with all systems in turns and many values."""
WITHOUT = {
    "step": ("torchrun", "torchrun tuned", "torchft 1 s"),
    "checkpoint": ("torchrun tuned", "torchft", "torchft 1 s", "tidewater restarted"),
    "kill-divided": ("torchrun", "torchrun tuned", "tidewater restarted"),
    **dict.fromkeys(
        ("transfer", "divided", "divided-memory", *results.LOOPS),
        ("torchrun", "torchrun tuned", "torchft", "torchft 1 s", "tidewater restarted"),
    ),
}
"""Systems for which a measure would say nothing: torchrun's workers are plain DistributedDataParallel; settings that
matter only after a failure; systems without checkpoints; systems without a script for a divided model; the transfer,
the loops and the pairs of a divided model are Tidewater's."""

_SECONDS: dict[str, dict[str, float]] = {
    "kill": {"torchft": 15, "torchft 1 s": 12, "torchrun tuned": 24, "torchrun": 75},
    "stop": {"torchft": 16, "torchft 1 s": 16, "torchrun tuned": 160, "torchrun": 200},
    "term": {"torchft": 15, "torchft 1 s": 12, "torchrun tuned": 24, "torchrun": 75},
    "kill-large": {"torchft": 45, "torchft 1 s": 45, "torchrun tuned": 60, "torchrun": 110},
    "stop-large": {"torchft": 45, "torchft 1 s": 45, "torchrun tuned": 190, "torchrun": 230},
    "kill-divided": {"torchft": 75, "torchft 1 s": 70},
    "term-large": {"torchft": 45, "torchft 1 s": 45, "torchrun tuned": 60, "torchrun": 110},
}
_OTHERWISE = {
    **{name: 9.0 if name in faults.FAULTS else 40.0 for name in FAULTS},
    "step": 55.0,
    "own-loop": 60.0,
    "trainer": 60.0,
    "divided": 165.0,
    "divided-memory": 75.0,
    "checkpoint": 900.0,
    "transfer": 30.0,
    "goodput": 60.0,
}
"""Seconds of one run of one system on a quiet machine with 2 cores; goodput's without its trace."""


def model_of(measure: str) -> str:
    """Return the model of a measure of a fault."""
    return measure.partition("-")[2] or names.SMALL


def headline(measure: str) -> str:
    """Return the recorded measure that tells whether a run of `measure` has been made."""
    if measure in FAULTS:
        return results.named(FAULTS[measure].headline, model_of(measure))
    return {
        "step": results.STEPS[list(paced.SIZES)[-1]][1],
        **{name: ratio for name, (_, ratio) in results.LOOPS.items()},
        "divided": results.DIVIDED[1],
        "divided-memory": results.DIVIDED_MEMORY[1],
        "checkpoint": results.CHECKPOINT,
        "transfer": results.TRANSFER,
        "goodput": results.GOODPUT,
    }[measure]


def blocks(
    measures: Sequence[str], systems: Sequence[str], runs: int, trace_seconds: float = 0.0
) -> list[list[Series]]:
    """Return the series to measure. Faults of one model take turns, since their jobs are kept in between."""

    def series(measure: str, chosen: Sequence[str], runs: int) -> Series:
        seconds = _SECONDS.get(measure, {}).get(chosen[0], _OTHERWISE[measure])
        more = trace_seconds if measure == "goodput" else 0.0
        return Series(measure, tuple(chosen), headline(measure), runs, seconds + more)

    def with_sense(measure: str) -> list[str]:
        return [system for system in systems if system not in WITHOUT.get(measure, ())]

    of_faults = [[name for name in measures if name in FAULTS and model_of(name) == model] for model in results.FAULTS]
    others = [[name] for name in measures if name not in FAULTS and name not in ONCE]
    rounds = [
        [series(name, [system], runs) for system in systems for name in block if system in with_sense(name)]
        for block in (*of_faults, *others)
        if block
    ]
    once = [series(name, with_sense(name), 1) for name in measures if name in ONCE and with_sense(name)]
    return [*rounds, *([each] for each in once)]
