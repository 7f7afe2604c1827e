"""Plain data-parallel training without fault tolerance, in the same processes as a system's training. They make steps
in turns, because the speed of a machine changes by a tenth within seconds, and both must see the same speed.

    plain = PlainSteps.from_environment(rank)      # None unless the driver requests it
    plain.step(world, at)                          # after every step of the system, which ended at that time
"""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
from torch import distributed as dist
from torch._C._distributed_c10d import TCPStore
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler

from benchmarks.elastic.workers import names, task

_TIMEOUT = timedelta(seconds=60)


class PlainSteps:
    """One rank of the plain training, and the record of when both began and ended their steps."""

    def __init__(self, file: Path, port: int, rank: int, world: int) -> None:
        self._file = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self._port, self._rank, self._world = port, rank, world
        self._steps: Iterator[float] | None = None
        self._line = ""

    @classmethod
    def from_environment(cls, rank: int) -> PlainSteps | None:
        """Return what the driver's variables describe."""
        if names.PLAIN_PORT not in os.environ:
            return None
        port, world = map(int, os.environ[names.PLAIN_PORT].split(","))
        return cls(Path(os.environ[names.PAIRS]) / f"{rank}-{os.getpid()}.pairs", port, rank, world)

    def step(self, world: int, at: int) -> None:
        """Make one step when all of the system's workers are there, and record the times."""
        if world < self._world:
            return
        if self._steps is None:
            self._steps = steps(group(self._port, self._rank, self._world), self._rank, self._world)
        os.write(self._file, self._line.encode())  # the previous step's; here it delays neither
        began_at = time.monotonic_ns()
        next(self._steps)
        self._line = f"{at} {began_at} {time.monotonic_ns()}\n"


def group(port: int, rank: int, world: int) -> dist.ProcessGroup:
    """Return a process group in addition to the default one, which belongs to the system."""
    store = TCPStore(names.HOST, port, is_master=rank == 0, wait_for_workers=False, timeout=_TIMEOUT)
    made = dist.ProcessGroup(store, rank, world)
    gloo = dist.ProcessGroup.BackendType.GLOO
    made._register_backend(torch.device("cpu"), gloo, dist.ProcessGroupGloo(store, rank, world, _TIMEOUT))
    made._set_default_backend(gloo)
    return made


def steps(group: dist.ProcessGroup, rank: int, world: int) -> Iterator[float]:
    """Train with plain DistributedDataParallel, as in torch's documentation. Yield the loss of each step, endlessly."""
    dataset = task.digits()
    model = DistributedDataParallel(task.model(), process_group=group)
    optimizer = task.optimizer_of(model)
    sampler: DistributedSampler[Any] = DistributedSampler(dataset, num_replicas=world, rank=rank)
    loader = DataLoader(dataset, batch_size=names.GLOBAL_BATCH // world, sampler=sampler)
    for epoch in itertools.count():
        sampler.set_epoch(epoch)
        for images, labels in loader:
            optimizer.zero_grad()
            loss = task.loss_of(model, images, labels)
            torch.autograd.backward(loss)
            optimizer.step()
            yield loss.item()
