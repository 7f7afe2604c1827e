"""Every sample is used exactly once per epoch, for any changes of the world size."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from tidewater.elastic.data.sampler import Cursor, plan

ORDER = (4, 2, 1, 7, 5, 6, 0, 3)


@given(
    total=st.integers(1, 200),
    batch_size=st.integers(1, 70),
    sizes=st.lists(st.integers(1, 9), min_size=1, max_size=12),
    discarded=st.lists(st.booleans(), min_size=1, max_size=7),
)
def test_each_sample_is_committed_exactly_once_per_epoch(
    total: int, batch_size: int, sizes: list[int], discarded: list[bool]
) -> None:
    """This holds for any sequence of world sizes, with discarded and repeated steps."""
    cursor, ledger, attempt = Cursor(), Counter[int](), 0
    while cursor.epoch < 2:
        size = sizes[attempt % len(sizes)]
        step = plan(cursor, total=total, batch_size=batch_size, seed=1)
        shares = [step.share(rank, size) for rank in range(size)]
        attempt += 1
        if discarded[attempt % len(discarded)] and not all(discarded):
            continue
        for share in shares:
            ledger.update(share)
        cursor = step.after
    assert ledger == dict.fromkeys(range(total), 2)


@given(total=st.integers(1, 300), batches=st.lists(st.integers(1, 80), min_size=1), seed=st.integers(0, 5))
def test_an_epoch_has_every_sample_once_even_if_the_batch_size_changes_in_it(
    total: int, batches: list[int], seed: int
) -> None:
    cursor, used, steps = Cursor(), Counter[int](), 0
    while cursor.epoch == 0:
        step = plan(cursor, total=total, batch_size=batches[steps % len(batches)], seed=seed)
        used.update(step.samples)
        cursor, steps = step.after, steps + 1
    assert used == dict.fromkeys(range(total), 1)
    assert cursor == Cursor(1, 0)


def test_the_order_depends_only_on_epoch_and_seed() -> None:
    first = plan(Cursor(0), total=100, batch_size=100, seed=0).samples
    assert first == plan(Cursor(0), total=100, batch_size=100, seed=0).samples
    assert first != plan(Cursor(1), total=100, batch_size=100, seed=0).samples
    assert first != plan(Cursor(0), total=100, batch_size=100, seed=1).samples


def test_the_order_is_the_same_in_every_version() -> None:
    assert plan(Cursor(1), total=8, batch_size=8, seed=-5).samples == ORDER


def test_shares_differ_by_at_most_one_sample() -> None:
    step = plan(Cursor(), total=100, batch_size=64, seed=0)
    assert sorted({len(step.share(rank, 3)) for rank in range(3)}) == [21, 22]
