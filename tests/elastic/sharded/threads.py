"""The processes of a worker as threads of one process, with the real votes above sums in memory."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import torch

from tidewater.elastic.errors import GroupBroken
from tidewater.elastic.group.replica import Replica

SIZE = 3
SECONDS = 20


def at_once(do: Callable[[Replica], Any]) -> list[Any]:
    """Run this in all processes of a worker, which are threads. Return what each returns or raises."""
    barrier, given = threading.Barrier(SIZE), dict[int, torch.Tensor]()
    found: list[Any] = [None] * SIZE

    def run(index: int) -> None:
        def add(tensor: torch.Tensor) -> None:
            given[index] = tensor.clone()
            barrier.wait(SECONDS)
            assert len({each.shape for each in given.values()}) == 1
            tensor.copy_(torch.stack([given[other] for other in range(SIZE)]).sum(0))
            barrier.wait(SECONDS)

        try:
            found[index] = do(Replica(index, SIZE, add, lambda place, seconds: None))
        except Exception as error:
            found[index] = error
            if not isinstance(error, GroupBroken):
                barrier.abort()

    threads = [threading.Thread(target=run, args=[index]) for index in range(SIZE)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found
