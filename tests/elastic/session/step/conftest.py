"""A group of one, and a step in it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import nn

from tests.elastic.alone import form_alone, opened_alone, stepper_of
from tidewater.elastic.data.loader import Micro, Prepared
from tidewater.elastic.data.sampler import Cursor, Step
from tidewater.elastic.errors import GroupBroken
from tidewater.elastic.group.group import Group
from tidewater.elastic.observe.log import Log
from tidewater.elastic.session.state import State
from tidewater.elastic.session.step import Stepper
from tidewater.elastic.session.warmup import rehearsals
from tidewater.elastic.session.worker import Material, Worker

FEATURES = 4


@pytest.fixture(autouse=True)
def nothing_compiled() -> Iterator[None]:
    """Forget what a test has compiled: a rehearsal is longer in a process in which torch has compiled anything."""
    yield
    if "torch._dynamo" in sys.modules:  # to import it takes more than a second
        torch._dynamo.reset()
        torch._dynamo.utils.counters.clear()


def loss(model: nn.Module, batch: Any) -> torch.Tensor:
    return nn.functional.cross_entropy(model(batch[0]), batch[1])


def prepared(*sizes: int) -> Prepared:
    """Return a step with micro-batches of these sizes."""
    total = sum(sizes)
    images = torch.randn(total, FEATURES, generator=torch.Generator().manual_seed(1))
    labels = torch.arange(total) % 3
    batches = zip(torch.split(images, list(sizes)), torch.split(labels, list(sizes)), strict=True)
    micro = tuple(Micro(batch, size / total, size) for batch, size in zip(batches, sizes, strict=True))
    return Prepared(Step(tuple(range(total)), Cursor(0, total)), micro)


def warm_up(worker: Worker, material: Material, log: Log, *, most: int, own_loop: bool = False) -> None:
    """Make the steps of a rehearsal with the training's loss."""
    failures: list[GroupBroken] = []

    def check() -> None:
        if failures:
            raise failures.pop()

    for step in rehearsals(worker, material, log, most=most, check=check, own_loop=own_loop):
        try:
            material.stepper.gradients(step)
        except GroupBroken as error:
            failures.append(error)


@pytest.fixture(scope="module")
def open_for_all() -> Iterator[Group]:
    yield from opened_alone()


@pytest.fixture
def form(open_for_all: Group) -> Callable[[], Group]:
    """Return a function that forms the group, also again."""

    def form() -> Group:
        form_alone(open_for_all)
        return open_for_all

    return form


@pytest.fixture
def made(form: Callable[[], Group]) -> Callable[..., tuple[Stepper, State]]:
    """Return a function that makes a stepper for a model."""

    def make(
        model: nn.Module, *, seed: int = 0, optimizer: Any = None, loss: Any = loss, **more: Any
    ) -> tuple[Stepper, State]:
        optimizer = optimizer or torch.optim.SGD(model.parameters(), lr=0.1)
        return stepper_of(form(), model, loss, optimizer, seed=seed, **more)

    return make
