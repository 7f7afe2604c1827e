"""What the log says about time: throughput, and what a change of the membership has cost."""

from __future__ import annotations

import time
from dataclasses import dataclass

from trainer.observe.log import Log
from trainer.training import Report


class Meter:
    """Samples committed per second since the last report."""

    def __init__(self) -> None:
        self._since = time.monotonic()
        self._samples = 0
        self.last_step_at = 0.0

    def start(self) -> None:
        """A new generation: what came before says nothing about its throughput."""
        self._since, self._samples = time.monotonic(), 0

    def count(self, samples: int) -> None:
        """A step of so many samples is committed."""
        self._samples += samples

    def rate(self) -> float:
        """Samples per second since the last call, rounded to one decimal."""
        now = time.monotonic()
        rate = self._samples / max(now - self._since, 1e-6)
        self._since, self._samples = now, 0
        return round(rate, 1)


@dataclass(frozen=True)
class Changed:
    """A change of the membership that is over."""

    cause: str
    """As in ``membership.Generation``."""
    failed: bool
    """Whether a step was discarded on the way."""
    seconds: float
    """From the moment training stopped to the first step applied after it, less an evaluation in between."""

    def tell(self, log: Log, report: Report) -> None:
        """Log it, together with the step that ended it."""
        log.event(
            "recovered" if self.failed else "resized",
            seconds=self.seconds,
            cause=self.cause,
            step=report.step,
            world_size=report.world_size,
            generation=report.generation,
        )


class Change:
    """Times one change of the membership after the other."""

    def __init__(self) -> None:
        self._cause: str | None = None
        self._stopped_at: float | None = None
        self._seconds = 0.0
        self._failed = False

    def broken(self) -> None:
        """A peer's failure has ended the current generation."""
        self._failed = True
        self._stopped_at = self._stopped_at or time.monotonic()

    def begin(self, cause: str) -> None:
        """A generation begins, for that cause."""
        self._cause = cause
        self._stopped_at = self._stopped_at or time.monotonic()

    def goes_on(self) -> None:
        """All are together again; what is done until the next step, an evaluation, is not the change's."""
        if self._stopped_at is not None:
            self._seconds += time.monotonic() - self._stopped_at
            self._stopped_at = None

    def over(self) -> Changed | None:
        """A step was applied: the change that it ends, if there was one."""
        if self._cause is None:
            return None
        self.goes_on()
        changed = Changed(self._cause, self._failed, self._seconds)
        self._cause, self._seconds, self._failed = None, 0.0, False
        return changed
