"""Calls that can't be interrupted and may never return, such as NCCL's connecting. Each is made in a thread.

    attempts = Attempts(discard=lambda group: group.abort())
    group = attempts.make(connect, check)     # raises what `connect` or `check` raises

If ``check`` raises first, the attempt is *abandoned*: its call goes on in its thread, and what it returns at last is
discarded there. So whatever it uses must not be used by anything else any more.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

_SLICE_SECONDS = 0.2
"""Between two checks."""


class Attempts:
    """The attempts of one thread. ``discard`` gets what an abandoned attempt has made; it may raise RuntimeError."""

    def __init__(self, discard: Callable[[Any], None]) -> None:
        self._discard = discard
        self._abandoned: list[_Attempt] = []

    def make(self, call: Callable[[], Any], check: Callable[[], None]) -> Any:
        """Return what ``call`` returns. ``check`` is called several times a second, and ends the wait by raising."""
        attempt = _Attempt(call, self._discard)
        attempt.start()
        try:
            while not attempt.ended.wait(_SLICE_SECONDS):
                check()
        except BaseException:
            attempt.abandoned = True
            self._abandoned.append(attempt)
            raise
        finally:
            attempt.decided.set()
        if attempt.error:
            raise attempt.error
        return attempt.made

    def pending(self) -> int:
        """Return the number of abandoned attempts that have not ended."""
        self._abandoned = [each for each in self._abandoned if each.is_alive()]
        return len(self._abandoned)

    def join(self, seconds: float) -> None:
        """Wait at most so long until the abandoned attempts have ended."""
        until = time.monotonic() + seconds
        for each in self._abandoned:
            each.join(max(0.0, until - time.monotonic()))


class _Attempt(threading.Thread):
    def __init__(self, call: Callable[[], Any], discard: Callable[[Any], None]) -> None:
        super().__init__(name="attempt", daemon=True)
        self._call, self._discard = call, discard
        self.made: Any = None
        self.error: BaseException | None = None
        self.ended, self.decided = threading.Event(), threading.Event()
        self.abandoned = False
        """Valid when ``decided`` is set."""

    def run(self) -> None:
        try:
            self.made = self._call()
        except BaseException as error:
            self.error = error
        self.ended.set()
        self.decided.wait()
        if self.abandoned and self.error is None:
            self._discard(self.made)
