"""One training step on one rank: the gradients, what rides with them, and the optimizer's step.

    outcome = stepper.gradients(prepared, knows=False)      # raises GroupBroken; then nothing has changed
    stepper.apply(outcome, factor=0.5)

The ranks' losses are weighted by their share of the step's samples, so that the sum of the gradients over ranks (and
over the micro-batches of a rank) is the gradient of the mean over the whole step, however unevenly it is shared out.

With the first bucket of gradients rides the ballot: the loss, whether a rank knows of the next generation, and by how
much the forward passes have changed the model's buffers (batch normalization's running statistics). A buffer's
change is averaged over the ranks by the same weights, so buffers are as equal as parameters, and until ``apply`` they
are as they were, so a discarded step leaves no trace in them.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from trainer.errors import Diverged
from trainer.group import Group
from trainer.state import State
from trainer.training import Training

if TYPE_CHECKING:
    from trainer.loader import Micro, Prepared

AMP_TYPES = {"off": None, "bf16": torch.bfloat16, "fp16": torch.float16}


@dataclass(frozen=True)
class Outcome:
    """What all ranks have contributed to a step; the gradients themselves are in the parameters."""

    loss: float
    """Mean over the samples of the step."""
    everyone_knows: bool
    """All ranks know of the next generation."""
    buffers: tuple[torch.Tensor, ...]
    """What to add to each of the model's buffers."""


class Stepper:
    """Makes steps with the model of ``training``, in whatever generation ``group`` is."""

    def __init__(self, training: Training, state: State, group: Group, *, amp: str) -> None:
        self._training, self._state, self._group = training, state, group
        self._amp = AMP_TYPES[amp]
        self._model: nn.Module = training.model
        self._buffers = [buffer for buffer in training.model.buffers() if buffer.dtype is not torch.bool]
        for group_settings in training.optimizer.param_groups:
            group_settings.setdefault("initial_lr", group_settings["lr"])

    def wrap(self) -> None:
        """Have the gradients summed over the group; again after each ``form`` of a group that needs it."""
        self._model = self._group.wrap(self._training.model)

    def gradients(self, prepared: Prepared, *, knows: bool) -> Outcome:
        """Leave the gradients of the whole step in the parameters; a collective call.

        Raises GroupBroken on any failure of a peer and Diverged, on all ranks alike, if the loss is not a number.
        """
        before = [buffer.clone() for buffer in self._buffers]
        try:
            sums = self._summed(prepared, before, knows)
        finally:
            _copy(before, self._buffers)
        knowing, loss = sums[:2].tolist()
        if not math.isfinite(loss):
            raise Diverged(
                f"the loss of step {self._state.step + 1} is {loss}: lower the learning rate and look at the data; "
                "the last checkpoint is kept, and a restart would come to the same"
            )
        return Outcome(loss, round(knowing) == self._group.size, _split(sums[2:], self._buffers))

    def apply(self, outcome: Outcome, factor: float) -> None:
        """Step the optimizer, at ``factor`` times its initial learning rates, and move the buffers."""
        for buffer, change in zip(self._buffers, outcome.buffers, strict=True):
            buffer.add_(change if buffer.is_floating_point() else change.round().to(buffer.dtype))
        for settings in self._state.optimizer.param_groups:
            settings["lr"] = settings["initial_lr"] * factor
        self._state.scaler.step(self._state.optimizer)
        self._state.scaler.update()

    @contextlib.contextmanager
    def precision(self) -> Iterator[None]:
        """Autocast as ``--amp`` says."""
        with torch.autocast(self._group.device.type, dtype=self._amp, enabled=self._amp is not None):
            yield

    def _summed(self, prepared: Prepared, before: list[torch.Tensor], knows: bool) -> torch.Tensor:
        self._state.optimizer.zero_grad()
        weight = sum(micro.weight for micro in prepared.micro)
        total = torch.zeros((), dtype=torch.float32, device=self._group.device)
        for micro in prepared.micro[:-1]:
            with self._no_sync():
                total += self._backward(micro)
        total += self._backward(
            prepared.micro[-1], lambda loss: self._group.carry(self._ballot(knows, total + loss, before, weight))
        )
        return self._group.carried()

    def _backward(self, micro: Micro, ready: Callable[[torch.Tensor], None] = lambda loss: None) -> torch.Tensor:
        """Add one micro-batch's gradients; ``ready`` is called with its loss between the two passes."""
        with self.precision():
            loss = self._training.loss(self._model, micro.batch) * micro.weight
        value = loss.detach().float()
        ready(value)
        torch.autograd.backward(self._state.scaler.scale(loss))
        return value

    def _ballot(self, knows: bool, loss: torch.Tensor, before: list[torch.Tensor], weight: float) -> torch.Tensor:
        changes = [
            (now.float() - then.float()).flatten() * weight for now, then in zip(self._buffers, before, strict=True)
        ]
        return torch.cat([loss.new_tensor([float(knows)]), loss.reshape(1), *changes])

    def _no_sync(self) -> contextlib.AbstractContextManager[None]:
        model: Any = self._model
        context: contextlib.AbstractContextManager[None] = model.no_sync()
        return context


@torch.no_grad()
def _copy(sources: list[torch.Tensor], targets: list[torch.Tensor]) -> None:
    for source, target in zip(sources, targets, strict=True):
        target.copy_(source)


def _split(flat: torch.Tensor, like: list[torch.Tensor]) -> tuple[torch.Tensor, ...]:
    parts = torch.split(flat, [tensor.numel() for tensor in like])
    return tuple(part.view_as(tensor) for part, tensor in zip(parts, like, strict=True))
