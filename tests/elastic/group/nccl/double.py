"""NCCL's semantics on CPUs: gloo sums, but says so as NCCL does.

    group = Group(Double(torch.device("cpu"), timeout_seconds=30))

* A work is "done" when it has been enqueued, and its ``wait`` returns at once.
* The result arrives later, from another thread: the device. An event says when. Until then the tensor is undefined.
* An abort leaves garbage in the tensors, and the events end as if nothing had happened. The error state doesn't show
  the abort, as on torch 2.9. The garbage is finite, and its seal fits: only asking whether the group has failed helps.
* A lost peer shows in the error state only; the events don't end before the abort.
* The watchdog ends a wait after the time-out of the group, whatever that of the sum is. When it sees an error or that
  time-out it keeps a lock, a hundredth as long as torch's: until then no sum begins, and no group ends.
* Connecting may fail, or not return before torch's time-out for that. It can't be interrupted, and neither can the
  abort of what connects. See ``Device.connecting``.
* An error of the device is raised by every call after it.

What is doubled is torch's group: the code for NCCL in ``tidewater.elastic.group.nccl`` runs as it is, both ways to
form a group. gloo is shared by the generations, so one that is still connecting delays the next one, for seconds.
"""

from __future__ import annotations

import os
import queue
import secrets
import threading
import time
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import ErrorType

from tidewater.elastic.group import gloo, nccl, nccl_environment, rendezvous
from tidewater.elastic.group.group import Group
from tidewater.elastic.group.siblings import Siblings
from tidewater.elastic.peer.server import PeerServer

LATE_SECONDS = 0.001
_FOREVER_SECONDS = 1e6
_POLL_SECONDS = 0.01
_HELD = "TORCH_NCCL_WAIT_TIMEOUT_DUMP_MILSEC"
_TORCHS_HELD, _SCALE = "15000", 0.01


class Device:
    """Controls when results arrive, and what goes wrong. By default a little late, and nothing."""

    def __init__(self) -> None:
        self.arrived = 0
        """Number of results that have arrived."""
        self.connecting = ""
        """What happens to those that connect now: "hangs", "fails", or nothing."""
        self.held_seconds = 0.0
        """How long the watchdog has kept its lock."""
        self.reached = threading.Event()
        """Set when something connects."""
        self._failed = False
        self._open, self._reachable = threading.Event(), threading.Event()
        self._open.set()

    def hold(self) -> None:
        """From now on no result arrives."""
        self._open.clear()

    def release(self) -> None:
        """From now on results arrive, and so do those that were held. What connects without end reaches a time-out."""
        self._open.set()
        self._reachable.set()

    def fail(self) -> None:
        """From now on every call raises the error of a kernel."""
        self._failed = True

    def check(self) -> None:
        """Raise the device's error if it has failed."""
        if self._failed:
            raise torch.AcceleratorError("CUDA error: device-side assert triggered")

    def connect(self) -> None:
        """Do what ``connecting`` says."""
        self.reached.set()
        if self.connecting == "fails":
            raise dist.DistBackendError("ncclSystemError: System call (e.g. socket, malloc) failed or device error.")
        if self.connecting == "hangs":
            self._reachable.wait()
            raise dist.DistBackendError("NCCL timeout in: NCCLUtils.cpp:198")

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
        self.begun, self.ended = time.monotonic(), threading.Event()
        self.ended_at = 0.0

    def wait(self, *_: object) -> bool:
        self._communicator.waited.append(self)
        return True

    def is_completed(self) -> bool:
        return True


class Mark:
    """An event on the device's stream."""

    def __init__(self, device: Device, works: Sequence[Enqueued] = ()) -> None:
        self._device, self._works, self._at = device, works, time.monotonic()

    def query(self) -> bool:
        self._device.check()
        return all(work.ended.is_set() for work in self._works)

    def elapsed_time(self, end: Mark) -> float:
        """Return the milliseconds to another event; both have been reached."""
        return 1e3 * (end.reached_at() - self.reached_at())

    def reached_at(self) -> float:
        return max([self._at, *(work.ended_at for work in self._works)])


class Aborted(Exception):
    """Ends the device's wait for gloo."""


class Wire:
    """gloo, which one communicator uses at a time."""

    def __init__(self, device: torch.device, timeout_seconds: float) -> None:
        self.gloo = gloo.Reconfigured(device, timeout_seconds)
        self._connecting = threading.Lock()
        self._owner: Any = None

    def connect(self, owner: object, uuid: int, store: Any, rank: int, size: int) -> None:
        with self._connecting:
            self._owner = owner
            self.gloo.leave()
            self.gloo.connect(uuid, store, rank, size)

    def sever(self, owner: object) -> None:
        """End the connections, if they are the owner's."""
        if self._owner is owner:
            self.gloo.abort()


class Communicator:
    """The ranks of one generation. ``group_seconds`` is the time-out of torch's group."""

    def __init__(self, wire: Wire, device: Device, group_seconds: float) -> None:
        self._wire, self._device, self._group_seconds = wire, device, group_seconds
        self._rank, self._size = 0, 0
        self._aborted = threading.Event()
        self._works: queue.SimpleQueue[Enqueued | None] = queue.SimpleQueue()
        self._works_lock = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="device", daemon=True)
        self.waited: list[Enqueued] = []
        self.state = ErrorType.SUCCESS

    def connect(self, uuid: int, store: Any, rank: int, size: int) -> None:
        self._device.check()
        self._device.connect()
        self._wire.connect(self, uuid, store, rank, size)
        self._rank, self._size = rank, size
        self._thread.start()

    def allreduce(self, tensor: torch.Tensor) -> Enqueued:
        """Start a sum, in place."""
        self._may_begin()
        work = Enqueued(self, tensor, tensor.clone(), tensor * self._size)
        work.inner = self._wire.gloo.begin(work.staging, _FOREVER_SECONDS)
        tensor.fill_(float("nan"))
        return self._enqueued(work)

    def broadcast(self, tensor: torch.Tensor, source: int) -> Enqueued:
        """Start a broadcast. The source's tensor is only read."""
        self._may_begin()
        target = tensor.clone() if source == self._rank else tensor
        work = Enqueued(self, target, tensor.clone(), torch.full_like(tensor, 0xA5))
        work.inner = self._wire.gloo.broadcast(work.staging, source, _FOREVER_SECONDS)
        target.fill_(0x5A)
        return self._enqueued(work)

    def _may_begin(self) -> None:
        self._device.check()
        if self._aborted.is_set():
            raise dist.DistBackendError("NCCL communicator was aborted")

    def _enqueued(self, work: Enqueued) -> Enqueued:
        with self._works_lock:
            self._works.put(work)
        return work

    def mark(self) -> Mark:
        self.waited = [work for work in self.waited if not work.ended.is_set()]
        return Mark(self._device, list(self.waited))

    def abort(self) -> None:
        self._aborted.set()
        self._wire.sever(self)
        self._works.put(None)
        if self._thread.ident:
            self._thread.join()

    def _run(self) -> None:
        for work in iter(self._works.get, None):
            try:
                self._wire.gloo.finish([work.inner], lambda: self._check(work), time.monotonic() + _FOREVER_SECONDS)  # noqa: B023
                while not self._device.arrives():
                    self._check(work)
                self._check(work)
                work.tensor.copy_(work.staging)
                self._device.arrived += 1
            except TimeoutError:
                self._see(ErrorType.TIMEOUT)
                work.tensor.copy_(work.garbage)
            except RuntimeError:  # a peer is lost, or an abort has ended gloo's connections
                if not self._aborted.is_set():
                    self._see(ErrorType.COMM_ERROR)
                work.tensor.copy_(work.garbage)
            except Aborted:
                work.tensor.copy_(work.garbage)
            work.ended_at = time.monotonic()
            work.ended.set()

    def _check(self, work: Enqueued) -> None:
        if self._aborted.is_set():
            raise Aborted
        if time.monotonic() > work.begun + self._group_seconds:
            raise TimeoutError

    def _see(self, state: ErrorType) -> None:
        """Do as torch's watchdog, and return after the abort."""
        self.state = state
        seconds = 4 * int(os.environ.get(_HELD, _TORCHS_HELD)) / 1000 * _SCALE
        if seconds > 0:
            with self._works_lock:
                time.sleep(seconds)
            self._device.held_seconds += seconds
        self._aborted.wait()


class Torchs:
    """torch's group: what both kinds have in common."""

    def __init__(self, make: Callable[[], Communicator]) -> None:
        self._make_communicator = make
        self.communicator = make()

    def allreduce(self, tensors: Sequence[torch.Tensor], _: Any) -> Enqueued:
        return self.communicator.allreduce(tensors[0])

    def broadcast(self, tensors: Sequence[torch.Tensor], given: Any) -> Enqueued:
        return self.communicator.broadcast(tensors[0], given.rootRank)

    def abort(self) -> None:
        self.communicator.abort()

    def _get_backend(self, _: torch.device) -> Any:
        return SimpleNamespace(get_error=lambda: self.communicator.state)


class Older(Torchs):
    """It connects before its first sum."""

    def __init__(self, make: Callable[[], Communicator], store: Any, rank: int, size: int) -> None:
        super().__init__(make)
        self._peers = store, rank, size
        self._connected = False

    def allreduce(self, tensors: Sequence[torch.Tensor], given: Any) -> Enqueued:
        if not self._connected:
            store, rank, size = self._peers
            uuid = int(store.compare_set("uuid", "", str(secrets.randbits(40))))
            self.communicator.connect(uuid, store, rank, size)
            self._connected = True
        return super().allreduce(tensors, given)


class Newer(Torchs):
    """It gets new peers, by handles that are those of torch 2.14."""

    def __init__(self, make: Callable[[], Communicator], store: Any) -> None:
        super().__init__(make)
        self._store, self._rank, self._uuid = store, 0, -1

    def get_reconfigure_handle(self) -> str:
        return f"nccl2:{self._rank}:{self._uuid}:"

    def reconfigure(self, given: Any) -> Any:
        handles = list(given.handles)
        if len(set(handles)) != len(handles):
            raise RuntimeError("Reconfigure handles must be unique")
        self.communicator.abort()
        self.communicator = self._make_communicator()
        self._rank = handles.index(self.get_reconfigure_handle())
        self.communicator.connect(given.uuid, self._store, self._rank, len(handles))
        self._uuid = given.uuid
        return SimpleNamespace(wait=lambda: True)


class OnCpus(nccl.Nccl):
    """What both backends have in common: the device, and gloo."""

    def __init__(self, device: torch.device, timeout_seconds: float) -> None:
        self.stream = Device()
        self._wire = Wire(device, timeout_seconds)
        super().__init__(device, timeout_seconds)

    @property
    def communicator(self) -> Communicator:
        group: Any = self.pg
        made: Communicator = group.communicator
        return made

    def _communicator(self) -> Communicator:
        return Communicator(self._wire, self.stream, self.group_seconds)

    def _mark(self) -> Mark:
        return self.communicator.mark() if hasattr(self, "pg") else Mark(self.stream)

    def _small_kernel(self) -> Mark:
        return Mark(self.stream)

    def close(self) -> None:
        self.stream.release()
        super().close()
        self._wire.gloo.close()


class Double(OnCpus, nccl.Restarted):
    """A new group for each generation."""

    def _open(self, store: Any, rank: int, size: int, *, reconfigurable: bool = False) -> Any:
        return Older(lambda: self._communicator(), store, rank, size)


class Double2(OnCpus, nccl.Reconfigured):
    """A group that gets new peers."""

    def _open(self, store: Any, rank: int, size: int, *, reconfigurable: bool = False) -> Any:
        return Newer(lambda: self._communicator(), store)


def opener(kind: type[OnCpus]) -> Callable[..., Group]:
    """Return a function that does as ``tidewater.elastic.group.group.open_group``."""

    def open_group(
        host: str,
        device: torch.device,
        timeout_seconds: float,
        peers: PeerServer | None = None,
        siblings: Siblings | None = None,
    ) -> Group:
        rendezvous.use_interface_of(host)
        os.environ.update(nccl_environment.needed(os.environ, timeout_seconds))
        return Group(kind(device, timeout_seconds), peers, siblings)

    return open_group


open_group = opener(Double)
