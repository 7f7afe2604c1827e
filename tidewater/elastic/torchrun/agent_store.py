"""The client of the torch store of rank 0's agent. The connecting can be interrupted."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, wait
from datetime import timedelta

import torch.distributed as dist
from torch._C._distributed_c10d import TCPStore

from tidewater.elastic.addresses import Address
from tidewater.elastic.errors import GroupBroken

_SLICE_SECONDS = 0.2
_TIMEOUT = timedelta(seconds=1)


def join(host: str, port: int, wanted: Callable[[], None], deadline: float) -> TCPStore:
    """Return a client of another process's torch store. Raise GroupBroken after the (monotonic) deadline, and whatever
    ``wanted`` raises."""

    def check() -> None:
        wanted()
        if time.monotonic() > deadline:
            raise GroupBroken(f"the store of rank 0 at {Address(host, port)} does not answer")

    while True:
        check()
        with contextlib.suppress(dist.DistNetworkError, dist.DistStoreError):
            return _connected(host, port, check)


def _connected(host: str, port: int, check: Callable[[], None]) -> TCPStore:
    """Connect in another thread. Stop waiting when ``check`` raises."""
    answer: Future[TCPStore] = Future()

    def connect() -> None:
        try:
            store = TCPStore(host, port, is_master=False, wait_for_workers=False, timeout=_TIMEOUT)
            answer.set_result(store)
        except BaseException as error:
            answer.set_exception(error)

    threading.Thread(target=connect, name="agent-store", daemon=True).start()
    while not answer.done():
        check()
        wait([answer], _SLICE_SECONDS)
    return answer.result()
