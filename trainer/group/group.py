"""The process group, formed again in the running process whenever the membership changes.

    group = open_group("10.0.0.7", torch.device("cpu"), timeout_seconds=30)
    group.form(uuid=..., rank=0, addresses=(("10.0.0.7", 4711), ...), deadline=...)
    model = group.wrap(module)              # DistributedDataParallel
    group.carry([ballot]); torch.autograd.backward(loss); sums = group.carried()     # raises GroupBroken
    group.all_reduce(tensor)                # the same
    group.interrupt("peer lost")            # from another thread: abandons pending collectives
    group.close()                           # before the interpreter ends

``backend`` says what differs between gloo on CPUs and NCCL on GPUs. There are two ways to form a group. The installed
torch decides which one is used:

* ``Reconfigured``: torch 2.15's private ``_reconfigure`` gives a ProcessGroup object new peers within milliseconds, so
  the DistributedDataParallel around the model is kept. That private API is used only in ``backend``.
* ``Restarted``: a new default process group, with a new DistributedDataParallel (``keeps_wrapper`` is False).

DistributedDataParallel alone does not survive the loss of a peer: an exception during backward leaves its reducer in an
inconsistent state. So a communication hook only starts an all-reduce for each bucket and tells the reducer that it is
finished. ``carried`` waits for all of them and stores the sums as gradients, or raises, and the step is discarded. The
hook sums and does not divide, because ranks weight their loss by their share of the batch (see ``step``). It sums in at
least 32 bits, and sends a few more numbers with the first bucket, so that they need no collective of their own.
"""

from __future__ import annotations

import os
import threading
import time
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import GradBucket, TCPStore
from torch.nn.parallel import DistributedDataParallel

from trainer.errors import GroupBroken
from trainer.group import ballot, gloo, nccl, nccl_environment, rendezvous
from trainer.group.backend import Backend, can_reconfigure, supports_reconfigure
from trainer.group.rendezvous import Address, MeetingStore
from trainer.group.sums import Sums


class Group:
    """The ranks of one generation. Only one thread uses it, but any thread may call ``interrupt``."""

    def __init__(self, backend: Backend) -> None:
        self.device = backend.device
        self._on_cpu = self.device.type == "cpu"
        self.rank = 0
        self.size = 1
        self.uuid = 0
        """Of the generation; see ``ballot.seal``."""
        self._backend = backend
        self._server = TCPStore("0.0.0.0", 0, is_master=True, wait_for_workers=False)
        self._failure: str | None = None
        self._load: Sequence[torch.Tensor] = ()
        self._reductions: list[tuple[Any, Sums]] = []
        self._rooms: dict[int, Sums] = {}
        """For each bucket the memory in which it was summed last. Only on the CPU, as is lending: the kernel zeroes
        fresh memory, which takes as long as the sum. On a GPU torch already has the memory, and activations need it in
        between."""
        self._lock = threading.Lock()

    @property
    def store_port(self) -> int:
        """Port of the torch store that this process serves for the generations in which it has rank 0."""
        return int(self._server.port)

    @property
    def keeps_wrapper(self) -> bool:
        """Whether the result of ``wrap`` has stayed valid when the group was formed last."""
        return self._backend.keeps_wrapper

    @property
    def _pg(self) -> dist.ProcessGroup:
        return self._backend.pg

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
            self._backend.leave()
        self.uuid, self.rank, self.size = uuid, rank, len(addresses)

        def check() -> None:
            self.check()
            peers_are_there()

        try:
            server = self._server if rank == 0 else rendezvous.join(addresses[0], check, deadline)
            store = MeetingStore(uuid, server, check, deadline)
            store.assemble(rank, self.size, superseded)
            self._backend.connect(uuid, store, rank, self.size)
        except (RuntimeError, ValueError) as error:  # torch's own errors are RuntimeErrors
            raise GroupBroken(f"could not connect to the other workers: {_brief(error)}") from error

    def interrupt(self, reason: str) -> None:
        """Abandon pending collectives. They and all later calls raise GroupBroken until the next ``form``."""
        with self._lock:  # held to the end: connections of the next generation have the same ends
            self._failure = self._failure or reason  # first: an aborted collective may seem to have succeeded
            self._backend.abort()

    def close(self) -> None:
        """Abandon pending collectives and wait for their end. The group can't be used afterwards."""
        self.interrupt("it is closed")
        self._backend.close()

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
            return self._backend.begin(tensor, timeout_seconds or self._backend.timeout_seconds)
        except RuntimeError as error:
            self.interrupt(_brief(error))
            return None

    def complete(self, works: Sequence[Any], *, timeout_seconds: float | None = None) -> None:
        """Return when the results of all these sums have reached the host. Raise GroupBroken like ``all_reduce``."""
        seconds = timeout_seconds or self._backend.timeout_seconds
        self.check()
        try:
            if not self._backend.finish(works, self.check, time.monotonic() + seconds):
                self.interrupt(f"no answer from a peer within {seconds:g} s")
            elif error := self._backend.error():
                self.interrupt(error)
        except RuntimeError as error:
            self.interrupt(_brief(error))
        self.check()

    def confirm(self, *, timeout_seconds: float | None = None) -> None:
        """Return when every rank has called this and so has done everything before it. Raise like ``all_reduce``."""
        self.tally([], timeout_seconds=timeout_seconds)

    def tally(self, values: Sequence[float], *, timeout_seconds: float | None = None) -> Sequence[float]:
        """Return the sums of some numbers over all ranks, in 64 bits, to decide by. Raise like ``all_reduce``."""
        sealed = torch.tensor([*ballot.seal(self.uuid), *values], dtype=torch.float64, device=self.device)
        self.all_reduce(sealed, timeout_seconds=timeout_seconds)
        return self.opened(sealed.tolist())

    def opened(self, sums: Sequence[float]) -> Sequence[float]:
        """Return sums without their seal (see ``ballot``). Raise GroupBroken if it is not of this generation."""
        try:
            return ballot.opened(sums, self.uuid, self.size)
        except GroupBroken as error:
            self.interrupt(str(error))
            raise

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


def open_group(host: str, device: torch.device, timeout_seconds: float) -> Group:
    """Return the best kind of group that this torch supports, not formed yet. ``host`` is this process's address."""
    rendezvous.use_interface_of(host)
    if device.type == "cuda":
        os.environ.update(nccl_environment.needed(os.environ))
    library = nccl if device.type == "cuda" else gloo
    if can_reconfigure():
        backend = library.Reconfigured(device, timeout_seconds)
        if supports_reconfigure():
            return Group(backend)
        backend.close()
    return Group(library.Restarted(device, timeout_seconds))


def _brief(error: Exception) -> str:
    """Return the first line of an error. torch's messages have many lines and name files of its build machine."""
    text = str(error).splitlines()[0] if str(error) else type(error).__name__
    return text.split("] ", 1)[-1].split(". This", 1)[0][:200]
