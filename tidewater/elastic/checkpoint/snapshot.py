"""A copy of the training state in host memory. Training waits for it, so it has to be quick.

    snapshots = Snapshots()
    snapshot = snapshots.take(state.tree())      # training continues after this
    snapshot.wait()                              # in the writing thread: until the copies from the GPU are finished
    ...                                          # the next take() overwrites this one

The memory is reused for the next snapshot. Fresh memory takes several times as long as the copy: the kernel zeroes
every page, and for a GPU each page must be pinned. Copies from a GPU are only queued, on the stream that training uses,
between two steps. So they see a consistent state, and the training thread does not wait for them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from tidewater.elastic import tree


@dataclass(frozen=True)
class Snapshot:
    """A state that no longer changes."""

    parts: tree.Parts
    wait: Callable[[], None]


class Snapshots:
    """Creates snapshots, one at a time in the reused memory."""

    def __init__(self) -> None:
        self._memory: dict[str, Tensor] = {}

    def take(self, state: Mapping[str, Any], *, fresh: bool = False) -> Snapshot:
        """Copy all tensors. Raise ConfigError if the state contains something that can't be stored.

        With ``fresh``, the snapshot has memory of its own, because the last one is still being written.
        """
        memory: dict[str, Tensor] = {}
        values: list[Tensor] = []

        def copy(name: str, value: Tensor) -> Tensor:
            memory[name] = kept = _new(value) if fresh else self._room(name, value)
            values.append(value.detach())
            return kept

        with torch.no_grad():
            parts = tree.split(state, copy)
            devices = {value.device for value in values if value.is_cuda}
            if values:
                # PyTorch orders it with other work on the current stream. On the CPU it is finished on return.
                torch._foreach_copy_(list(memory.values()), values, non_blocking=bool(devices))
        if not fresh:
            self._memory = memory  # releases the memory of tensors that the state no longer has
        return Snapshot(parts, _when_done(devices))

    def _room(self, name: str, value: Tensor) -> Tensor:
        old = self._memory.get(name)
        if old is not None and (old.shape, old.dtype, old.is_pinned() if value.is_cuda else False) == (
            value.shape,
            value.dtype,
            value.is_cuda,
        ):
            return old
        return _new(value)


def _new(value: Tensor) -> Tensor:
    return torch.empty_like(value, device="cpu", pin_memory=value.is_cuda, requires_grad=False)


def _when_done(devices: set[torch.device]) -> Callable[[], None]:
    events = [torch.cuda.current_stream(device).record_event() for device in devices]

    def wait() -> None:
        for event in events:
            event.synchronize()

    return wait
