"""What a model draws (dropout) belongs to the place in training."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from tests.elastic.session.step.conftest import FEATURES, prepared
from tidewater.elastic.data.loader import Prepared
from tidewater.elastic.data.seeds import drawn_alike
from tidewater.elastic.group.group import Group
from tidewater.elastic.session.state import State
from tidewater.elastic.session.step import Stepper

Made = Callable[..., tuple[Stepper, State]]


class Noisy(nn.Module):
    """Records which features dropout keeps. It draws nothing in its first passes."""

    def __init__(self, silent: int) -> None:
        super().__init__()
        self.linear = nn.Linear(FEATURES, 3)
        self.silent = silent
        self.masks: list[tuple[bool, ...]] = []

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.linear(values)
        if self.silent:
            self.silent -= 1
            return result
        kept = nn.functional.dropout(torch.ones(64))
        self.masks.append(tuple((kept != 0).tolist()))
        return result * kept.mean()


@pytest.fixture
def masks(made: Made) -> Callable[..., list[tuple[bool, ...]]]:
    """Return a function that makes steps, the first of them after step ``at``, and returns their masks."""

    def masks(*steps: Prepared, seed: int = 0, silent: int = 0, at: int = 0) -> list[tuple[bool, ...]]:
        model = Noisy(silent)
        stepper, state = made(model, seed=seed)
        for index, step in enumerate(steps):
            state.step = at + index
            stepper.gradients(step)
        return model.masks

    return masks


def test_a_step_that_is_repeated_in_the_same_place_draws_the_same(masks: Callable[..., Any]) -> None:
    once = masks(prepared(4), at=7)
    torch.rand(3)  # as after any other history
    assert masks(prepared(4), at=7) == once


def test_a_model_that_draws_only_in_some_steps_draws_the_same_after_any_history(masks: Callable[..., Any]) -> None:
    steps = [prepared(4)] * 4
    assert masks(*steps, silent=2) == masks(*steps)[2:]


def test_steps_micro_batches_and_seeds_draw_differently(masks: Callable[..., Any]) -> None:
    drawn = [*masks(prepared(2, 2, 2), prepared(2, 2, 2)), *masks(prepared(4), seed=1)]
    assert len(set(drawn)) == 7


def test_ranks_draw_differently(made: Made, open_for_all: Group, monkeypatch: pytest.MonkeyPatch) -> None:
    model = Noisy(silent=0)
    stepper, _ = made(model)
    for rank in range(3):
        monkeypatch.setattr(open_for_all, "rank", rank)
        stepper.gradients(prepared(4))
    assert len(set(model.masks)) == 3


@pytest.fixture
def updated(made: Made, open_for_all: Group, monkeypatch: pytest.MonkeyPatch) -> Callable[..., torch.Tensor]:
    """Return a function that makes one update as a rank, with noise from each generator; it returns the weights."""

    def updated(rank: int, *, seed: int = 0, at: int = 0) -> torch.Tensor:
        model = nn.Linear(FEATURES, 3)
        with torch.no_grad():
            model.weight.fill_(0.5)
            model.bias.zero_()

        def before_step(model: nn.Module) -> None:
            noise = random.random() + np.random.rand()
            for parameter in model.parameters():
                assert parameter.grad is not None
                parameter.grad.add_(noise)

        def after_step(*_: Any) -> None:  # Langevin dynamics
            for parameter in model.parameters():
                parameter.data.add_(torch.randn_like(parameter), alpha=0.01)

        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        optimizer.register_step_post_hook(after_step)
        stepper, state = made(model, seed=seed, optimizer=optimizer, before_step=before_step)
        state.step = at
        monkeypatch.setattr(open_for_all, "rank", rank)
        for _ in range(rank):
            torch.rand(1), random.random(), np.random.rand()  # as after any other history
        outcome = stepper.gradients(prepared(4))
        drawn = torch.rand(1)
        stepper.apply(outcome, 1.0)
        assert not torch.equal(drawn, torch.rand(1))
        return model.weight.detach()

    return updated


def test_what_an_update_draws_is_the_same_in_all_ranks(updated: Callable[..., torch.Tensor]) -> None:
    first = updated(0)
    assert torch.equal(first, updated(1))
    assert torch.equal(first, updated(2))


def test_updates_of_other_steps_and_seeds_draw_differently(updated: Callable[..., torch.Tensor]) -> None:
    drawn = [updated(0), updated(0, at=1), updated(0, seed=1)]
    assert len({tuple(each.flatten().tolist()) for each in drawn}) == 3


def test_a_script_that_draws_between_its_updates_goes_on_as_if_there_were_none() -> None:
    torch.manual_seed(5)
    expected = torch.rand(2)[1]
    torch.manual_seed(5)
    torch.rand(1)
    with drawn_alike(0, "update", 1, torch.device("cpu")):
        torch.rand(7)
    assert torch.rand(1) == expected
