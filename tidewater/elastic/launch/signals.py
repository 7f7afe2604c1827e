"""Signals as events of a loop that waits for several things at once, and those that ask a worker to leave.

with signals(signal.SIGTERM, signal.SIGCHLD) as wait:
    numbers, readable = wait(deadline, descriptors)

with asked_by_signals(asked):
    ...                                     # a SIGTERM puts something into ``asked``

For the first, Python writes the number of each signal into a pipe when it arrives, so no signal is missed between two
calls.
"""

from __future__ import annotations

import faulthandler
import os
import queue
import selectors
import signal
import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from tidewater.contract import leaving

_STANDARD_ERROR = 2
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
        with selectors.DefaultSelector() as selector:  # `select` takes no descriptor above 1023
            for each in (reader, *descriptors):
                selector.register(each, selectors.EVENT_READ)
            readable = [key.fd for key, _ in selector.select(timeout)]
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


@contextmanager
def asked_by_signals(asked: queue.SimpleQueue[None]) -> Iterator[Callable[[], None]]:
    """Let signals ask this worker to leave. Yield a function that sets the handlers again.

    At the end those of the script are put back. A second Ctrl-C interrupts the worker, and a SIGHUP that nohup ignores
    stays ignored. A worker that is still there after ``leaving.LAST_SECONDS`` ends with exit code 1, whatever it does,
    and writes where each of its threads is.
    """
    before: dict[int, Any] = {}

    def ask(number: int, _: object) -> None:
        if asked.empty():
            faulthandler.dump_traceback_later(leaving.LAST_SECONDS, exit=True, file=_STANDARD_ERROR)
        if number == signal.SIGINT:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        asked.put(None)

    def set_handlers() -> None:
        if threading.current_thread() is not threading.main_thread():
            return
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            handler = signal.getsignal(number)
            if handler is not ask and (number == signal.SIGTERM or handler is not signal.SIG_IGN):
                before[number] = handler
                signal.signal(number, ask)

    set_handlers()
    try:
        yield set_handlers
    finally:
        faulthandler.cancel_dump_traceback_later()
        for number, handler in before.items():
            if signal.getsignal(number) in (ask, signal.default_int_handler):
                signal.signal(number, handler or signal.SIG_DFL)  # None: it was not set by Python
