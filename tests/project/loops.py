"""The event loops of a Pulumi program that runs in a test's process.

with own_loops():
    pulumi.runtime.test(program)()
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor


@contextlib.contextmanager
def own_loops() -> Iterator[None]:
    """Give this thread a new loop, and close it at the end with those of the threads that it starts.

    The SDK makes a loop in each thread, of three file descriptors, and closes none.
    """
    loops: list[asyncio.AbstractEventLoop] = []

    def begin() -> None:
        loops.append(asyncio.new_event_loop())
        asyncio.set_event_loop(loops[-1])

    begin()
    loops[0].set_default_executor(ThreadPoolExecutor(initializer=begin))
    try:
        yield
    finally:
        loops[0].run_until_complete(loops[0].shutdown_default_executor())
        for loop in loops:
            loop.close()
