"""Each parameter with a number that is not finite is found, and no other one."""

from __future__ import annotations

import math

import pytest
import torch

from tidewater.elastic.method.finite import finite


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64])
@pytest.mark.parametrize("number", [math.inf, -math.inf, math.nan])
def test_one_number_that_is_not_finite_is_found_in_any_type(dtype: torch.dtype, number: float) -> None:
    odd = torch.zeros(3, 5, dtype=dtype)
    odd[2, 1] = number
    assert finite({"odd": odd, "even": torch.ones(4, dtype=dtype), "empty": torch.zeros(0)}) == {"even", "empty"}


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_finite_numbers_with_an_infinite_sum_are_finite(dtype: torch.dtype) -> None:
    largest = torch.full((4,), torch.finfo(dtype).max, dtype=dtype)
    assert not largest.sum().isfinite()
    assert finite({"largest": largest, "mixed": largest * torch.tensor([1, 1, -1, -1])}) == {"largest", "mixed"}


def test_opposite_infinities_are_not_finite() -> None:
    assert finite({"both": torch.tensor([math.inf, -math.inf])}) == frozenset()


def test_whole_numbers_and_those_of_one_byte_are_finite() -> None:
    values = {
        "counts": torch.ones(3, dtype=torch.int64),
        "flags": torch.ones(2, dtype=torch.bool),
        "bytes": torch.tensor([math.nan]).to(torch.float8_e4m3fn),
    }
    assert finite(values) == values.keys()
    assert finite({}) == frozenset()
