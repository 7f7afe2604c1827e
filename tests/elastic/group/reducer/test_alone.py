"""Alone in its group, a rank keeps the gradients where they are: those of plain autograd."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import nn

from tests.elastic.alone import form_alone, opened_alone
from tests.elastic.group.reducer.steps import WIDE, Branches, InParts, Steps, batch, signed, storages
from tidewater.elastic.errors import ConfigError, GroupBroken
from tidewater.elastic.group import buckets
from tidewater.elastic.group.group import Group

alone = functools.partial(Steps, sums=False)


@pytest.fixture(scope="module")
def opened() -> Iterator[Group]:
    yield from opened_alone()


@pytest.fixture
def group(opened: Group) -> Group:
    form_alone(opened)
    return opened


@pytest.fixture
def memories(monkeypatch: pytest.MonkeyPatch) -> list[buckets.Memory]:
    """Return a list that gets each memory for sums that is made."""
    made: list[buckets.Memory] = []
    build = buckets.Memory.__init__

    def noted(memory: buckets.Memory, *given: Any) -> None:
        made.append(memory)
        build(memory, *given)

    monkeypatch.setattr(buckets.Memory, "__init__", noted)
    return made


def places(memories: list[buckets.Memory]) -> set[int]:
    return {each.untyped_storage().data_ptr() for memory in memories for each in memory.gradients}


def test_the_gradients_are_those_of_autograd_bit_for_bit(group: Group) -> None:
    steps = alone(group, Branches())
    steps.agree([signed(1)], [signed(-1)], [signed(1), signed(-1)], [signed(1)])
    for model in (steps.model, steps.plain):
        model.first.requires_grad_(False)
    steps.agree([signed(1)], [signed(-1)])
    alone(group, InParts()).agree([batch()], [batch(), batch()], [batch()])


@pytest.mark.parametrize("sum_dtype", [torch.bfloat16, torch.float16], ids=str)
def test_gradients_of_32_bits_are_rounded_as_in_a_group_of_several(group: Group, sum_dtype: torch.dtype) -> None:
    steps = alone(group, nn.Linear(WIDE, WIDE), sum_dtype=sum_dtype)
    values = batch()
    found, expected = steps.step(values), steps.expected(values)
    for one, other in zip(found, expected, strict=True):
        assert one is not None
        assert other is not None
        assert torch.equal(one, other.to(sum_dtype).float())


def test_they_are_not_copied_but_in_a_rehearsal_which_has_the_memory_and_the_sums_of_a_group_of_several(
    group: Group, memories: list[buckets.Memory]
) -> None:
    steps = alone(group, nn.Sequential(nn.Linear(WIDE, WIDE), nn.Linear(WIDE, WIDE)))
    with steps.rehearsal():
        steps.step(batch())
    assert len(memories) == 2
    assert storages(steps.model) <= places(memories)
    assert None not in steps.step(batch())
    assert not storages(steps.model) & places(memories)
    assert None not in steps.step(batch(), batch())
    assert not storages(steps.model) & places(memories)
    assert len(memories) == 2
    with steps.rehearsal():
        steps.step(batch())
    assert len(memories) == 4  # those of the first rehearsal were not kept while it was alone


def test_an_interrupted_step_is_not_applied(group: Group, monkeypatch: pytest.MonkeyPatch) -> None:
    steps = alone(group, nn.Linear(WIDE, WIDE))
    before = [each.clone() for each in steps.model.parameters()]

    def interrupted(*_: Any) -> None:
        group.interrupt("lost b")

    handle = steps.model.register_full_backward_hook(interrupted)
    with pytest.raises(GroupBroken, match="lost b"):
        steps.step(batch().requires_grad_())
    assert all(torch.equal(one, other) for one, other in zip(before, steps.model.parameters(), strict=True))
    handle.remove()
    form_alone(group)
    steps.agree([batch()])


def test_a_sparse_gradient_is_refused_by_name(group: Group) -> None:
    model = nn.Sequential(nn.Embedding(10, 3, sparse=True), nn.Linear(3, 2))
    with pytest.raises(ConfigError, match=r"the gradient of the parameter 0\.weight is sparse.*sparse=False"):
        alone(group, model).step(torch.tensor([1, 2]))
