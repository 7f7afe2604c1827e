"""The loss of one micro-batch, as a mean or as a sum with its weight.

    part = part_of(training.loss(model, batch), weight=micro.weight, samples=64)
    torch.autograd.backward(part.loss, torch.full_like(part.loss, part.seed))
    total.add(part)                         # total.value and total.weight are summed over the ranks
    loss, factor = divided(value, weight, samples=64)

The gradient of a mean is weighted with the share of the step's samples, which is known before. The total of the weights
of sums is known only when all ranks have finished their passes. So sums are divided by the number of samples, which
keeps gradients in the range of those of a mean, and ``divided`` returns what corrects that when the total is there.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch

from tidewater.elastic.errors import ConfigError

Number = float | torch.Tensor
"""A float if it is on the CPU, otherwise a tensor, so that nothing waits for the device."""

_RIGHT = (
    "it must return one number, the mean over the batch, or a pair of numbers, the sum over the batch and its weight"
)

_MOST_NAMED = 20


class Part(NamedTuple):
    """What one micro-batch adds to the loss of a step."""

    loss: torch.Tensor
    """To be differentiated."""
    seed: float
    """Factor on the gradients of ``loss``."""
    value: Number
    """Its part of the step's loss, or of the sum of losses if there is a weight."""
    weight: Number | None
    """Its part of the step's weight; None if the loss is a mean."""


def part_of(result: Any, *, weight: float, samples: int) -> Part:
    """Return the part of what a training's loss has returned. Raise ConfigError if that is not a loss.

    Args:
        result: The mean over the micro-batch, or its sum and its weight.
        weight: The micro-batch's share of the step's samples; 0 if the rank has none and only takes part.
        samples: Number of samples of the step.
    """
    if not isinstance(result, tuple):
        loss = _one(result)
        return Part(loss, weight, _number(loss) * weight if weight else 0.0, None)
    if len(result) != 2:
        raise ConfigError(f"the training's loss returns {len(result)} values: {_RIGHT}")
    loss = _one(result[0])
    if not weight:
        return Part(loss, 0.0, 0.0, 0.0)
    return Part(loss, 1 / samples, _number(loss), _number(_one(torch.as_tensor(result[1]))))


class Total:
    """The sum over the micro-batches of a rank."""

    def __init__(self) -> None:
        self.value: Number = 0.0
        self.weight: Number = 0.0
        self.weighted = False
        """Whether the losses are sums with weights."""
        self._values: list[tuple[Number, int]] = []

    def add(self, part: Part, samples: int) -> None:
        """Add a micro-batch of that many samples."""
        self._values.append((part.value, samples))
        self.value = self.value + part.value
        if part.weight is not None:
            self.weight, self.weighted = self.weight + part.weight, True

    def odd_samples(self, mine: Sequence[int]) -> list[int]:
        """Return the samples, of all those of the rank, in micro-batches with a loss that is not a finite number."""
        ends = itertools.accumulate((samples for _, samples in self._values), initial=0)
        return [
            sample
            for (first, last), (value, _) in zip(itertools.pairwise(ends), self._values, strict=True)
            if not math.isfinite(value)
            for sample in mine[first:last]
        ]


def verdict(step: int, loss: float, samples: Sequence[int]) -> str:
    """Return why training ends with a loss that is not a finite number. ``samples`` are those of this rank with it."""
    listed = ", ".join(map(str, samples[:_MOST_NAMED])) + (", …" if len(samples) > _MOST_NAMED else "")
    where = f", from the samples {listed}" if samples else " at another worker: its log names the samples"
    empty = (
        "A mean over no labels is nan too (CrossEntropyLoss if all are ignore_index): return a pair, the sum over the "
        "labels and their number. "
        if math.isnan(loss) and samples
        else ""
    )
    return (
        f"the loss of step {step} is {loss}{where}: lower the learning rate and look at the data. "
        f"{empty}The last checkpoint is kept, and a restart would give the same result"
    )


def divided(value: float, weight: float, samples: int) -> tuple[float, float]:
    """Return the loss of a step, from the totals over all ranks, and the factor on its gradients.

    If the total of the weights is 0 (a step of padding alone), there is nothing to learn: the gradients are 0.
    """
    return (value / weight, samples / weight) if weight else (value, 0.0)


def _one(loss: Any) -> torch.Tensor:
    if not isinstance(loss, torch.Tensor):
        if isinstance(loss, int | float) and not loss:  # the sum over no objects
            return torch.zeros(())
        raise ConfigError(f"the training's loss returns a {type(loss).__name__}: {_RIGHT}")
    if loss.numel() != 1:
        raise ConfigError(f"the training's loss returns a tensor of shape {tuple(loss.shape)}: {_RIGHT}")
    return loss


def _number(loss: torch.Tensor) -> Number:
    return loss.item() if loss.device.type == "cpu" else loss.detach().float().reshape(())
