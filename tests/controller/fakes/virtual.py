"""Time that passes at once: an event loop with a clock that jumps to the next timer when nothing else is to be done.

    virtual.run(test())          # asyncio.sleep(3600) inside takes no time

So tests of back-offs, leases and watches need no sleeps and no patience, and the same thing happens in the same order
every time.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

T = TypeVar("T")

BEGINNING = datetime(2026, 1, 1, tzinfo=UTC)


class _Jumping(selectors.DefaultSelector):
    """A selector that does not wait for a timer, but reports how long it would have waited."""

    def __init__(self, waited: Callable[[float], None]) -> None:
        super().__init__()
        self._waited = waited

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        found = super().select(0)
        if not found:
            if timeout is None:
                raise RuntimeError("every task waits for something that no task and no timer will ever do")
            self._waited(timeout)
        return found


class Loop(asyncio.SelectorEventLoop):
    """An event loop with a clock of its own that begins at 0."""

    def __init__(self) -> None:
        self._passed = 0.0
        super().__init__(_Jumping(self._wait))

    def time(self) -> float:
        """Return the seconds that have passed."""
        return self._passed

    def _wait(self, seconds: float) -> None:
        self._passed += max(0.0, seconds)


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine on an event loop of its own in virtual time."""
    with asyncio.Runner(loop_factory=Loop) as runner:
        return runner.run(main)


def seconds() -> float:
    """Return the virtual time in seconds."""
    return asyncio.get_running_loop().time()


def now() -> datetime:
    """Return the virtual time of day in UTC."""
    return BEGINNING + timedelta(seconds=seconds())
