"""Only the sum of all ranks of this generation opens."""

from __future__ import annotations

import secrets

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tidewater.elastic.errors import GroupBroken
from tidewater.elastic.group.ballot import SEAL, opened, seal

UUIDS = st.integers(0, 2**48 - 1)
SIZE = 5
VALUES = [0.25, 7.0]


def summed(*uuids: int) -> list[float]:
    """Return the sum, in 32 bits, of one rank for each uuid."""
    return torch.tensor([[*seal(uuid), *VALUES] for uuid in uuids], dtype=torch.float32).sum(0).tolist()


@given(uuid=UUIDS, size=st.sampled_from([1, 2, 3, 7, 64, 4096]))
def test_the_sum_of_all_ranks_opens_exactly_in_32_bits(uuid: int, size: int) -> None:
    assert opened(summed(*[uuid] * size), uuid, size) == [size * value for value in VALUES]


@given(uuid=UUIDS, present=st.integers(1, SIZE - 1))
def test_the_sum_of_some_ranks_does_not_open(uuid: int, present: int) -> None:
    with pytest.raises(GroupBroken, match="not the sum of 5 ranks"):
        opened(summed(*[uuid] * present), uuid, SIZE)


@given(uuid=UUIDS, later=st.integers(1, 1000))
def test_the_sum_of_another_generation_does_not_open(uuid: int, later: int) -> None:
    with pytest.raises(GroupBroken):
        opened(summed(*[uuid] * SIZE), uuid + later, SIZE)
    with pytest.raises(GroupBroken):
        opened(summed(*[uuid] * (SIZE - 1), uuid + later), uuid, SIZE)


@pytest.mark.parametrize("garbage", [0.0, float("nan"), float("inf"), 1.0, 5.0, 3e38])
def test_what_an_abort_leaves_does_not_open(garbage: float) -> None:
    with pytest.raises(GroupBroken):
        opened([garbage] * (SEAL + 2), secrets.randbits(48), SIZE)


def test_the_values_may_be_anything() -> None:
    assert not opened([SIZE * value for value in seal(7)], 7, SIZE)
    opened_values = opened([*(SIZE * value for value in seal(7)), float("nan")], 7, SIZE)
    assert opened_values[0] != opened_values[0]
