"""A copy of the training state in host memory, made while training stands still; so it has to be quick.

    snapshots = Snapshots()
    snapshot = snapshots.take(state.tree())      # training goes on now
    snapshot.wait()                              # in the thread that writes: until the copies from the GPU are done
    ...                                          # the next take() overwrites this one

The memory is kept from one snapshot to the next. Fresh memory costs several times the copy: the kernel zeroes every
page, and for a GPU each must be pinned. From a GPU the copies are only queued, behind the step before and ahead of the
step after, on the stream that training uses: so they see one state, and the training thread does not wait for them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from trainer import tree


@dataclass(frozen=True)
class Snapshot:
    """A state that no longer changes."""

    parts: tree.Parts
    wait: Callable[[], None]


class Snapshots:
    """Takes one snapshot at a time."""

    def __init__(self) -> None:
        self._memory: dict[str, Tensor] = {}

    def take(self, state: Mapping[str, Any]) -> Snapshot:
        """Copy all tensors. Raises ConfigError if the state holds something that can't be kept."""
        memory: dict[str, Tensor] = {}
        devices: set[torch.device] = set()

        def copy(name: str, value: Tensor) -> Tensor:
            memory[name] = kept = self._room(name, value)
            # PyTorch orders this with everything else on the current stream; on the CPU it is done on return.
            kept.copy_(value.detach(), non_blocking=value.is_cuda)
            if value.is_cuda:
                devices.add(value.device)
            return kept

        with torch.no_grad():
            parts = tree.split(state, copy)
        self._memory = memory  # what the state no longer has is let go
        return Snapshot(parts, _when_done(devices))

    def _room(self, name: str, value: Tensor) -> Tensor:
        old = self._memory.get(name)
        if old is not None and (old.shape, old.dtype, old.is_pinned() if value.is_cuda else False) == (
            value.shape,
            value.dtype,
            value.is_cuda,
        ):
            return old
        return torch.empty_like(value, device="cpu", pin_memory=value.is_cuda, requires_grad=False)


def _when_done(devices: set[torch.device]) -> Callable[[], None]:
    events = [torch.cuda.current_stream(device).record_event() for device in devices]

    def wait() -> None:
        for event in events:
            event.synchronize()

    return wait
