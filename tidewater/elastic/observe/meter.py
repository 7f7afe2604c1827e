"""Measures throughput, and the time that a change of the membership takes."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from tidewater.elastic.observe.log import Log
from tidewater.elastic.training import Report


class Meter:
    """Counts samples per second since the last report."""

    def __init__(self) -> None:
        self._since = time.monotonic()
        self._samples = 0
        self.last_step_at = 0.0

    def start(self) -> None:
        """Start again in a new generation: earlier steps do not count for its throughput."""
        self._since, self._samples = time.monotonic(), 0

    def count(self, samples: int) -> None:
        """Count the samples of a committed step."""
        self._samples += samples

    def rate(self) -> float:
        """Return samples per second since the last call, rounded to one decimal."""
        now = time.monotonic()
        rate = self._samples / max(now - self._since, 1e-6)
        self._since, self._samples = now, 0
        return round(rate, 1)


@dataclass(frozen=True)
class Changed:
    """A completed change of the membership."""

    cause: str
    """As in ``membership.Generation``."""
    failed: bool
    """Whether a step was discarded because of it."""
    seconds: float
    """Seconds from the stop of training to the first step applied after it, without an evaluation in between."""
    parts: Mapping[str, float] = field(default_factory=dict)
    """The same, by what they were used for: see ``PARTS``."""

    def tell(self, log: Log, report: Report) -> None:
        """Log the change, together with the step that ended it."""
        log.event(
            "recovered" if self.failed else "resized",
            seconds=self.seconds,
            cause=self.cause,
            step=report.step,
            world_size=report.world_size,
            generation=report.generation,
            **{f"{part}_seconds": seconds for part, seconds in self.parts.items()},
        )


AGREEMENT, CONNECTING, HAND_OVER, STEP = PARTS = ("agreement", "connecting", "hand_over", "step")
"""What the time of a change is used for: the workers agree on the next generation, connect with each other, bring all
to one state, and make the first step."""


class Change:
    """Measures one change of the membership after another."""

    def __init__(self) -> None:
        self._cause: str | None = None
        self._since: float | None = None
        """Monotonic time of the end of the last part, while the time counts."""
        self._part = AGREEMENT
        self._parts = dict.fromkeys(PARTS, 0.0)
        self._failed = False

    def broken(self) -> None:
        """Note that the failure of a peer has ended the current generation."""
        self._failed = True
        self._enter(AGREEMENT)

    def begin(self, cause: str) -> None:
        """Note that a generation begins, for that cause."""
        self._cause = cause
        self._enter(AGREEMENT)

    def meets(self) -> None:
        """Note that its members connect."""
        self._enter(CONNECTING)

    def connected(self) -> None:
        """Note that the members are connected: they bring all to one state."""
        self._enter(HAND_OVER)

    def together(self) -> None:
        """Note that all have one state: they make a step."""
        self._enter(STEP)

    def goes_on(self) -> None:
        """Note that all ranks are together again: the time of a following evaluation does not count."""
        self._enter(STEP)
        self._since = None

    def over(self) -> Changed | None:
        """Note that a step was applied. Return the change that it ends, or None."""
        if self._cause is None:
            return None
        self.goes_on()
        changed = Changed(self._cause, self._failed, sum(self._parts.values()), self._parts)
        self._cause, self._parts, self._failed = None, dict.fromkeys(PARTS, 0.0), False
        return changed

    def _enter(self, part: str) -> None:
        """Count the time since the last call for the part before."""
        now = time.monotonic()
        if self._since is not None:
            self._parts[self._part] += now - self._since
        self._since, self._part = now, part
