"""Trainings that are stepped in a group of one and compared with plain torch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

from tests.elastic.alone import form_alone, opened_alone
from tidewater.elastic.data.loader import Micro, Prepared
from tidewater.elastic.data.sampler import Cursor, Step
from tidewater.elastic.group.group import Group
from tidewater.elastic.session.state import State, kind_of
from tidewater.elastic.session.step import Stepper
from tidewater.elastic.training import Training

SAMPLES, FEATURES, CLASSES = 12, 5, 3

Batch = tuple[torch.Tensor, torch.Tensor]
Build = Callable[[nn.Module], dict[str, Any]]
"""Returns what a training has besides its model: the optimizer and others."""


@pytest.fixture(scope="module")
def group() -> Iterator[Group]:
    yield from opened_alone()


def net() -> nn.Sequential:
    """Return the same small network every time."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(FEATURES, 8), nn.Tanh(), nn.Linear(8, CLASSES))


def mean_loss(model: nn.Module, batch: Batch) -> torch.Tensor:
    return nn.functional.cross_entropy(model(batch[0]), batch[1])


def batches(count: int) -> list[Batch]:
    """Return the batches of the first steps."""
    draw = torch.Generator().manual_seed(1)
    return [(torch.randn(SAMPLES, FEATURES, generator=draw), torch.arange(SAMPLES) % CLASSES) for _ in range(count)]


def prepared(batch: Batch, sizes: Sequence[int] = (SAMPLES,)) -> Prepared:
    """Return a step with this batch, in micro-batches of these sizes."""
    parts, done = [], 0
    for size in sizes:
        part = slice(done, done + size)
        parts.append(Micro((batch[0][part], batch[1][part]), size / SAMPLES, size))
        done += size
    return Prepared(Step(tuple(range(SAMPLES)), Cursor(0, SAMPLES)), tuple(parts))


class Trainee:
    """One training in a group of one."""

    def __init__(self, group: Group, build: Build, *, amp: str = "off", fresh_optimizer: bool = False) -> None:
        self.model = net()
        given: dict[str, Any] = {"loss": mean_loss, **build(self.model)}
        training = Training(model=self.model, dataset=TensorDataset(torch.zeros(SAMPLES)), **given)
        scaler = torch.amp.GradScaler("cpu", enabled=amp == "fp16", init_scale=1024.0)
        self.state = State(training, kind_of(self.model), scaler, fresh_optimizer=fresh_optimizer)
        self.stepper = Stepper(training, self.state, group, amp=amp)
        form_alone(group)

    def train(self, steps: Sequence[Batch], factor: float = 1.0, sizes: Sequence[int] = (SAMPLES,)) -> list[float]:
        """Make one step with each batch. Return the learning rates."""
        rates = []
        for batch in steps:
            outcome = self.stepper.gradients(prepared(batch, sizes))
            rates.append(self.stepper.apply(outcome, factor))
            self.state.step += 1
        return rates

    def groups(self) -> list[dict[str, Any]]:
        """Return the hyperparameters of all parameter groups."""
        return [{k: v for k, v in each.items() if k != "params"} for each in self.state.optimizers.groups()]


def bits(model: nn.Module) -> list[torch.Tensor]:
    """Return copies of a model's parameters."""
    return [parameter.detach().clone() for parameter in model.parameters()]


def assert_same_bits(mine: list[torch.Tensor], theirs: list[torch.Tensor]) -> None:
    for one, other in zip(mine, theirs, strict=True):
        assert torch.equal(one, other), (one - other).abs().max()
