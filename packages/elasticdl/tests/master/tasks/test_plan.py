"""The plan: every record in exactly one task of each epoch, the same plan for every master."""

from __future__ import annotations

from collections import Counter

import pytest
from elasticdl.data.reader import Shard
from elasticdl.errors import InputError
from elasticdl.master.tasks.plan import EVALUATIONS, Cut, Plan, not_empty
from hypothesis import given
from hypothesis import strategies as st

SHARDS = [Shard("a", 0, 25), Shard("b", 0, 10), Shard("empty", 0, 0), Shard("c", 5, 8)]

shards = st.lists(st.integers(0, 40), max_size=5).map(
    lambda sizes: [Shard(f"file-{index}", 0, size) for index, size in enumerate(sizes)]
)
cuts = st.builds(
    Cut,
    records_per_task=st.integers(1, 12),
    epochs=st.integers(1, 3),
    seed=st.integers(0, 5),
    shuffle=st.booleans(),
    shuffle_records=st.booleans(),
)


@given(shards, cuts)
def test_every_epoch_has_every_record_exactly_once(given_shards: list[Shard], cut: Cut) -> None:
    plan = Plan.of(given_shards, cut)
    seen: Counter[tuple[int, str, int]] = Counter()
    for task in plan.tasks:
        piece = plan.piece(task)
        taken = piece.indices or range(piece.start, piece.end)
        assert 0 < len(taken) <= cut.records_per_task
        seen.update((piece.epoch, piece.shard, record) for record in taken)
    expected = {
        (epoch, shard.name, record)
        for epoch in range(cut.epochs)
        for shard in given_shards
        for record in range(shard.start, shard.end)
    }
    assert set(seen) == expected
    assert set(seen.values()) <= {1}


@given(shards, cuts)
def test_a_plan_is_the_same_when_it_is_made_again(given_shards: list[Shard], cut: Cut) -> None:
    one, two = Plan.of(given_shards, cut), Plan.of(list(given_shards), cut)
    assert [one.piece(task) for task in one.tasks] == [two.piece(task) for task in two.tasks]
    assert one.digest() == two.digest()


def test_the_order_does_not_change_from_one_version_of_the_program_to_the_next() -> None:
    plan = Plan.of(SHARDS, Cut(records_per_task=10, epochs=2, seed=7))
    order = [(piece.shard, piece.start) for piece in map(plan.piece, plan.tasks)]
    assert order == ORDER


ORDER = [
    ("a", 10), ("c", 5), ("b", 0), ("a", 0), ("a", 20),
    ("a", 20), ("b", 0), ("c", 5), ("a", 10), ("a", 0),
]  # fmt: skip


def test_epochs_and_seeds_have_orders_of_their_own() -> None:
    many = [Shard("a", 0, 1000)]

    def order(seed: int, epoch: int) -> list[int]:
        plan = Plan.of(many, Cut(records_per_task=10, epochs=2, seed=seed))
        return [piece.start for piece in map(plan.piece, plan.tasks) if piece.epoch == epoch]

    assert len({tuple(order(seed, epoch)) for seed in (0, 1) for epoch in (0, 1)}) == 4


def test_without_shuffling_tasks_are_in_the_order_of_the_data() -> None:
    plan = Plan.of(SHARDS, Cut(records_per_task=10, shuffle=False, first=EVALUATIONS))
    starts = [(piece.shard, piece.start, piece.end) for piece in map(plan.piece, plan.tasks)]
    assert starts == [("a", 0, 10), ("a", 10, 20), ("a", 20, 25), ("b", 0, 10), ("c", 5, 8)]
    assert plan.piece(EVALUATIONS + 10).epoch == 2


@pytest.mark.parametrize(
    "other",
    [
        Plan.of(SHARDS, Cut(records_per_task=9)),
        Plan.of(SHARDS, Cut(records_per_task=10, seed=1)),
        Plan.of(SHARDS, Cut(records_per_task=10, epochs=2)),
        Plan.of(SHARDS, Cut(records_per_task=10, shuffle_records=True)),
        Plan.of(SHARDS[1:], Cut(records_per_task=10)),
        Plan.of([Shard("a", 0, 26), *SHARDS[1:]], Cut(records_per_task=10)),
    ],
    ids=["size", "seed", "epochs", "records", "file-gone", "file-grown"],
)
def test_another_plan_has_another_digest(other: Plan) -> None:
    assert Plan.of(SHARDS, Cut(records_per_task=10)).digest() != other.digest()


def test_data_without_a_record_is_refused() -> None:
    with pytest.raises(InputError, match=r"--training_data: there is not a single record in '/data'"):
        not_empty(Plan.of([Shard("empty", 0, 0)], Cut(records_per_task=10)), "--training_data", "/data")
