"""A rank that is alone in its generation has the sums already."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from tests.elastic.alone import form_alone, opened_alone
from tidewater.elastic.errors import GroupBroken
from tidewater.elastic.group.group import Group


@pytest.fixture
def group() -> Iterator[Group]:
    for group in opened_alone():
        form_alone(group)
        yield group


def test_its_sum_is_its_own_value_and_gloo_is_not_asked(group: Group, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group._backend, "pg", None)
    tensor = torch.tensor([2.0, float("nan"), -0.0])
    group.all_reduce(tensor)
    assert torch.equal(tensor.view(torch.int32), torch.tensor([2.0, float("nan"), -0.0]).view(torch.int32))
    assert group.tally([7.0]) == [7.0]


def test_its_sum_fails_after_an_interruption_as_any_other(group: Group) -> None:
    begun = group.begin(torch.ones(3))
    group.interrupt("it has to leave")
    with pytest.raises(GroupBroken, match="it has to leave"):
        group.complete([begun])
