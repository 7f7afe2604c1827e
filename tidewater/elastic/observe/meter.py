"""Measures throughput, and the time that a change of the membership takes."""

from __future__ import annotations

import time
from dataclasses import dataclass

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

    def tell(self, log: Log, report: Report) -> None:
        """Log the change, together with the step that ended it."""
        log.event(
            "recovered" if self.failed else "resized",
            seconds=self.seconds,
            cause=self.cause,
            step=report.step,
            world_size=report.world_size,
            generation=report.generation,
        )


class Change:
    """Measures one change of the membership after another."""

    def __init__(self) -> None:
        self._cause: str | None = None
        self._stopped_at: float | None = None
        self._seconds = 0.0
        self._failed = False

    def broken(self) -> None:
        """Note that the failure of a peer has ended the current generation."""
        self._failed = True
        self._stopped_at = self._stopped_at or time.monotonic()

    def begin(self, cause: str) -> None:
        """Note that a generation begins, for that cause."""
        self._cause = cause
        self._stopped_at = self._stopped_at or time.monotonic()

    def goes_on(self) -> None:
        """Note that all ranks are together again: the time of a following evaluation does not count."""
        if self._stopped_at is not None:
            self._seconds += time.monotonic() - self._stopped_at
            self._stopped_at = None

    def over(self) -> Changed | None:
        """Note that a step was applied. Return the change that it ends, or None."""
        if self._cause is None:
            return None
        self.goes_on()
        changed = Changed(self._cause, self._failed, self._seconds)
        self._cause, self._seconds, self._failed = None, 0.0, False
        return changed
