"""What differs between the libraries that sum over the ranks: gloo on CPUs, NCCL on GPUs.

A collective is *done* when its result has reached the host, so that the host can decide something by it. The libraries
say so in different ways, fail in different ways, and have to be ended in different ways. ``Group`` contains what is
common: deadlines, interruption, and which generation is the current one.
"""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d

from tidewater.elastic.group.rendezvous import MeetingStore

_NAME = "tidewater"
"""Of the group, in torch's messages."""
_OF_A_PEER = (
    *("by peer", "remote", "Broken pipe", "refused", "imed out", "imeout", "reach", "No route to host", "is down"),
    *("connection abort", "was aborted", "ocket closed", "unexpectedly closed", "progress error", "truncated"),
)
"""Words of gloo's and NCCL's errors that another process or the network may have caused."""


def is_of_a_peer(error: Exception) -> bool:
    """Return whether a peer may have caused an error of gloo or NCCL: it has ended, does not answer, or has failed."""
    return any(words in str(error) for words in _OF_A_PEER)


class Backend(ABC):
    """The collectives of one generation after the other. Only ``abort`` may be called by another thread."""

    name: str
    """torch's name of the library."""

    def __init__(self, device: torch.device, timeout_seconds: float) -> None:
        self.device = device
        self.timeout_seconds = timeout_seconds
        self.connect_seconds = timeout_seconds
        """Time-out of torch for connecting."""
        self.group_seconds = timeout_seconds
        """Time-out that torch gets for a group. Each sum has its own too, but not every library respects that."""
        self.waited_seconds = 0.0
        """Time since the start for which this process had done its part of sums, and the others had not."""
        self.pg: dist.ProcessGroup

    @abstractmethod
    def leave(self) -> None:
        """Leave the current generation. Its collectives have ended or been aborted: ``abort`` means the next one."""

    @abstractmethod
    def prepare(self) -> None:
        """Check that this process can use its device, before the others wait for it.

        Raise DeviceFailed if it does not answer; what torch raises if it has failed.
        """

    @abstractmethod
    def connect(self, uuid: int, store: MeetingStore, rank: int, size: int) -> None:
        """Connect with the peers of the generation ``uuid``.

        Raise RuntimeError if that fails; TrainerError if it always will, so that the process has to end.
        """

    def begin(self, tensor: torch.Tensor, seconds: float) -> Any:
        """Start a sum over all ranks, in place. Return its work. Raise RuntimeError if that fails."""
        return self.pg.allreduce([tensor], options(seconds))

    def broadcast(self, tensor: torch.Tensor, source: int, seconds: float) -> Any:
        """Start to copy the tensor of the rank ``source``, which is only read, to the others; like ``begin``."""
        return self.pg.broadcast([tensor], broadcast_options(source, seconds))

    @abstractmethod
    def finish(self, works: Sequence[Any], check: Callable[[], None], deadline: float) -> bool:
        """Wait until the results of all works have reached the host. Return whether they have before the deadline.

        Args:
            works: Results of ``begin`` and ``broadcast``.
            check: Called often; ends the wait by raising.
            deadline: Monotonic.

        Raise RuntimeError if one has failed. After that, and after an abort, their tensors may contain anything.
        """

    @abstractmethod
    def waits(self) -> bool:
        """Return whether this process has done its part of a sum that is not complete. Any thread may call this."""

    @abstractmethod
    def error(self) -> str:
        """Return what is wrong with the group, for failures that the works do not report; empty if nothing is."""

    @abstractmethod
    def abort(self) -> None:
        """End all collectives in progress, without their results. Other threads call this too, more than once."""

    def ended(self, works: Sequence[Any]) -> bool:
        """Return whether none of these works, which were aborted, writes to its tensor any more.

        False only if the next ``prepare`` does not wait for them.
        """
        return True

    @abstractmethod
    def close(self) -> None:
        """Release everything; the collectives have been aborted."""

    def _open(self, store: Any, rank: int, size: int, *, reconfigurable: bool = False) -> dist.ProcessGroup:
        """Return a new group of torch that torch's global state doesn't know: it is not the default group.

        So the script and its libraries may have a default group, and groups of it, with processes and a life of their
        own. This does what ``_new_process_group_helper`` of torch.distributed does, without the registration.
        """
        kind: Any = c10d.Backend.backend_type_map[self.name]
        private: Any = c10d  # not typed
        options = private._DistributedBackendOptions()
        options.store, options.group_rank, options.group_size = store, rank, size
        options.timeout = timedelta(seconds=self.group_seconds)
        options.group_id, options.global_ranks_in_group = _NAME, []
        if reconfigurable:
            options.enable_reconfigure = True
        made = dist.ProcessGroup(store, rank, size)
        group: Any = made  # not typed
        options.process_group = group
        group._set_default_backend(kind)
        if self.device.index is not None:
            group.bound_device_id = self.device  # what is registered afterwards inherits it
        group._register_backend(self.device, kind, _creator(self.name)(options, self._library_options()))
        group._set_group_name(_NAME)
        return made

    def _library_options(self) -> Any:
        """Return the options of the library for a new group; None for its defaults."""
        return None


def _creator(library: str) -> Callable[..., Any]:
    """Return torch's function that makes what sums in a group of ``library`` (its name)."""
    registry: Any = c10d.Backend
    registry._ensure_backend_registered(library)
    creator: Callable[..., Any] = registry._plugins[library.upper()].creator_fn
    return creator


def can_reconfigure(library: str) -> bool:
    """Return whether torch may be asked for a group of ``library`` (its name) that can be given new peers."""
    if not all(hasattr(c10d, name) for name in ("_reconfigure", "_get_reconfigure_handle", "_supports_reconfigure")):
        return False
    if library != "nccl":
        return True
    # torch has two implementations of that name, and the older one refuses. TORCH_DIST_USE_NCCL2 chooses one; if it is
    # not set, torch 2.14 takes the older one and torch 2.15 the newer one (_register_builtin_nccl_backend).
    newer: object = c10d._create_nccl2_process_group
    return _creator(library) is newer


def supports_reconfigure(group: Any) -> bool:
    """Return whether a process group supports that API."""
    return bool(c10d._supports_reconfigure(group))


def duration(seconds: float) -> timedelta:
    """Return a time-out as torch wants it."""
    return timedelta(seconds=seconds)


@functools.cache
def options(seconds: float) -> Any:
    """Return the options of a sum that torch abandons after ``seconds``."""
    given = dist.AllreduceOptions()
    given.timeout = timedelta(seconds=seconds)
    return given


@functools.cache
def broadcast_options(source: int, seconds: float) -> Any:
    """Return the options of a broadcast that torch abandons after ``seconds``."""
    given = dist.BroadcastOptions()
    given.rootRank, given.rootTensor, given.timeout = source, 0, timedelta(seconds=seconds)
    return given


def reconfigure(group: Any, uuid: int, handles: list[str], seconds: float) -> None:
    """Give a process group new peers, by their handles in the order of their ranks."""
    torch_reconfigure: Callable[..., Any] = c10d._reconfigure
    torch_reconfigure(uuid=uuid, handles=handles, group=group, timeout=timedelta(seconds=seconds)).wait()


def handle(group: Any) -> str:
    """Return what the peers need to connect with a process group."""
    get: Callable[[Any], str] = c10d._get_reconfigure_handle
    return get(group)
