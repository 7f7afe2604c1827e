"""What the log says about time: throughput, and what a change of the membership has cost."""

from __future__ import annotations

import time

from trainer.log import Log
from trainer.membership import Generation


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


class Change:
    """Times one change of the membership, from the moment training stopped to the first step committed after it."""

    def __init__(self) -> None:
        self._cause: str | None = None
        self._stopped_at: float | None = None
        self._failed = False

    def broken(self) -> None:
        """A peer's failure has ended the current generation."""
        self._failed = True
        self._stopped_at = self._stopped_at or time.monotonic()

    def begin(self, cause: str) -> None:
        """A generation begins, for that cause."""
        self._cause = cause
        self._stopped_at = self._stopped_at or time.monotonic()

    def committed(self, log: Log, *, state_step: int, generation: Generation) -> bool:
        """A step is committed; True, and an event, if it is the first after a change."""
        if self._cause is None or self._stopped_at is None:
            return False
        log.event(
            "recovered" if self._failed else "resized",
            seconds=time.monotonic() - self._stopped_at,
            cause=self._cause,
            step=state_step,
            world_size=len(generation.members),
            generation=generation.number,
        )
        self._cause, self._stopped_at, self._failed = None, None, False
        return True
