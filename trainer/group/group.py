"""The process group, formed again in the running process whenever the membership changes.

    group = open_group("10.0.0.7", torch.device("cpu"), timeout_seconds=30)
    group.form(uuid=..., rank=0, addresses=(("10.0.0.7", 4711), ...), deadline=...)
    model = group.wrap(module)              # DistributedDataParallel
    group.carry([ballot]); torch.autograd.backward(loss); sums = group.carried()     # raises GroupBroken
    group.all_reduce(tensor)                # the same
    group.interrupt("peer lost")            # from another thread: abandons pending collectives
    group.close()                           # before the interpreter ends

There are two ways to form a group. The installed torch decides which one is used:

* ``Reconfigured``: torch 2.15's private ``_reconfigure`` gives a ProcessGroup object new peers within milliseconds, so
  the DistributedDataParallel around the model is kept. That private API is used only in this module.
* ``Restarted``: ``destroy_process_group`` and ``init_process_group``, with a new DistributedDataParallel
  (``keeps_wrapper`` is False).

DistributedDataParallel alone does not survive the loss of a peer: an exception during backward leaves its reducer in an
inconsistent state. So a communication hook only starts an all-reduce for each bucket and tells the reducer that it is
finished. ``carried`` waits for all of them and stores the sums as gradients, or raises, and the step is discarded. The
hook sums and does not divide, because ranks weight their loss by their share of the batch (see ``step``). It sums in at
least 32 bits, and sends a few more numbers with the first bucket, so that they need no collective of their own.
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
"""Longest wait for pending collectives to fail after their connections were ended."""
_CLOSE_POLL_SECONDS = 0.005
_CONNECT_SECONDS = 0.6
"""Connection time-out for gloo. gloo waits five times as long for its peers' connections and can't be interrupted.
Three seconds allow two retries of a lost SYN."""


class Group(ABC):
    """The ranks of one generation. Only one thread uses it, but any thread may call ``interrupt``."""

    keeps_wrapper = False
    """Whether the result of ``wrap`` stays valid when the group is formed again."""

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
        self._reductions: list[tuple[Any, Sums]] = []
        self._in_flight: list[Any] = []
        """Collectives that have begun and are not known to have succeeded."""
        self._rooms: dict[int, Sums] = {}
        """For each bucket the memory in which it was summed last. Only on the CPU, as is lending: the kernel zeroes
        fresh memory, which takes as long as the sum. On a GPU torch already has the memory, and activations need it in
        between."""
        self._events: set[threading.Event] = set()
        self._listens: frozenset[connections.End] = frozenset()
        """The addresses at which gloo listens; empty with NCCL."""
        self._ends: frozenset[connections.End] = frozenset()
        """The addresses of all ranks: each connection of the generation has one of them."""
        self._lock = threading.Lock()

    @property
    def store_port(self) -> int:
        """Port of the torch store that this process serves for the generations in which it has rank 0."""
        return int(self._server.port)

    def wrap(self, module: torch.nn.Module) -> DistributedDataParallel:
        """Return ``module`` wrapped so that its gradients are summed over the group, in any generation."""
        # Newcomers build their wrapper alone, so it must not start collectives: no initial broadcast and no broadcast
        # of buffers. The loop's warm-up fixes the order of the buckets.
        with warnings.catch_warnings():
            # torch 2.15 announces a successor of broadcast_buffers, which cannot turn the broadcast off yet.
            warnings.simplefilter("ignore", FutureWarning)
            model = DistributedDataParallel(
                module, process_group=self._pg, init_sync=False, broadcast_buffers=False, gradient_as_bucket_view=True
            )
        # A lambda, because torch rejects unevaluated annotations.
        model.register_comm_hook(self, lambda group, bucket: group.reduce_bucket(bucket))
        return model

    @abstractmethod
    def _connect(self, uuid: int, store: MeetingStore) -> None:
        """Connect ``self.rank`` of ``self.size`` with its peers."""

    def _exchange(self, store: MeetingStore, word: str = "") -> list[str]:
        """Exchange the addresses of gloo and ``word`` with all peers, in one round. Return the words by rank."""
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
        """Join the group ``uuid`` as ``rank``. Every member must call this with the same addresses.

        Args:
            addresses: Host and ``store_port`` of each rank.
            deadline: Monotonic. After it, or after ``interrupt``, GroupBroken is raised and no group is joined.
            peers_are_there: Called several times a second while waiting for peers; raises GroupBroken if one is gone.
            superseded: Returns whether there is a newer generation; then GroupBroken is raised on all ranks or on none.
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
        """Abandon pending collectives. They and all later calls raise GroupBroken until the next ``form``."""
        with self._lock:  # held to the end: connections of the next generation have the same ends
            self._failure = self._failure or reason
            events, self._events = self._events, set()
            connections.sever(self._ends)
        self._abort()
        for event in events:
            event.set()

    def _abort(self) -> None:
        """Abort the communicator; otherwise NCCL's kernels, and with them the device, wait for a lost peer for ever."""
        if self.device.type == "cuda" and dist.is_initialized():
            with contextlib.suppress(RuntimeError):
                self._pg.abort()

    def close(self) -> None:
        """Abandon pending collectives and wait for their end. The group can't be used afterwards.

        gloo's threads release Python objects when a collective ends. If that happens while the interpreter ends, the
        process aborts and its exit code is lost.
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
        """Raise GroupBroken if anything has failed since ``form``."""
        if self._failure:
            raise GroupBroken(self._failure)

    def blame(self, error: RuntimeError) -> None:
        """Raise GroupBroken if a collective caused the error: a new DDP starts some in its first forward passes."""
        if isinstance(error, dist.DistError) or "gloo" in str(error):
            self.interrupt(_brief(error))
            self.check()

    def all_reduce(self, tensor: torch.Tensor, *, timeout_seconds: float | None = None) -> None:
        """Sum over all ranks, in place. Raise GroupBroken on failure, interruption or time-out."""
        self.complete([self.begin(tensor, timeout_seconds=timeout_seconds)], timeout_seconds=timeout_seconds)

    def begin(self, tensor: torch.Tensor, *, timeout_seconds: float | None = None) -> Any:
        """Start a sum, in place, and return its work for ``complete``. Never raises: a failure shows in ``complete``.

        All ranks must begin the same sums in the same order.
        """
        if self._failure:
            return None
        try:
            work = self._pg.allreduce([tensor], _options(timeout_seconds or self._timeout_seconds))
        except RuntimeError as error:
            self.interrupt(_brief(error))
            return None
        self._in_flight.append(work)
        return work

    def complete(self, works: Sequence[Any], *, timeout_seconds: float | None = None) -> None:
        """Return when all these sums are there. Raise GroupBroken like ``all_reduce``."""
        for work in works:
            self._wait_for(work, timeout_seconds or self._timeout_seconds)

    def _wait_for(self, work: Any, seconds: float) -> None:
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
        """Return whether the work has succeeded, after a short wait that can't be interrupted.

        Most collectives take no longer, and a callback would need another switch of threads. Not used with NCCL, which
        aborts its communicator when a wait times out.
        """
        if self._on_cpu:
            try:
                return bool(work.wait(_SOON))
            except RuntimeError:  # it takes longer, or has failed
                return False
        return False

    def _look_until_done(self, work: Any, deadline: float) -> bool:
        """Return whether the work ends in time. ``interrupt`` ends it too, because it ends the connections.

        A callback would run in gloo's thread, possibly after the end of the interpreter: see ``close``.
        """
        while not work.is_completed():
            self.check()
            if time.monotonic() > deadline:
                return False
            self._done_soon(work)
        return True

    def _sleep_until_done(self, work: Any, deadline: float) -> bool:
        """Return whether the work ends in time. Raise GroupBroken when interrupted."""
        done = threading.Event()
        with self._lock:
            self._events.add(done)
        try:
            self.check()  # a later `interrupt` sets the event
            work.get_future().add_done_callback(lambda _: done.set())
            if not done.wait(deadline - time.monotonic()):
                return False
            self.check()
            return True
        finally:
            with self._lock:
                self._events.discard(done)

    def confirm(self, *, timeout_seconds: float | None = None) -> None:
        """Return when every rank has called this and so has done everything before it. Raise like ``all_reduce``."""
        self.all_reduce(torch.zeros(1, device=self.device), timeout_seconds=timeout_seconds)

    def carry(self, load: Sequence[torch.Tensor]) -> None:
        """Sum ``load`` (float32, one dimension each) together with the gradients of the next backward pass."""
        self._load, self._reductions = load, []

    def carried(self) -> Sequence[torch.Tensor]:
        """Wait for the sums of the gradients and of the load over all ranks.

        Return the sums of the load, one for each part; they are valid until the next backward pass. Raise GroupBroken
        if a sum is missing: then the gradients are invalid.
        """
        reductions, self._reductions = self._reductions, []
        self.check()
        if not reductions:
            raise RuntimeError("no gradient was computed: the loss depends on none of the model's parameters")
        self.complete([work for work, _ in reductions])
        for _, sums in reductions:
            sums.give(lend=self._on_cpu)
            if self._on_cpu:
                self._rooms[sums.index] = sums
        return reductions[0][1].load

    def reduce_bucket(self, bucket: GradBucket) -> torch.futures.Future[torch.Tensor]:
        """Start the sum of a bucket. This is DDP's communication hook; it never fails, see the module's docstring."""
        buffer = bucket.buffer()
        load, self._load = self._load, ()  # the first bucket is the same one on all ranks
        # Not the bucket itself: an abandoned all-reduce may still write to it during the next step.
        sums = self._rooms.pop(bucket.index(), None)
        if sums is None or not sums.take(buffer, load):
            sums = Sums(bucket, buffer, load)
        self._reductions.append((self.begin(sums.whole), sums))
        return sums.done


class Reconfigured(Group):
    """One ProcessGroup object for the whole process; torch's ``_reconfigure`` gives it new peers."""

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
    """Return the best kind of group that this torch supports, not formed yet. ``host`` is this process's address."""
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
    """Return the first line of an error. torch's messages have many lines and name files of its build machine."""
    text = str(error).splitlines()[0] if str(error) else type(error).__name__
    return text.split("] ", 1)[-1].split(". This", 1)[0][:200]
