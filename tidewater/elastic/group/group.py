"""The process group, formed again in the running process whenever the membership changes.

    group = open_group("10.0.0.7", torch.device("cpu"), timeout_seconds=30, peers=server)
    group.form(uuid=..., rank=0, addresses=(Address("10.0.0.7", 4711, "w-0-1f"), ...), deadline=...)
    group.all_reduce(tensor)                # raises GroupBroken
    work = group.begin(tensor); group.complete([work])      # the same
    work = group.broadcast(tensor, 2); group.complete([work])   # all get the tensor of rank 2
    group.interrupt("peer lost")            # from another thread: abandons pending collectives
    group.close()                           # before the interpreter ends

``backend`` says what differs between gloo on CPUs and NCCL on GPUs. There are two ways to form a group. The installed
torch decides which one is used:

* ``Reconfigured``: torch's private ``_reconfigure``, of 2.14 and 2.15, gives a ProcessGroup object new peers within
  milliseconds. That private API is used only in ``backend``.
* ``Restarted``: a new process group.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import os
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch

from tidewater.elastic.addresses import Address
from tidewater.elastic.errors import GroupBroken
from tidewater.elastic.group import ballot, gloo, nccl, nccl_environment, rendezvous
from tidewater.elastic.group.backend import Backend, can_reconfigure, is_of_a_peer, supports_reconfigure
from tidewater.elastic.group.rendezvous import MeetingStore
from tidewater.elastic.group.siblings import Siblings
from tidewater.elastic.machine_errors import device_failure
from tidewater.elastic.peer.keyvalue import Keys, LocalKeys
from tidewater.elastic.peer.server import PeerServer

_ABANDON_SECONDS = 2.0
_ABANDON_POLL_SECONDS = 0.005
_DIGITS, _DIGIT_BITS = 3, 20
"""Of a digest for ``gather``."""


class Group:
    """The ranks of one generation. Only one thread uses it, but any thread may call ``interrupt``.

    An error of this process's own device is no failure of the group: every method raises it as it is.
    """

    def __init__(self, backend: Backend, peers: PeerServer | None = None, siblings: Siblings | None = None) -> None:
        self.device = backend.device
        self.rank = 0
        self.size = 1
        self.uuid = 0
        """Of the generation; see ``ballot.seal``."""
        self.own_failures = 0
        """Generations since the last step that failed for a cause in this process."""
        self._backend = backend
        self._peers = peers
        self._failure: str | None = None
        self._lock = threading.Lock()
        self._siblings = siblings
        if siblings:
            reason = "another process of this pod has given the group up"

            def given_up(uuid: int) -> None:
                self.interrupt(reason, of=uuid)

            siblings.listen(given_up)
            if peers:
                peers.given_up = given_up

    @property
    def waited_seconds(self) -> float:
        """Return for how long, since the start, this rank had done its part of sums and the others had not."""
        return self._backend.waited_seconds

    def waits(self) -> bool:
        """Return whether this rank has done its part of a sum and waits for the others. Any thread may call this."""
        return self._backend.waits()

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
            addresses: That of each rank's ``PeerServer``.
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
            self._backend.prepare()
            store = MeetingStore(self._keys(uuid, rank, addresses, check, deadline), check, deadline)
            store.assemble(rank, self.size, superseded)
            self._backend.connect(uuid, store, rank, self.size)
        except (RuntimeError, ValueError) as error:  # torch's own errors are RuntimeErrors
            self._judge(error)
            raise GroupBroken(f"could not connect to the other workers: {_brief(error)}") from error

    def _keys(
        self, uuid: int, rank: int, addresses: tuple[Address, ...], check: Callable[[], None], deadline: float
    ) -> Keys:
        """Return the keys at which the ranks meet, in the process of rank 0."""
        if self._peers is None:
            return LocalKeys()
        if rank == 0:
            return self._peers.board.at(uuid)
        return rendezvous.join(self._peers.identity, addresses[0], uuid, check, deadline)

    def interrupt(self, reason: str, *, of: int | None = None) -> None:
        """Abandon pending collectives. They and all later calls raise GroupBroken until the next ``form``.

        With ``of``, only if this is the uuid of the current generation.
        """
        with self._lock:  # held to the end: connections of the next generation have the same ends
            if of not in (None, self.uuid):
                return
            is_first = not self._failure
            self._failure = self._failure or reason  # first: an aborted collective may seem to have succeeded
            if is_first and self._siblings:
                self._siblings.give_up(self.uuid)
            self._backend.abort()

    def close(self) -> None:
        """Abandon pending collectives and wait for their end. The group can't be used afterwards."""
        if self._siblings:
            self._siblings.close()
            self._siblings = None  # this is the end of this process only
        self.interrupt("it is closed")
        self._backend.close()

    def check(self) -> None:
        """Raise GroupBroken if anything has failed since ``form``."""
        if self._failure:
            raise GroupBroken(self._failure)

    def _judge(self, error: Exception) -> None:
        """Count a failure with a cause in this process. Raise the error if its device has failed.

        A failure after an interruption is a consequence of that. Alone in its group, a process has no peer to blame.
        """
        if device_failure(error):
            raise error
        if not self._failure and (self.size == 1 or not is_of_a_peer(error)):
            self.own_failures += 1

    def all_reduce(self, tensor: torch.Tensor, *, timeout_seconds: float | None = None) -> None:
        """Sum over all ranks, in place. Raise GroupBroken on failure, interruption or time-out."""
        self.complete([self.begin(tensor, timeout_seconds=timeout_seconds)], timeout_seconds=timeout_seconds)

    def begin(self, tensor: torch.Tensor, *, timeout_seconds: float | None = None) -> Any:
        """Start a sum, in place, and return its work for ``complete``, which raises if this fails.

        All ranks must begin the same sums in the same order.
        """
        return self._started(self._backend.begin, tensor, timeout_seconds or self._backend.timeout_seconds)

    def broadcast(self, tensor: torch.Tensor, source: int) -> Any:
        """Start to copy the tensor of the rank ``source``, which is only read, to the others; like ``begin``."""
        return self._started(self._backend.broadcast, tensor, source, self._backend.timeout_seconds)

    def _started(self, start: Callable[..., Any], *given: Any) -> Any:
        if self._failure:
            return None
        try:
            return start(*given)
        except RuntimeError as error:
            self._judge(error)
            self.interrupt(_brief(error))
            return None

    def complete(self, works: Sequence[Any], *, timeout_seconds: float | None = None) -> None:
        """Return when the results of all these works have reached the host. Raise GroupBroken like ``all_reduce``."""
        seconds = timeout_seconds or self._backend.timeout_seconds
        self.check()
        try:
            if not self._backend.finish(works, self.check, time.monotonic() + seconds):
                self.interrupt(f"no answer from a peer within {seconds:g} s")
            elif error := self._backend.error():
                self.interrupt(error)
        except RuntimeError as error:
            self._judge(error)
            self.interrupt(_brief(error))
        self.check()

    def abandon(self, works: Sequence[Any], reason: str) -> None:
        """Interrupt, and wait until these works no longer write to their tensors, so that others may.

        Not for long: one that gloo never ends is stuck while it sends, which it does after it has received.
        """
        self.interrupt(reason)
        begun, deadline = [work for work in works if work is not None], time.monotonic() + _ABANDON_SECONDS
        while not self._backend.ended(begun) and time.monotonic() < deadline:
            time.sleep(_ABANDON_POLL_SECONDS)

    def confirm(self, *, timeout_seconds: float | None = None) -> None:
        """Return when every rank has called this and so has done everything before it. Raise like ``all_reduce``."""
        self.tally([], timeout_seconds=timeout_seconds)

    def tally(self, values: Sequence[float], *, timeout_seconds: float | None = None) -> Sequence[float]:
        """Return the sums of some numbers over all ranks, in 64 bits, to decide by. Raise like ``all_reduce``."""
        sealed = ballot.numbers([*ballot.seal(self.uuid), *values], self.device, torch.float64)
        self.all_reduce(sealed, timeout_seconds=timeout_seconds)
        return self.opened(sealed.tolist())

    def gather(self, data: bytes) -> list[bytes]:
        """Return what each rank has given, by rank. If all have given the same, only a digest is sent.

        For little otherwise: every byte travels as a number of ``tally``.
        """
        digits = _digits(data)
        sizes = [len(data) if rank == self.rank else 0 for rank in range(self.size)]
        sums = list(map(int, self.tally([*digits, *(each**2 for each in digits), *sizes])))
        once, squared, sizes = sums[:_DIGITS], sums[_DIGITS : 2 * _DIGITS], sums[2 * _DIGITS :]
        if all(self.size * two == one**2 for one, two in zip(once, squared, strict=True)):  # all digits are equal
            return [data] * self.size
        ends = list(itertools.accumulate(sizes, initial=0))
        table = [0] * ends[-1]
        table[ends[self.rank] : ends[self.rank + 1]] = data
        found = bytes(map(int, self.tally(table)))
        return [found[start:end] for start, end in itertools.pairwise(ends)]

    def opened(self, sums: Sequence[float]) -> Sequence[float]:
        """Return sums without their seal (see ``ballot``). Raise GroupBroken if it is not of this generation."""
        try:
            return ballot.opened(sums, self.uuid, self.size)
        except GroupBroken as error:
            self.interrupt(str(error))
            raise


def await_all(group: Group) -> None:
    """Return when every rank has read the last sums, or one is lost. A rank calls this before it ends because of them.

    Otherwise the rank that has them first is gone before the others have read theirs, and these wait for it.
    """
    with contextlib.suppress(GroupBroken):
        group.confirm()


def open_group(
    host: str,
    device: torch.device,
    timeout_seconds: float,
    peers: PeerServer | None = None,
    siblings: Siblings | None = None,
) -> Group:
    """Return the best kind of group that this torch supports, not formed yet.

    Args:
        host: Address of this process.
        device: Where the tensors are.
        timeout_seconds: Longest wait for a peer within a collective.
        peers: Server at which the others meet this process when it has rank 0. None: it is always alone in its group.
        siblings: The processes that give a generation up together with this one. None: those of its GPUs, if any.
    """
    rendezvous.use_interface_of(host)
    on_gpu = device.type == "cuda"
    siblings = siblings or (Siblings.of(os.environ) if on_gpu else None)
    if on_gpu:
        os.environ.update(nccl_environment.needed(os.environ, timeout_seconds))
    library = nccl if on_gpu else gloo
    if can_reconfigure("nccl" if on_gpu else "gloo"):
        backend = library.Reconfigured(device, timeout_seconds)
        if supports_reconfigure(backend.pg):
            return Group(backend, peers, siblings)
        backend.close()
    return Group(library.Restarted(device, timeout_seconds), peers, siblings)


def _digits(data: bytes) -> list[int]:
    """Return a digest as numbers. float64 has the sum of their squares over 2^13 ranks without rounding."""
    number = int.from_bytes(hashlib.sha256(data).digest())
    return [number >> place * _DIGIT_BITS & 2**_DIGIT_BITS - 1 for place in range(_DIGITS)]


def _brief(error: Exception) -> str:
    """Return the first line of an error. torch's messages have many lines and name files of its build machine."""
    text = str(error).splitlines()[0] if str(error) else type(error).__name__
    return text.split("] ", 1)[-1].split(". This", 1)[0][:200]
