"""The process group, formed anew in the living process whenever the membership changes.

    group = open_group("10.0.0.7", torch.device("cpu"), timeout_seconds=30)
    group.form(uuid=..., rank=0, addresses=(("10.0.0.7", 4711), ...), deadline=...)
    model = group.wrap(module)              # DistributedDataParallel
    group.carry([ballot]); torch.autograd.backward(loss); sums = group.carried()     # raises GroupBroken
    group.all_reduce(tensor)                # the same
    group.interrupt("peer lost")            # from another thread: whatever is in flight is abandoned
    group.close()                           # before the interpreter ends

Two ways to form a group, chosen by what the installed torch can do:

* ``Reconfigured``: torch 2.15's private ``_reconfigure`` gives one ProcessGroup object new peers within
  milliseconds, so the DistributedDataParallel around the model stays. All use of that private API is here.
* ``Restarted``: ``destroy_process_group`` and ``init_process_group``, and a new DistributedDataParallel
  (``keeps_wrapper`` is False).

DistributedDataParallel as it comes cannot survive a lost peer: an exception in the middle of backward leaves its
reducer in disorder. So gradients go through a communication hook that only begins an all-reduce, and tells the reducer
that it is done; ``carried`` waits for all of them and makes the sums the gradients, or raises, and the step is
discarded. The hook sums and does not divide: ranks weigh their loss by their share of the batch (see ``step``). It
sums in 32 bits at least, and takes a few more numbers along with the first bucket, which so cost no collective of their
own.
"""

from __future__ import annotations

import contextlib
import functools
import json
import threading
import time
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import GradBucket, Store, TCPStore
from torch.distributed import distributed_c10d as c10d
from torch.nn.parallel import DistributedDataParallel

from trainer.errors import GroupBroken
from trainer.group import connections, rendezvous
from trainer.group.rendezvous import Address, MeetingStore
from trainer.group.sums import Sums

_SOON = timedelta(milliseconds=50)
_CLOSE_SECONDS = 2.0
"""At most, until what is in flight has ended with its connections."""
_CLOSE_POLL_SECONDS = 0.005
_CONNECT_SECONDS = 0.6
"""For gloo, which waits five times as long for its peers' connections, and can't be interrupted: three seconds are
enough for a lost SYN to be sent twice more."""


class Group(ABC):
    """The ranks of one generation. One thread uses it; ``interrupt`` may come from any."""

    keeps_wrapper = False
    """Whether what ``wrap`` returned stays good when the group is formed again."""

    def __init__(self, device: torch.device, timeout_seconds: float) -> None:
        self.device = device
        self._on_cpu = device.type == "cpu"
        self.rank = 0
        self.size = 1
        self._timeout_seconds = timeout_seconds
        self._pg: dist.ProcessGroup
        self._server = TCPStore("0.0.0.0", 0, is_master=True, wait_for_workers=False)
        self._failure: str | None = None
        self._load: Sequence[torch.Tensor] = ()
        self._options = _options(timeout_seconds)
        self._reductions: list[tuple[Any, Sums]] = []
        self._in_flight: list[Any] = []
        """Works that have begun and are not known to have gone well."""
        self._rooms: dict[int, Sums] = {}
        """By bucket, where it was summed last. On the CPU only, as is lending: there the kernel zeroes fresh memory,
        which takes as long as the sum; a GPU's memory is torch's already, and activations need it in between."""
        self._events: set[threading.Event] = set()
        self._listens: frozenset[connections.End] = frozenset()
        """Where gloo takes its peers' connections; nowhere with NCCL."""
        self._ends: frozenset[connections.End] = frozenset()
        """That, and the peers' own: each of the generation's connections has one of them."""
        self._lock = threading.Lock()

    @property
    def store_port(self) -> int:
        """Port of the torch store that this process serves for the generations in which it has rank 0."""
        return int(self._server.port)

    def wrap(self, module: torch.nn.Module) -> DistributedDataParallel:
        """``module`` with its gradients summed over the group, whichever generation that is."""
        # Nothing collective may happen in the constructor or later on, since newcomers build their wrapper alone:
        # no initial broadcast, no broadcast of buffers; the bucket order is settled in the loop's warm-up.
        with warnings.catch_warnings():
            # torch 2.15 announces a successor of broadcast_buffers that cannot do what is needed here yet.
            warnings.simplefilter("ignore", FutureWarning)
            model = DistributedDataParallel(
                module, process_group=self._pg, init_sync=False, broadcast_buffers=False, gradient_as_bucket_view=True
            )
        # A lambda, since torch rejects annotations that are not evaluated.
        model.register_comm_hook(self, lambda group, bucket: group.reduce_bucket(bucket))
        return model

    @abstractmethod
    def _connect(self, uuid: int, store: MeetingStore) -> None:
        """Make ``self.rank`` of ``self.size`` ready to communicate."""

    def _exchange(self, store: MeetingStore, word: str = "") -> list[str]:
        """Learn where the peers' gloo listens, and their words in the order of their ranks: one round for both."""
        store.set(f"word/{self.rank}", json.dumps([word, *sorted(self._listens)]))
        told = [json.loads(store.get(f"word/{rank}")) for rank in range(self.size)]
        self._ends = frozenset((host, port) for _, *ends in told for host, port in ends)
        return [word for word, *_ in told]

    def _initialize(self, store: Store, rank: int, size: int, **more: bool) -> None:
        backend = "nccl" if self.device.type == "cuda" else "gloo"
        timeout = timedelta(seconds=self._timeout_seconds)
        initialize: Any = dist.init_process_group  # its type information lacks what the private API adds
        before = connections.listening()
        initialize(backend, store=store, rank=rank, world_size=size, timeout=timeout, **more)
        self._listens = connections.listening() - before if self._on_cpu else frozenset()
        self._pg = c10d._get_default_group()

    def form(
        self,
        uuid: int,
        rank: int,
        addresses: tuple[Address, ...],
        deadline: float,
        *,
        peers_are_there: Callable[[], None] = lambda: None,
        superseded: Callable[[], bool] = lambda: False,
    ) -> None:
        """Join the group of that ``uuid`` as ``rank``; every member must call this with the same addresses.

        Args:
            addresses: host and ``store_port`` of each rank.
            deadline: monotonic; afterwards, or once interrupted, GroupBroken is raised and nothing is joined.
            peers_are_there: asked several times a second while peers are waited for; raises GroupBroken if in vain.
            superseded: whether a newer generation came up; then GroupBroken is raised on all ranks or on none.
        """
        with self._lock:
            self._failure = None
        self._in_flight = self._left_in_flight()
        self.rank, self.size = rank, len(addresses)

        def check() -> None:
            self.check()
            peers_are_there()

        try:
            server = self._server if rank == 0 else rendezvous.join(addresses[0], check, deadline)
            store = MeetingStore(uuid, server, check, deadline)
            store.assemble(rank, self.size, superseded)
            self._connect(uuid, store)
        except (RuntimeError, ValueError) as error:  # torch's own errors are RuntimeErrors
            raise GroupBroken(f"could not connect to the other workers: {_brief(error)}") from error

    def interrupt(self, reason: str) -> None:
        """Abandon what is in flight: it and all that follows raises GroupBroken until the next ``form``."""
        with self._lock:  # to the end: the next generation's connections have the same ends
            self._failure = self._failure or reason
            events, self._events = self._events, set()
            connections.sever(self._ends)
        self._abort()
        for event in events:
            event.set()

    def _abort(self) -> None:
        """NCCL's kernels wait for a lost peer for ever, and the device with them, unless their communicator ends."""
        if self.device.type == "cuda" and dist.is_initialized():
            with contextlib.suppress(RuntimeError):
                self._pg.abort()

    def close(self) -> None:
        """Abandon what is in flight, and see it ended. Nothing can be done with the group afterwards.

        gloo's threads let go of Python's objects when a collective ends. One that does so while the interpreter ends
        has the process aborted, whatever its exit code was to be.
        """
        self.interrupt("it is closed")
        deadline = time.monotonic() + _CLOSE_SECONDS
        while self._on_cpu and self._left_in_flight() and time.monotonic() < deadline:
            time.sleep(_CLOSE_POLL_SECONDS)
        if dist.is_initialized():
            dist.destroy_process_group()

    def _left_in_flight(self) -> list[Any]:
        return [work for work in self._in_flight if not work.is_completed()]

    def check(self) -> None:
        """Raises GroupBroken if anything has failed since ``form``."""
        if self._failure:
            raise GroupBroken(self._failure)

    def blame(self, error: RuntimeError) -> None:
        """Raises GroupBroken if the error is one of a collective: a new DDP makes some in its first forward passes."""
        if isinstance(error, dist.DistError) or "gloo" in str(error):
            self.interrupt(_brief(error))
            self.check()

    def all_reduce(self, tensor: torch.Tensor, *, timeout_seconds: float | None = None) -> None:
        """Sum over all ranks, in place. Raises GroupBroken on failure, interruption or time-out."""
        seconds = timeout_seconds or self._timeout_seconds
        self._await(self._begin(tensor, _options(seconds)), seconds)

    def _begin(self, tensor: torch.Tensor, options: Any) -> Any:
        """The work of summing; None if that failed at once or the group is broken: then ``check`` raises."""
        if self._failure:
            return None
        try:
            work = self._pg.allreduce([tensor], options)
        except RuntimeError as error:
            self.interrupt(_brief(error))
            return None
        self._in_flight.append(work)
        return work

    def _await(self, work: Any, seconds: float) -> None:
        """Wait for what ``_begin`` returned. Raises GroupBroken like ``all_reduce``."""
        self.check()
        if not self._done_soon(work):
            wait = self._look_until_done if self._on_cpu else self._sleep_until_done
            try:
                if wait(work, time.monotonic() + seconds):
                    work.wait()
                else:
                    self.interrupt(f"no answer from a peer within {seconds:g} s")
            except RuntimeError as error:
                self.interrupt(_brief(error))
        self.check()
        self._in_flight.remove(work)

    def _done_soon(self, work: Any) -> bool:
        """Whether it has gone well, after a short wait that can't be interrupted.

        Most collectives take no longer, and to be told by a callback takes another change of threads. Not with NCCL,
        which ends its communicator when a wait has timed out.
        """
        if self._on_cpu:
            try:
                return bool(work.wait(_SOON))
            except RuntimeError:  # it takes longer, or has failed
                return False
        return False

    def _look_until_done(self, work: Any, deadline: float) -> bool:
        """False if it isn't done in time. Who interrupts ends it, as it ends the connections.

        A callback would be run by gloo's thread, which may have no Python to run it in: see ``close``.
        """
        while not work.is_completed():
            self.check()
            if time.monotonic() > deadline:
                return False
            self._done_soon(work)
        return True

    def _sleep_until_done(self, work: Any, deadline: float) -> bool:
        """False if it isn't done in time. Raises GroupBroken once interrupted."""
        done = threading.Event()
        with self._lock:
            self._events.add(done)
        try:
            self.check()  # who interrupts from now on sets the event
            work.get_future().add_done_callback(lambda _: done.set())
            if not done.wait(deadline - time.monotonic()):
                return False
            self.check()
            return True
        finally:
            with self._lock:
                self._events.discard(done)

    def confirm(self, *, timeout_seconds: float | None = None) -> None:
        """Returns once every rank has called this, and so has done all that comes before. Raises as ``all_reduce``."""
        self.all_reduce(torch.zeros(1, device=self.device), timeout_seconds=timeout_seconds)

    def carry(self, load: Sequence[torch.Tensor]) -> None:
        """Have ``load`` (float32, one dimension each) summed along with the gradients of the next backward pass."""
        self._load, self._reductions = load, []

    def carried(self) -> Sequence[torch.Tensor]:
        """Wait for the sums over all ranks, of the gradients and of the load.

        Those of the load are returned, part by part, and are good until the next backward pass.
        Raises GroupBroken if any of them is missing: then the gradients are nobody's.
        """
        reductions, self._reductions = self._reductions, []
        self.check()
        if not reductions:
            raise RuntimeError("no gradient was computed: the loss depends on none of the model's parameters")
        for work, _ in reductions:
            self._await(work, self._timeout_seconds)
        for _, sums in reductions:
            sums.give(lend=self._on_cpu)
            if self._on_cpu:
                self._rooms[sums.index] = sums
        return reductions[0][1].load

    def reduce_bucket(self, bucket: GradBucket) -> torch.futures.Future[torch.Tensor]:
        """DDP's communication hook: begins to sum a bucket; never fails, see the module's docstring."""
        buffer = bucket.buffer()
        load, self._load = self._load, ()  # the first bucket to be ready is the same one on all ranks
        # Not the bucket itself: an abandoned all-reduce may still write when the next step uses the bucket.
        sums = self._rooms.pop(bucket.index(), None)
        if sums is None or not sums.take(buffer, load):
            sums = Sums(bucket, buffer, load)
        self._reductions.append((self._begin(sums.whole, self._options), sums))
        return sums.done


class Reconfigured(Group):
    """One ProcessGroup object for the life of the process, given new peers by torch's ``_reconfigure``."""

    keeps_wrapper = True

    def __init__(self, device: torch.device, timeout_seconds: float) -> None:
        super().__init__(device, timeout_seconds)
        self._store = rendezvous.SwitchedStore()
        self._handle: Callable[[], str] = c10d._get_reconfigure_handle
        self._reconfigure: Callable[..., Any] = c10d._reconfigure
        self._initialize(self._store, 0, 1, enable_reconfigure=True)

    def _connect(self, uuid: int, store: MeetingStore) -> None:
        self._store.current = store
        handles = self._exchange(store, self._handle())
        seconds = self._timeout_seconds
        if self._on_cpu:
            seconds = min(seconds, _CONNECT_SECONDS)
        self._reconfigure(uuid=uuid, handles=handles, timeout=timedelta(seconds=seconds)).wait()


class Restarted(Group):
    """A new default process group for every generation."""

    def _connect(self, uuid: int, store: MeetingStore) -> None:
        if dist.is_initialized():
            dist.destroy_process_group()
        self._initialize(store, self.rank, self.size)
        self._exchange(store)


def open_group(host: str, device: torch.device, timeout_seconds: float) -> Group:
    """The best kind of group this torch offers, not formed yet. ``host`` is this process's own address."""
    rendezvous.use_interface_of(host)
    if all(hasattr(c10d, name) for name in ("_reconfigure", "_get_reconfigure_handle", "_supports_reconfigure")):
        group = Reconfigured(device, timeout_seconds)
        if c10d._supports_reconfigure():
            return group
        dist.destroy_process_group()
    return Restarted(device, timeout_seconds)


@functools.cache
def _options(timeout_seconds: float) -> Any:
    options = dist.AllreduceOptions()
    options.timeout = timedelta(seconds=timeout_seconds)
    return options


def _brief(error: Exception) -> str:
    """torch's messages run over many lines, and name its build machine's files."""
    text = str(error).splitlines()[0] if str(error) else type(error).__name__
    return text.split("] ", 1)[-1].split(". This", 1)[0][:200]
