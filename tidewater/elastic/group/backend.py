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

_OF_A_PEER = ("by peer", "remote", "Broken pipe", "refused", "imed out", "imeout", "reach", "No route to host")
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

    @abstractmethod
    def finish(self, works: Sequence[Any], check: Callable[[], None], deadline: float) -> bool:
        """Wait until the results of all works have reached the host. Return whether they have before the deadline.

        Args:
            works: Results of ``begin``.
            check: Called often; ends the wait by raising.
            deadline: Monotonic.

        Raise RuntimeError if one has failed. After that, and after an abort, their tensors may contain anything.
        """

    @abstractmethod
    def error(self) -> str:
        """Return what is wrong with the group, for failures that the works do not report; empty if nothing is."""

    @abstractmethod
    def abort(self) -> None:
        """End all collectives in progress, without their results. Other threads call this too, more than once."""

    @abstractmethod
    def close(self) -> None:
        """Release everything; the collectives have been aborted."""

    def _initialize(self, store: Any, rank: int, size: int, **more: Any) -> None:
        """Make the default process group."""
        initialize: Any = dist.init_process_group  # its type information lacks what the private API adds
        timeout = timedelta(seconds=self.connect_seconds)  # each sum has its own
        # torch counts its groups, and their keys in the store contain the number. An attempt that failed is counted
        # until a group is destroyed, so the ranks for which that attempt had not begun would use other keys.
        c10d._world.group_count = 0
        initialize(self.name, store=store, rank=rank, world_size=size, timeout=timeout, **more)
        self.pg = c10d._get_default_group()


def can_reconfigure(library: str) -> bool:
    """Return whether torch may be asked for a group of ``library`` (its name) that can be given new peers."""
    if not all(hasattr(c10d, name) for name in ("_reconfigure", "_get_reconfigure_handle", "_supports_reconfigure")):
        return False
    if library != "nccl":
        return True
    # torch has two implementations of that name, and the older one refuses. TORCH_DIST_USE_NCCL2 chooses one; if it is
    # not set, torch 2.14 takes the older one and torch 2.15 the newer one (_register_builtin_nccl_backend).
    registry: Any = c10d.Backend
    registry._ensure_backend_registered(library)
    newer: object = c10d._create_nccl2_process_group
    return bool(registry._plugins[library.upper()].creator_fn is newer)


def supports_reconfigure() -> bool:
    """Return whether the default process group supports that API."""
    return bool(c10d._supports_reconfigure())


@functools.cache
def options(seconds: float) -> Any:
    """Return the options of a sum that torch abandons after ``seconds``."""
    given = dist.AllreduceOptions()
    given.timeout = timedelta(seconds=seconds)
    return given


def reconfigure(uuid: int, handles: list[str], seconds: float) -> None:
    """Give the default process group new peers, by their handles in the order of their ranks."""
    torch_reconfigure: Callable[..., Any] = c10d._reconfigure
    torch_reconfigure(uuid=uuid, handles=handles, timeout=timedelta(seconds=seconds)).wait()


def handle() -> str:
    """Return what the peers need to connect with the default process group."""
    get: Callable[[], str] = c10d._get_reconfigure_handle
    return get()
