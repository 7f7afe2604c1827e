"""Sets of pod indexes as text."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidewater.elasticjob import indexes


@pytest.mark.parametrize(
    ("numbers", "text"),
    [([], ""), ([4], "4"), ([1, 0], "0,1"), ([5, 0, 1, 2], "0-2,5"), ([1, 3, 4, 5, 7], "1,3-5,7")],
)
def test_the_notation_is_that_of_a_job(numbers: list[int], text: str) -> None:
    assert indexes.text(numbers) == text
    assert re.match(indexes.PATTERN, text)


@given(st.sets(st.integers(0, 60)))
def test_what_is_written_is_read_as_the_same_set(numbers: set[int]) -> None:
    assert indexes.numbers(indexes.text(numbers)) == sorted(numbers)


def test_a_few_pods_are_listed_by_name_and_many_by_their_indexes() -> None:
    assert indexes.listed({"a-worker-1", "a-worker-0"}) == "a-worker-0, a-worker-1"
    many = [f"a-worker-{index}" for index in range(1000) if index != 500]
    assert indexes.listed([*many, "a-ps-0", "a-master"]) == "a-master, a-ps-[0], a-worker-[0-499,501-999]"
