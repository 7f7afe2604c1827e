"""What is sent for buffers, and that nothing but an applied step changes them."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from tests.elastic.buffers.test_values import FIRST, SECOND, Layer, adds, fills, of, sets
from tests.elastic.buffers.together import Ranks, all_at_once, ranks
from tidewater.elastic.buffers.agreement import Buffers
from tidewater.elastic.errors import GroupBroken

MASK = torch.full((1000,), float("-inf"))


def with_mask(mask: torch.Tensor | None) -> nn.Module:
    model = nn.Sequential(Layer(torch.zeros(1), adds(lambda x: x.mean())))
    if mask is not None:
        model.register_buffer("mask", mask.clone())
    return model


def test_nothing_is_sent_for_a_buffer_that_is_not_changed() -> None:
    ranks, without = Ranks(2, lambda: with_mask(MASK)), Ranks(2, lambda: with_mask(None))
    for _ in range(4):
        assert ranks.step(FIRST, SECOND) == without.step(FIRST, SECOND)


def test_a_model_that_changes_no_buffer_makes_the_sum_of_its_gradients_and_no_other() -> None:
    ranks = Ranks(2, lambda: Layer(MASK, lambda layer, inputs: None))
    assert [len(ranks.step(FIRST, SECOND)) for _ in range(3)] == [1, 1, 1]


def test_a_constant_that_is_written_again_in_every_pass_is_not_sent() -> None:
    ranks = Ranks(2, lambda: Layer(MASK, sets(lambda layer, x: MASK.clone())))
    assert [len(ranks.step(FIRST, SECOND)) for _ in range(3)] == [1, 1, 1]


def test_what_was_changed_is_expected_in_the_next_step_and_sent_until_no_rank_changes_it() -> None:
    def twice(layer: Layer, inputs: torch.Tensor) -> None:
        if layer.passes <= 2:
            layer.value += inputs.mean()

    ranks = Ranks(2, lambda: Layer(torch.zeros(1000), twice))
    first, second, third, fourth = (ranks.step(FIRST, SECOND) for _ in range(4))
    large = [sum(each > 8 * 1000 for each in sent) for sent in (first, second, third, fourth)]
    assert large == [1, 1, 1, 0]
    assert [len(sent) for sent in (first, second, third, fourth)] == [3, 2, 2, 1]


def test_what_was_taken_before_the_generation_changed_is_not_expected_by_newcomers() -> None:
    """An ElasticDL script collects minibatches, and sums them with the workers that are there then."""
    _, groups = ranks(2)
    models = [nn.BatchNorm1d(1) for _ in groups]
    both = [Buffers(model, group) for model, group in zip(models, groups, strict=True)]

    def take(rank: int) -> None:
        both[rank].begin()
        models[rank](torch.arange(4.0).reshape(4, 1))
        both[rank].take()
        both[rank].restore()

    def step(rank: int) -> float:
        take(rank)
        more = float(both[rank].send(0.5))
        both[rank].apply(both[rank].sums(more > 0))
        return more

    assert [all_at_once(step, 2) for _ in range(2)] == [[1.0, 1.0], [0.0, 0.0]]
    take(0)
    groups[0].uuid += 1
    assert both[0].send(0.5) == 1.0


def test_what_all_ranks_have_to_say_alike_is_not_sent() -> None:
    wire, groups = ranks(3)
    long = b"description of many buffers" * 100
    assert all_at_once(lambda rank: groups[rank].gather(long), 3) == [[long] * 3] * 3
    assert sum(wire.sent) < 500
    different = [long, long[::-1], b""]
    assert all_at_once(lambda rank: groups[rank].gather(different[rank]), 3) == [different] * 3


def test_what_the_script_changes_between_two_steps_is_not_multiplied_by_the_ranks() -> None:
    ranks = Ranks(2, lambda: Layer(torch.tensor([5]), adds(len)))
    ranks.step(FIRST, SECOND)
    for model in ranks.models:
        of(model).data += 100
    ranks.step(FIRST, SECOND)
    assert [int(of(model)) for model in ranks.models] == [113, 113]


def test_a_failed_step_leaves_every_buffer_as_it_was_and_where_it_was() -> None:
    class Many(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList(
                [
                    Layer(torch.ones(1), sets(lambda layer, x: x.mean().reshape(1))),
                    Layer(torch.ones(1), sets(lambda layer, x: torch.zeros(7))),
                    Layer(torch.ones(1), adds(lambda x: 1.0)),
                    Layer(torch.ones(1, dtype=torch.bool), fills(lambda x: False)),
                ]
            )

        def forward(self, inputs: torch.Tensor) -> Any:
            return sum(layer(inputs) for layer in self.layers)

    ranks = Ranks(1, Many)
    before = [(value, value.clone()) for value in ranks.models[0].buffers()]
    ranks.steppers[0]._group.interrupt("lost b")
    with pytest.raises(GroupBroken):
        ranks.step(FIRST)
    for now, (then, content) in zip(ranks.models[0].buffers(), before, strict=True):
        assert now is then
        assert torch.equal(now, content)


def test_two_names_of_one_buffer_stay_one_tensor() -> None:
    def tied() -> nn.Module:
        one, other = (Layer(torch.tensor([1]), adds(len)) for _ in range(2))
        other.value = one.value
        return nn.Sequential(one, other)

    ranks = Ranks(2, tied)
    for _ in range(2):
        ranks.step(FIRST, SECOND)
    for model in ranks.models:
        one, other = model.children()
        assert of(one) is of(other)
        assert int(of(one)) == 1 + 2 * 2 * 4


def test_a_write_past_torchs_counter_that_begins_late_is_no_drift() -> None:
    """It is found at the next comparison, and is not taken for a faulty GPU."""

    def late(layer: Layer, inputs: torch.Tensor) -> None:
        if layer.passes > 3:
            layer.value.data += inputs.mean()

    ranks = Ranks(2, lambda: Layer(torch.zeros(1), late))
    for step in range(8):
        ranks.step(FIRST, SECOND, compare=step in (5, 7))
    assert ranks.states[0].digest() == ranks.states[1].digest()
    assert torch.equal(of(ranks.models[0]), torch.tensor([5 * 2.25]))


def test_passes_that_do_not_train_change_no_buffer() -> None:
    ranks = Ranks(1, lambda: Layer(torch.tensor([5]), adds(len)))
    model, stepper = ranks.models[0], ranks.steppers[0]
    with stepper.evaluating():
        model(torch.ones(3, 1))
    assert int(of(model)) == 5
