"""The steps of a process that divides a model with others of its worker.

The passes of all processes of a worker belong together: ``fully_shard`` collects the parameters and scatters the
gradients in them. So each process makes the same number of passes, also with micro-batches of weight 0, and no failure
of a group ends the passes of one process. Then each process sums its part of the gradients with its counterparts.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch

from tidewater.elastic.data.device import leaves
from tidewater.elastic.errors import ConfigError, OutOfMemory, ShortOfMemory
from tidewater.elastic.group.group import Group
from tidewater.elastic.group.replica import Replica
from tidewater.elastic.method.losses import Part
from tidewater.elastic.session.state import State
from tidewater.elastic.session.step import Stepper, Vote
from tidewater.elastic.training import Training


class ShardedStepper(Stepper):
    """Makes steps with a divided model."""

    _divides = True

    def __init__(self, training: Training, state: State, group: Group, *, replica: Replica, **settings: Any) -> None:
        """``settings``: those of ``Stepper``."""
        super().__init__(training, state, group, **settings)
        self._replica = replica
        self._outputs: list[torch.Tensor] = []
        """What the model has returned in this pass, and can be differentiated."""
        training.model.register_forward_hook(self._note)

    @property
    def place(self) -> tuple[int, int]:
        """The rank of this process among those of all workers, and their number."""
        replica, group = self._replica, self._group
        return group.rank * replica.size + replica.index, group.size * replica.size

    def passing(self) -> contextlib.AbstractContextManager[None]:
        """Return the context of both passes of the next micro-batch."""
        self._outputs = []
        return super().passing()

    def _note(self, _: Any, __: Any, result: Any) -> None:
        self._outputs += [each for each in leaves(result) if isinstance(each, torch.Tensor) and each.requires_grad]

    def _backward(self, part: Part) -> None:
        """Make a backward pass also for a constant loss, with gradients of 0: the other processes wait for it."""
        outputs, self._outputs = self._outputs, []
        if part.loss.requires_grad:
            del outputs  # they may be large, and the pass needs the memory
            super()._backward(part)
        elif outputs:
            torch.autograd.backward(outputs, [torch.zeros_like(each) for each in outputs])
        elif torch.is_grad_enabled():
            raise ConfigError(
                "the training's loss has not called the model, which is divided among processes: call it for every "
                "batch, also where the loss is a constant, since the other processes wait for its passes"
            )

    def _announce(self, vote: Vote) -> float:
        weight = super()._announce(vote)
        if self._buffers.taken:
            raise ConfigError(
                f"a forward pass changes the model's buffer {self._buffers.taken[0]}, and a model that is divided "
                "among processes (--shard) can't have such buffers yet: use layers without running statistics, such as "
                "LayerNorm or GroupNorm"
            )
        return weight

    def _totals(self, ballot: list[float], differ: bool) -> tuple[list[float], bool]:
        """Return the sums over all processes of this worker. The times are those of this process's counterparts."""
        own, works = ballot[: -self._group.size], ballot[-self._group.size :]
        self._replica.vote()
        *totals, differing = self._replica.sum([*own, float(differ)])
        return [*totals, *works], differing > 0

    @contextlib.contextmanager
    def enough_memory(self, samples: int) -> Iterator[None]:
        """Raise ShortOfMemory if memory is: the other processes wait for this one in their passes."""
        try:
            with super().enough_memory(samples):
                yield
        except OutOfMemory as error:
            fits = self._state.micro_batch
            raise ShortOfMemory(
                f"{error}; the processes of this worker divide a model, so all of them start again with {fits} samples "
                "in a pass",
                fits,
            ) from error
