"""Rows are stored once they have a gradient; snapshots keep what the rows were."""

from __future__ import annotations

import pytest
import torch
from elasticdl.embedding_init import Table, initial_rows
from elasticdl.ps.errors import SnapshotLost
from elasticdl.ps.model.rows import RowStore
from hypothesis import given, settings
from hypothesis import strategies as st

TABLE = Table("item", 3, seed=5)
ALL = torch.arange(60)


def add(store: RowStore, ids: list[int], amount: float) -> None:
    fetched = store.fetch(torch.tensor(ids, dtype=torch.int64))
    store.store(fetched, fetched.rows + amount)


def test_reading_a_row_that_has_no_gradient_yet_stores_nothing() -> None:
    store = RowStore(TABLE)
    assert torch.equal(store.read(ALL), initial_rows(TABLE, ALL))
    assert len(store) == 0


def test_rows_come_in_the_order_of_their_ids_which_may_repeat() -> None:
    store = RowStore(TABLE)
    add(store, [4, 2], 1.0)
    ids = torch.tensor([2, 9, 4, 2])
    added = torch.tensor([1.0, 0.0, 1.0, 1.0])[:, None]
    assert torch.equal(store.read(ids), initial_rows(TABLE, ids) + added)


def test_a_new_row_has_the_optimizers_first_state() -> None:
    store = RowStore(TABLE, (("sum", 0.5), ("other", 0.0)))
    rows = store.fetch(torch.tensor([8])).rows
    assert torch.equal(
        rows, torch.cat([initial_rows(TABLE, torch.tensor([8])), torch.tensor([[0.5] * 3 + [0.0] * 3])], 1)
    )


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.one_of(
            st.lists(st.integers(0, 59), unique=True, min_size=1, max_size=12),
            st.sampled_from(["take", "drop"]),
        ),
        max_size=40,
    )
)
def test_snapshots_equal_copies_whatever_is_changed_later(steps: list[list[int] | str]) -> None:
    store, kept = RowStore(TABLE, (("sum", 0.0),)), []
    for number, step in enumerate(steps):
        if isinstance(step, list):
            add(store, step, float(number + 1))
        elif step == "take":
            kept.append((store.snapshot(TABLE.dim), store.read(ALL), len(store)))
        elif kept:
            store.drop(kept.pop(0)[0])
        for snapshot, copy, count in kept:
            assert torch.equal(store.read(ALL, snapshot), copy)
            assert torch.equal(store.slice(snapshot, 0, count), store.read(store.ids(snapshot), snapshot))


def test_a_snapshot_holds_only_rows_that_were_changed_since() -> None:
    store = RowStore(TABLE)
    add(store, list(range(50)), 1.0)
    snapshot = store.snapshot(TABLE.dim)
    add(store, [1, 2], 1.0)
    add(store, [2, 55], 1.0)
    assert snapshot._used == 2


def test_a_snapshot_that_was_dropped_keeps_nothing_more() -> None:
    store = RowStore(TABLE)
    add(store, [1, 2], 1.0)
    snapshot = store.snapshot(TABLE.dim)
    store.drop(snapshot)
    store.drop(snapshot)
    add(store, [1], 1.0)
    assert snapshot._used == 0
    for read in (store.read, lambda _, kept: store.ids(kept), lambda _, kept: store.slice(kept, 0, 1)):
        with pytest.raises(SnapshotLost, match="'item' was dropped"):
            read(ALL, snapshot)
