"""The queue of jobs to reconcile: which job next, never the same one twice at once, failures later.

    work = WorkQueue()
    work.add(key)                      # as often as one likes; a key waits at most once
    work.add_after(key, seconds=30)
    key = await work.take()
    …
    work.done(key)                     # or work.failed(key): again after a back-off that doubles

A key that is added while it is being worked on is worked on again afterwards, since the work may not have seen what
the addition was about. This is what makes the controller level-triggered: the queue holds names, not events.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque

from tidewater.controller.cluster.mirror import Key

FIRST_BACKOFF_SECONDS = 0.2
LONGEST_BACKOFF_SECONDS = 60.0


class WorkQueue:
    """Keys to work on, in the order in which they became due. To be used on one event loop."""

    def __init__(self) -> None:
        self._waiting: deque[Key] = deque()
        self._wanted: set[Key] = set()
        self._taken: set[Key] = set()
        self._timers: dict[Key, asyncio.TimerHandle] = {}
        self._failures: dict[Key, int] = {}
        self._available = asyncio.Event()

    def __len__(self) -> int:
        """Return how many keys are due and not yet taken."""
        return len(self._waiting)

    @property
    def idle(self) -> bool:
        """Return whether no key is due and none is being worked on. Keys with a time in the future don't matter."""
        return not self._waiting and not self._taken

    def add(self, key: Key) -> None:
        """Make a key due now, unless it already is."""
        if key in self._wanted:
            return
        self._wanted.add(key)
        if key not in self._taken:
            self._offer(key)

    def add_after(self, key: Key, seconds: float) -> None:
        """Make a key due after `seconds`, or at the time that it already waits for if that is earlier."""
        loop = asyncio.get_running_loop()
        at = loop.time() + max(0.0, seconds)
        timer = self._timers.get(key)
        if timer is not None:
            if timer.when() <= at:
                return
            timer.cancel()
        self._timers[key] = loop.call_at(at, self._due, key)

    async def take(self) -> Key:
        """Wait for a key that is due. The caller must pass it to `done` or `failed` afterwards.

        A time for which the key also waits is forgotten: the work finds out again when it has to come back.
        """
        while not self._waiting:
            self._available.clear()
            await self._available.wait()
        key = self._waiting.popleft()
        self._cancel(key)
        self._wanted.discard(key)
        self._taken.add(key)
        return key

    def done(self, key: Key) -> None:
        """Put back a key after its work succeeded."""
        self._failures.pop(key, None)
        self._release(key)

    def failed(self, key: Key, *, at_least: float = 0.0) -> float:
        """Put back a key after its work failed; it is due again after a back-off.

        Args:
            key: The key.
            at_least: Seconds that the back-off lasts at least.

        Returns:
            The back-off in seconds.
        """
        failures = self._failures.get(key, 0)
        self._failures[key] = failures + 1
        seconds = max(at_least, backoff(failures))
        self._release(key)
        self.add_after(key, seconds)
        return seconds

    def forget(self, key: Key) -> None:
        """Drop the timer and the failures of a key that no longer exists."""
        self._failures.pop(key, None)
        self._cancel(key)

    def close(self) -> None:
        """Cancel all timers."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

    def _cancel(self, key: Key) -> None:
        timer = self._timers.pop(key, None)
        if timer is not None:
            timer.cancel()

    def _due(self, key: Key) -> None:
        del self._timers[key]
        self.add(key)

    def _release(self, key: Key) -> None:
        self._taken.discard(key)
        if key in self._wanted:
            self._offer(key)

    def _offer(self, key: Key) -> None:
        self._waiting.append(key)
        self._available.set()


def backoff(failures: int) -> float:
    """Return the seconds to wait after a failure that `failures` others preceded, with jitter."""
    longest = min(LONGEST_BACKOFF_SECONDS, FIRST_BACKOFF_SECONDS * 2.0 ** min(failures, 20))
    return random.uniform(longest / 2, longest)
