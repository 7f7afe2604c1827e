"""NCCL's semantics on CPUs: gloo sums, but says so as NCCL does.

    group = Group(Double(torch.device("cpu"), timeout_seconds=30))

* A work is "done" when it has been enqueued, and its ``wait`` returns at once.
* The result arrives later, from another thread: the device. An event says when. Until then the tensor is undefined.
* An abort leaves garbage in the tensors, and the events end as if nothing had happened. The error state doesn't show
  the abort, as on torch 2.9. The garbage is finite, and its seal fits: only asking whether the group has failed helps.
* A lost peer shows in the error state only; the events don't end before the abort.

It is used behind the code for NCCL: ``tidewater.elastic.group.nccl`` polls these events and asks this error state.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import ErrorType

from tidewater.elastic.group import gloo, rendezvous
from tidewater.elastic.group.group import Group
from tidewater.elastic.group.nccl import Nccl
from tidewater.elastic.group.rendezvous import MeetingStore
from tidewater.elastic.peer.server import PeerServer

LATE_SECONDS = 0.001
_FOREVER_SECONDS = 1e6


class Device:
    """Controls when results arrive. By default a little late."""

    def __init__(self) -> None:
        self.arrived = 0
        """Number of results that have arrived."""
        self._open = threading.Event()
        self._open.set()

    def hold(self) -> None:
        """From now on no result arrives."""
        self._open.clear()

    def release(self) -> None:
        """From now on results arrive, and so do those that were held."""
        self._open.set()

    def arrives(self) -> bool:
        """Return whether results arrive now, after a short time."""
        time.sleep(LATE_SECONDS)
        return self._open.is_set()


class Enqueued:
    """A work, "done" from the beginning."""

    inner: Any
    """gloo's work."""

    def __init__(
        self, communicator: Communicator, tensor: torch.Tensor, staging: torch.Tensor, garbage: torch.Tensor
    ) -> None:
        self._communicator = communicator
        self.tensor, self.staging, self.garbage = tensor, staging, garbage
        self.ended = threading.Event()

    def wait(self, *_: object) -> bool:
        self._communicator.waited.append(self)
        return True

    def is_completed(self) -> bool:
        return True


class Mark:
    """An event on the device's stream."""

    def __init__(self, works: Sequence[Enqueued]) -> None:
        self._works = works

    def query(self) -> bool:
        return all(work.ended.is_set() for work in self._works)


class Aborted(Exception):
    """Ends the device's wait for gloo."""


class Communicator:
    """The ranks of one generation."""

    def __init__(self, inner: gloo.Gloo, device: Device, size: int) -> None:
        self._inner, self._device, self._size = inner, device, size
        self._aborted = threading.Event()
        self._works: queue.SimpleQueue[Enqueued | None] = queue.SimpleQueue()
        self.waited: list[Enqueued] = []
        self.state = ErrorType.SUCCESS
        self._thread = threading.Thread(target=self._run, name="device", daemon=True)
        self._thread.start()

    def allreduce(self, tensor: torch.Tensor, seconds: float) -> Enqueued:
        if self._aborted.is_set():
            raise dist.DistBackendError("NCCL communicator was aborted")
        work = Enqueued(self, tensor, tensor.clone(), tensor * self._size)
        work.inner = self._inner.begin(work.staging, seconds)
        tensor.fill_(float("nan"))
        self._works.put(work)
        return work

    def broadcast(self, tensor: torch.Tensor, source: int, seconds: float, *, sends: bool) -> Enqueued:
        """Start a broadcast. The source's tensor is only read."""
        if self._aborted.is_set():
            raise dist.DistBackendError("NCCL communicator was aborted")
        target = tensor.clone() if sends else tensor
        work = Enqueued(self, target, tensor.clone(), torch.full_like(tensor, 0xA5))
        work.inner = self._inner.broadcast(work.staging, source, seconds)
        target.fill_(0x5A)
        self._works.put(work)
        return work

    def mark(self) -> Mark:
        self.waited = [work for work in self.waited if not work.ended.is_set()]
        return Mark(list(self.waited))

    def abort(self) -> None:
        self._aborted.set()
        self._inner.abort()
        self._works.put(None)
        self._thread.join()

    def _run(self) -> None:
        for work in iter(self._works.get, None):
            try:
                self._inner.finish([work.inner], self._check, time.monotonic() + _FOREVER_SECONDS)
                while not self._device.arrives():
                    self._check()
                self._check()
                work.tensor.copy_(work.staging)
                self._device.arrived += 1
            except RuntimeError:  # a peer is lost, or an abort has ended gloo's connections
                if not self._aborted.is_set():
                    self.state = ErrorType.COMM_ERROR
                self._aborted.wait()
                work.tensor.copy_(work.garbage)
            except Aborted:
                work.tensor.copy_(work.garbage)
            work.ended.set()

    def _check(self) -> None:
        if self._aborted.is_set():
            raise Aborted


class Double(Nccl):
    """The backend: a new communicator for each generation, as ``nccl.Restarted``."""

    def __init__(self, device: torch.device, timeout_seconds: float) -> None:
        super().__init__(device, timeout_seconds)
        self.stream = Device()
        self.communicator: Communicator
        self._inner = gloo.Reconfigured(device, timeout_seconds)

    def _connect(self, uuid: int, store: MeetingStore, rank: int, size: int) -> None:
        self._forget()
        self._inner.leave()
        self._inner.connect(uuid, store, rank, size)
        self.communicator, self._rank = Communicator(self._inner, self.stream, size), rank

    def begin(self, tensor: torch.Tensor, seconds: float) -> Enqueued:
        return self.communicator.allreduce(tensor, seconds)

    def broadcast(self, tensor: torch.Tensor, source: int, seconds: float) -> Enqueued:
        return self.communicator.broadcast(tensor, source, seconds, sends=self._rank == source)

    def _mark(self) -> Mark:
        return self.communicator.mark() if hasattr(self, "communicator") else Mark(())

    def _state(self) -> ErrorType:
        return self.communicator.state

    def _abort(self) -> None:
        self.communicator.abort()

    def _forget(self) -> None:
        if hasattr(self, "communicator"):
            self.communicator.abort()

    def close(self) -> None:
        super().close()
        self._inner.close()


def open_group(host: str, device: torch.device, timeout_seconds: float, peers: PeerServer | None = None) -> Group:
    """Do as ``tidewater.elastic.group.group.open_group``."""
    rendezvous.use_interface_of(host)
    return Group(Double(device, timeout_seconds), peers)
