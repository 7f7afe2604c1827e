"""Why this worker is to end: it got SIGTERM, or the job is over. Every wait of the worker looks here.

ending = Ending()
signal.signal(signal.SIGTERM, lambda *_: ending.leave())
ending.wait(0.5)      # ends at once when there is a reason
ending.check()        # raises Leaving or Stopped
"""

from __future__ import annotations

import queue
import time


class Ended(Exception):
    """Base of the two reasons; it is no error."""


class Leaving(Ended):
    """This process got SIGTERM: it gives its task back."""


class Stopped(Ended):
    """The master has said that the job is over."""


class Ending:
    """Set once, by a handler of a signal or by another thread."""

    def __init__(self) -> None:
        self._reason: type[Ended] | None = None
        # The only means of waking a thread that a handler of a signal may use while the same thread waits on it.
        self._wake: queue.SimpleQueue[None] = queue.SimpleQueue()

    @property
    def leaving(self) -> bool:
        """Return whether this process got SIGTERM before the job was over."""
        return self._reason is Leaving

    @property
    def stopped(self) -> bool:
        """Return whether the job is over."""
        return self._reason is Stopped

    def leave(self) -> None:
        """Say that this process is to leave. Safe in a handler of a signal."""
        self._set(Leaving)

    def stop(self) -> None:
        """Say that the job is over."""
        self._set(Stopped)

    def check(self) -> None:
        """Raise Leaving or Stopped if there is a reason to end."""
        if self._reason is not None:
            raise self._reason

    def wait(self, seconds: float) -> None:
        """Wait, until there is a reason to end at the longest; raise it. May be used by one thread at a time."""
        deadline = time.monotonic() + seconds
        while self._reason is None and (left := deadline - time.monotonic()) > 0:
            try:
                self._wake.get(timeout=left)
            except queue.Empty:
                break
        self.check()

    def _set(self, reason: type[Ended]) -> None:
        if self._reason is None:
            self._reason = reason
        self._wake.put(None)
