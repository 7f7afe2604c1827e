"""The index of ids does what a dict does."""

from __future__ import annotations

import numpy as np
from elasticdl.ps.model.rows import IdIndex
from hypothesis import given
from hypothesis import strategies as st

IDS = st.one_of(st.integers(0, 300), st.integers(0, 2**63 - 1))


@given(st.lists(st.lists(IDS, unique=True, max_size=80), max_size=40))
def test_positions_are_those_of_a_dict_in_order_of_adding(groups: list[list[int]]) -> None:
    index, expected = IdIndex(), dict[int, int]()
    for group in groups:
        ids = np.array(group, np.int64)
        assert index.find(ids).tolist() == [expected.get(each, -1) for each in group]
        fresh = [each for each in group if each not in expected]
        index.add(np.array(fresh, np.int64))
        expected.update(zip(fresh, range(len(expected), len(expected) + len(fresh)), strict=True))
    assert index.ids.tolist() == list(expected)
    assert index.find(np.array(list(expected), np.int64)).tolist() == list(expected.values())
    assert len(index) == len(expected)


def test_a_million_ids_with_gaps_are_found_again() -> None:
    index, ids = IdIndex(), np.arange(1_000_000, dtype=np.int64) * 4096  # as on one of many servers
    for part in np.array_split(ids, 7):
        index.add(part)
    assert (index.find(ids[::-1]) == np.arange(len(ids))[::-1]).all()
    assert (index.find(ids + 1) == -1).all()


def test_an_id_that_is_asked_for_twice_is_found_twice() -> None:
    index = IdIndex()
    index.add(np.array([7, 5], np.int64))
    assert index.find(np.array([5, 7, 5, 6], np.int64)).tolist() == [1, 0, 1, -1]
