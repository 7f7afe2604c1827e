"""Several questions at the same time, with one time limit for all of them.

    for found in at_once([lambda: cluster.list(PODS), lambda: cluster.list(NODES)], seconds=5): ...

A question that hangs does not hold up the command, neither now nor at its end: its thread is left behind.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Sequence
from typing import TypeVar

from tidewater.cli.errors import TimeoutReached
from tidewater.kube.errors import ErrorWithRemedy

T = TypeVar("T")

_MOST_THREADS = 40
"""As many as `top` asks in one look: processes that hang must not keep others from being asked."""


def at_once(calls: Sequence[Callable[[], T]], *, seconds: float) -> list[T | ErrorWithRemedy]:
    """Return, in the order of `calls`, what each returned, or the ErrorWithRemedy with which it failed.

    A call that has not ended after `seconds` is a TimeoutReached. Any other exception is raised here.
    """
    waiting: queue.SimpleQueue[tuple[int, Callable[[], T]]] = queue.SimpleQueue()
    ended: queue.SimpleQueue[tuple[int, T | BaseException]] = queue.SimpleQueue()
    for each in enumerate(calls):
        waiting.put(each)
    for _ in range(min(len(calls), _MOST_THREADS)):
        threading.Thread(target=_work, args=(waiting, ended), daemon=True).start()
    late = TimeoutReached(f"no answer within {seconds:g} s")
    found: list[T | ErrorWithRemedy] = [late] * len(calls)
    deadline = time.monotonic() + seconds
    for _ in calls:
        try:
            index, result = ended.get(timeout=max(0.0, deadline - time.monotonic()))
        except queue.Empty:
            break
        if isinstance(result, BaseException) and not isinstance(result, ErrorWithRemedy):
            raise result
        found[index] = result
    return found


def _work(
    waiting: queue.SimpleQueue[tuple[int, Callable[[], T]]],
    ended: queue.SimpleQueue[tuple[int, T | BaseException]],
) -> None:
    """Make one call after another until none waits. Calls that begin after the deadline are wasted, but harmless."""
    while True:
        try:
            index, call = waiting.get_nowait()
        except queue.Empty:
            return
        try:
            ended.put((index, call()))
        except BaseException as error:
            ended.put((index, error))
