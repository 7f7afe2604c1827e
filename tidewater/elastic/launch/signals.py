"""Signals as events of a loop that waits for several things at once.

with signals(signal.SIGTERM, signal.SIGCHLD) as wait:
    numbers, readable = wait(deadline, descriptors)

Python writes the number of each signal into a pipe when it arrives, so no signal is missed between two calls.
"""

from __future__ import annotations

import os
import select
import signal
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager

_OF_THE_TERMINAL = (signal.SIGHUP, signal.SIGINT)

Wait = Callable[[float | None, Collection[int]], tuple[Sequence[int], list[int]]]
"""Sleeps until a monotonic time, a signal, or one of the descriptors can be read. Returns the signals and those."""


@contextmanager
def signals(*numbers: signal.Signals) -> Iterator[Wait]:
    """Yield a function that waits for these signals, which have no other effect meanwhile. For the main thread only.

    Those of the terminal stay ignored if they are: nohup ignores SIGHUP, and a script's `command &` ignores SIGINT.
    """
    reader, writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)

    def wait(until: float | None, descriptors: Collection[int]) -> tuple[Sequence[int], list[int]]:
        timeout = None if until is None else max(0.0, until - time.monotonic())
        readable, _, _ = select.select([reader, *descriptors], [], [], timeout)
        arrived = os.read(reader, 512) if reader in readable else b""
        return arrived, [each for each in readable if each != reader]

    # Without a handler the signals would have their default effects.
    wanted = [each for each in numbers if each not in _OF_THE_TERMINAL or signal.getsignal(each) != signal.SIG_IGN]
    before = {each: signal.signal(each, lambda *_: None) for each in wanted}
    woken_before = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    try:
        yield wait
    finally:
        signal.set_wakeup_fd(woken_before)
        for each, handler in before.items():
            signal.signal(each, handler)
        os.close(reader)
        os.close(writer)
