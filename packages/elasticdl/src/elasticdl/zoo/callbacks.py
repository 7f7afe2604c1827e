"""What a model's `callbacks()` may return: a learning rate that depends on the version, and a last step.

    def callbacks() -> list[Callback]:
        return [LearningRateScheduler(lambda version: 0.1 * 0.5 ** (version // 1000)), MaxSteps(5000)]

A version is the number of updates that the model has had, so the schedule is the same however many workers there are.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from elasticdl.errors import ZooError


class Callback:
    """One of the classes below."""


@dataclass(frozen=True)
class LearningRateScheduler(Callback):
    """Set the learning rate of each version of the model."""

    schedule: Callable[[int], float]
    """From the model's version, 0 before the first update, to the learning rate of the update that follows it."""


@dataclass(frozen=True)
class MaxSteps(Callback):
    """End training once the model has had this many updates; ElasticDL's MaxStepsStopping."""

    max_steps: int

    def __post_init__(self) -> None:
        if self.max_steps < 1:
            raise ZooError(f"MaxSteps: max_steps is {self.max_steps}", "give at least 1")


def learning_rate(callbacks: Iterable[Callback], version: int, default: float) -> float:
    """Return the learning rate of the update that follows a version; raise ZooError if a schedule returns none."""
    rate = default
    for callback in callbacks:
        if isinstance(callback, LearningRateScheduler):
            rate = float(callback.schedule(version))
            if not math.isfinite(rate) or rate < 0:
                raise ZooError(
                    f"the learning-rate schedule returned {rate} for version {version}",
                    "return a finite number that is not negative",
                )
    return rate


def max_steps(callbacks: Iterable[Callback]) -> int | None:
    """Return the number of updates after which training ends; None if nothing limits it."""
    return min((each.max_steps for each in callbacks if isinstance(each, MaxSteps)), default=None)
