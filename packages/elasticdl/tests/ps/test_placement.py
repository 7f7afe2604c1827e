"""Everything is on one server, which follows from its name or id alone."""

from __future__ import annotations

import torch
from elasticdl.ps.placement import coalesced, server_of, split
from hypothesis import given
from hypothesis import strategies as st


def test_a_names_server_is_the_same_in_every_process() -> None:
    assert [server_of(f"layer.{index}", 5) for index in range(10)] == [3, 2, 4, 4, 2, 4, 3, 3, 1, 1]


def test_names_are_spread_over_all_servers() -> None:
    counts = [0] * 4
    for index in range(400):
        counts[server_of(f"layers.{index}.weight", 4)] += 1
    assert min(counts) > 70


@given(st.lists(st.integers(0, 2**63 - 1), max_size=50), st.integers(1, 9))
def test_each_id_is_on_one_server_and_keeps_its_order(ids: list[int], count: int) -> None:
    given_ids = torch.tensor(ids, dtype=torch.int64)
    parts = split(given_ids, count)
    assert sorted(torch.cat(parts).tolist()) == list(range(len(ids)))
    for index, positions in enumerate(parts):
        assert positions.tolist() == sorted(positions.tolist())
        assert all(ids[position] % count == index for position in positions)


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(-5, 5)), max_size=40))
def test_rows_of_an_id_are_added_up(pairs: list[tuple[int, int]]) -> None:
    ids = torch.tensor([each for each, _ in pairs], dtype=torch.int64)
    values = torch.tensor([[float(value), 1.0] for _, value in pairs]).reshape(len(pairs), 2)
    unique, summed = coalesced(ids, values)
    expected = {
        each: [float(sum(v for i, v in pairs if i == each)), float(ids.tolist().count(each))] for each, _ in pairs
    }
    assert dict(zip(unique.tolist(), summed.tolist(), strict=True)) == expected
    assert unique.tolist() == sorted(expected)
