"""One training step on one rank: the gradients, the values sent with them, and the optimizer's step.

    outcome = stepper.gradients(prepared, knows=False)      # raises GroupBroken; then nothing has changed
    stepper.apply(outcome, factor=0.5)

Each rank weights its loss by its share of the step's samples. So the sum of the gradients over ranks (and over the
micro-batches of a rank) is the gradient of the mean over the whole step, even if the ranks have different numbers of
samples.

The last bucket of gradients also carries the ballot: a seal (see ``group.ballot``), whether a rank knows of the next
generation, the loss, and how much the forward passes have changed the model's buffers (batch normalization's running
statistics). The changes of a buffer are averaged over the ranks with the same weights, so all ranks have the same
buffers. Buffers keep their old values until ``apply``, so a discarded step does not change them.
"""

from __future__ import annotations

import contextlib
import math
import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from trainer.data.seeds import seed_model
from trainer.errors import ConfigError, Diverged
from trainer.group.ballot import SEAL, seal
from trainer.group.group import Group
from trainer.group.reducer import Reducer
from trainer.passes import memory, norms
from trainer.passes.device import onto
from trainer.state import State
from trainer.training import Training

if TYPE_CHECKING:
    from trainer.data.loader import Micro, Prepared

AMP_TYPES = {"off": None, "bf16": torch.bfloat16, "fp16": torch.float16}


@dataclass(frozen=True)
class Outcome:
    """The result of a step over all ranks. The gradients themselves are in the parameters."""

    loss: float
    """Mean over the samples of the step."""
    everyone_knows: bool
    """Whether all ranks know of the next generation."""
    buffers: tuple[torch.Tensor, ...]
    """The amount to add to each of the model's buffers."""


class Stepper:
    """Makes steps with the model of ``training``, in the current generation of ``group``.

    Raises ConfigError if the optimizer has other parameters than the model's, or if the model synchronizes batch
    normalization. ``seed`` is that of the model's random numbers.
    """

    def __init__(self, training: Training, state: State, group: Group, *, amp: str, seed: int = 0) -> None:
        self._training, self._state, self._group = training, state, group
        self._seed = seed
        self._amp = AMP_TYPES[amp]
        self._reducer = Reducer(group, training.model.named_parameters())
        self._buffers = [buffer for buffer in training.model.buffers() if buffer.dtype is not torch.bool]
        self._ballot = torch.zeros(SEAL + 2, device=group.device)
        for group_settings in training.optimizer.param_groups:
            group_settings.setdefault("initial_lr", group_settings["lr"])
        _check_optimizer(training)
        norms.refuse_synchronised(training.model)

    def gradients(self, prepared: Prepared, *, knows: bool, meanwhile: Callable[[], None] = lambda: None) -> Outcome:
        """Leave the gradients of the whole step in the parameters; a collective call.

        ``meanwhile`` is called when this rank has done its part, before it waits for the others.

        Raise GroupBroken on any failure of a peer; OutOfMemory if a smaller micro-batch may fit; Diverged, on all
        ranks, if the loss is not a number; ConfigError if the loss has several elements, or one sample does not fit.
        """
        before = [buffer.clone() for buffer in self._buffers]
        samples = max(micro.size for micro in prepared.micro)
        try:
            with memory.enough_memory(self._state, self._group, samples=samples, release=self._reducer.reset):
                self._accumulate(prepared, before, knows)
                meanwhile()
                sums = self._reducer.sums()
        except RuntimeError as error:
            self._group.blame(error)
            raise
        finally:
            _copy(before, self._buffers)
        ballot, *changes = sums
        knowing, loss = self._group.opened(ballot.tolist())
        if not math.isfinite(loss):
            raise Diverged(
                f"the loss of step {self._state.step + 1} is {loss}: lower the learning rate and look at the data; "
                "the last checkpoint is kept, and a restart would give the same result"
            )
        buffers = tuple(change.view_as(buffer) for change, buffer in zip(changes, self._buffers, strict=True))
        return Outcome(loss, round(knowing) == self._group.size, buffers)

    def apply(self, outcome: Outcome, factor: float) -> None:
        """Step the optimizer with ``factor`` times its initial learning rates, and update the buffers."""
        for buffer, change in zip(self._buffers, outcome.buffers, strict=True):
            buffer.add_(change if buffer.is_floating_point() else change.round().to(buffer.dtype))
        for settings in self._state.optimizer.param_groups:
            settings["lr"] = settings["initial_lr"] * factor
        with memory.enough_for_the_optimizer():
            self._state.scaler.step(self._state.optimizer)
            self._state.scaler.update()

    def precision(self) -> contextlib.AbstractContextManager[Any]:
        """Return the autocast context for ``--amp``."""
        if self._amp is None:
            return contextlib.nullcontext()
        return torch.autocast(self._group.device.type, dtype=self._amp)

    def _accumulate(self, prepared: Prepared, before: list[torch.Tensor], knows: bool) -> None:
        """Run both passes of all micro-batches. The last one starts the sums over the ranks."""
        self._reducer.reset()
        losses: list[float | torch.Tensor] = []
        for index, micro in enumerate(prepared.micro[:-1]):
            with self._able_to_pass(micro, index):
                loss = self._forward(micro)
                losses.append(_value(loss))
                self._backward(loss, micro)
        micro = prepared.micro[-1]
        with self._able_to_pass(micro, len(prepared.micro) - 1):
            loss = self._forward(micro)
            losses.append(_value(loss))
            weights = [each.weight for each in prepared.micro]
            self._vote(knows, sum(map(operator.mul, losses, weights)))
            changes = [
                (now.float() - then.float()).flatten() * sum(weights)
                for now, then in zip(self._buffers, before, strict=True)
            ]
            self._reducer.watch()
            self._backward(loss, micro)
        self._reducer.flush([self._ballot, *changes])

    def _vote(self, knows: bool, loss: float | torch.Tensor) -> None:
        """Fill in the ballot with this rank's part of the step's loss."""
        known = *seal(self._group.uuid), float(knows)
        if isinstance(loss, torch.Tensor):
            self._ballot[:-1].copy_(torch.tensor(known))
            self._ballot[-1] = loss
        else:  # without torch: each of its calls takes 20 us when the caches of the processor are cold
            self._ballot.numpy()[:] = *known, loss

    def _able_to_pass(self, micro: Micro, index: int) -> contextlib.AbstractContextManager[None]:
        """Seed the model's random numbers, and return the context of both passes of a micro-batch."""
        seed_model(self._seed, self._state.step + 1, self._group.rank, index, self._group.device)
        # Also for the backward pass, which repeats forward passes if the model stores no activations.
        return norms.lone_sample(self._training.model) if micro.size == 1 else contextlib.nullcontext()

    def _forward(self, micro: Micro) -> torch.Tensor:
        with self.precision():
            loss = self._training.loss(self._training.model, onto(micro.batch, self._group.device))
        if loss.numel() != 1:
            raise ConfigError(
                f"the training's loss returns a tensor of shape {tuple(loss.shape)}: "
                "it must return one number, the mean over the batch"
            )
        return loss

    def _backward(self, loss: torch.Tensor, micro: Micro) -> None:
        """Add the gradients of the loss times the micro-batch's weight."""
        torch.autograd.backward(loss, self._state.scaler.scale(torch.full_like(loss, micro.weight)))


def _check_optimizer(training: Training) -> None:
    """Raise ConfigError if the optimizer has parameters that aren't averaged: they would differ between ranks."""
    known = {id(parameter) for parameter in training.model.parameters()}
    if any(id(each) not in known for settings in training.optimizer.param_groups for each in settings["params"]):
        raise ConfigError(
            "the training's optimizer has a parameter that its model doesn't have: build it over the model's "
            "parameters, after what replaces those, and make others (a loss's own, say) part of the model"
        )


def _value(loss: torch.Tensor) -> float | torch.Tensor:
    """Return a float if the loss is on the CPU, otherwise a tensor, so that nothing waits for the device."""
    return loss.item() if loss.device.type == "cpu" else loss.detach().float().reshape(())


def _copy(sources: list[torch.Tensor], targets: list[torch.Tensor]) -> None:
    for source, target in zip(sources, targets, strict=True):
        target.copy_(source)
