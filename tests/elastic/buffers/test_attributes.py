"""A plain attribute that says what the buffer next to it contains is put back and applied together with the buffer."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from tests.elastic.alone import stepper_of
from tests.elastic.buffers.together import Ranks, ranks
from tidewater.elastic.buffers.agreement import Buffers
from tidewater.elastic.errors import GroupBroken


class Rotary(nn.Module):
    """Caches a table in a buffer and its length in an attribute, as rotary_embedding_torch does."""

    cached: Any

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("cached", None, persistent=False)
        self.length, self.calls = 0, 0
        self.linear = nn.Linear(1, 1)

    def forward(self, inputs: torch.Tensor) -> Any:
        self.calls += 1
        if self.cached is None or self.length < len(inputs):
            self.cached, self.length = torch.ones(len(inputs), 1), len(inputs)
        return self.linear(inputs * self.cached[: len(inputs)])


class Late(nn.Module):
    """Registers the buffer in its first pass."""

    scale: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.ready = False
        self.scale: torch.Tensor
        self.linear = nn.Linear(1, 1)

    def forward(self, inputs: torch.Tensor) -> Any:
        if not self.ready:
            self.register_buffer("scale", torch.ones(1))
            self.ready = True
        return self.linear(inputs * self.scale)


SHORT, LONG = torch.ones(2, 1), torch.ones(5, 1)


def after(steps: int) -> tuple[Ranks, Any]:
    """Return a rank after that many steps with short inputs, and its model."""
    made = Ranks(1, Rotary)
    for _ in range(steps):
        made.step(SHORT)
    return made, made.models[0]


@pytest.mark.parametrize("steps", [0, 1, 3])
def test_an_evaluation_undoes_the_length_with_the_table(steps: int) -> None:
    made, model = after(steps)
    length, calls = model.length, model.calls
    with made.steppers[0].evaluating():
        model(LONG)
    assert (model.length, model.calls) == (length, calls)
    made.step(LONG)
    assert (model.length, len(model.cached), model.calls) == (5, 5, calls + 1)


@pytest.mark.parametrize("steps", [0, 1, 3])
def test_the_next_pass_of_a_step_finds_a_table_that_has_grown_with_its_length(steps: int) -> None:
    made, model = after(steps)
    for calls in (model.calls + 2, model.calls + 4):
        made.step_in_passes([LONG, SHORT])
        assert (model.length, len(model.cached), model.calls) == (5, 5, calls)


@pytest.mark.parametrize("steps", [0, 1, 3])
def test_a_discarded_step_undoes_the_length_with_the_table(steps: int) -> None:
    made, model = after(steps)
    length, calls = model.length, model.calls
    made.steppers[0]._group.interrupt("lost b")
    with pytest.raises(GroupBroken):
        made.step(LONG)
    assert (model.length, model.calls) == (length, calls)


def test_a_buffer_that_a_pass_registers_is_undone_with_the_attribute_that_says_so() -> None:
    made = Ranks(1, Late)
    model: Any = made.models[0]
    with made.steppers[0].evaluating():
        model(SHORT)
    assert not model.ready
    made.step(SHORT)
    assert model.ready


def test_a_rank_without_samples_keeps_its_attributes_with_the_agreed_buffer() -> None:
    made = Ranks(2, Rotary)
    made.step(SHORT, LONG[:0])  # a rank without samples makes a pass with one
    made.step(LONG, LONG[:0])
    for model in made.models:
        found: Any = model
        assert len(found.cached) == 5
        assert found.length in (0, 5)
        found(LONG)


def test_what_on_step_sets_between_the_passes_and_the_optimizers_step_holds() -> None:
    _, (group,) = ranks(1)
    model: Any = Rotary()
    sgd = torch.optim.SGD(model.parameters(), 0.1)
    stepper, _ = stepper_of(group, model, lambda model, batch: model(batch).mean(), sgd)
    buffers = stepper._buffers
    buffers.begin()
    model(LONG)
    buffers.take()
    buffers.send(1.0)
    buffers.restore()
    model.calls = 100
    buffers.apply(buffers.sums(False))
    assert (model.calls, model.length) == (100, 5)


def test_minibatches_continue_from_the_attributes_of_the_last_one_that_did_not_fail() -> None:
    _, (group,) = ranks(1)
    model: Any = Rotary()
    buffers = Buffers(model, group)
    for inputs, counts in ((SHORT, True), (LONG, False)):
        buffers.resume()
        model(inputs)
        if counts:
            buffers.take()
        buffers.restore()
        assert (model.length, model.calls, model.cached) == (0, 0, None)
    buffers.resume()
    assert (model.length, model.calls, len(model.cached)) == (2, 1, 2)
    buffers.restore()
    buffers.forget()
    buffers.resume()
    assert (model.length, model.calls, model.cached) == (0, 0, None)
