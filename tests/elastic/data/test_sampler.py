"""Every sample is used exactly once per epoch, for any changes of the world size."""

from __future__ import annotations

import math
import tracemalloc
from collections import Counter

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidewater.elastic.data import sampler
from tidewater.elastic.data.sampler import MOST_IN_TABLE, Cursor, Step, plan, scattered, without

ORDER = (4, 2, 1, 7, 5, 6, 0, 3)
SCATTERED = (1, 3, 7, 0, 5, 4, 6, 2)
SCATTERED_FAR = (4100045752, 4018094332, 2824220715, 3460537334)
LARGEST = 5.0
"""Standard deviations; the orders are the same in every run."""


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


@given(
    total=st.integers(1, 200),
    batch_size=st.integers(1, 30),
    inner=st.integers(1, 9),
    size=st.integers(1, 7),
    bad=st.sets(st.integers(0, 199), max_size=9),
)
def test_inner_steps_have_the_samples_and_shares_of_steps_of_their_size(
    total: int, batch_size: int, inner: int, size: int, bad: set[int]
) -> None:
    """Samples that are left out move those behind them into the inner step before."""
    skipped = tuple(sorted(each for each in bad if each < total))
    cursor = without(Cursor(), skipped, total=total, seed=1)
    while cursor.epoch == 0:
        step = plan(cursor, total=total, batch_size=inner * batch_size, seed=1, inner=batch_size)
        place, single = cursor, list[Step]()
        while not skipped and place != step.after:
            single.append(plan(place, total=total, batch_size=batch_size, seed=1))
            place = single[-1].after
        for rank in range(size):
            shares = step.shares(rank, size)
            assert len(shares) == math.ceil(len(step.samples) / batch_size) <= inner
            assert step.share(rank, size) == tuple(sample for share in shares for sample in share)
            assert skipped or list(shares) == [each.share(rank, size) for each in single]
        assert Counter(s for rank in range(size) for s in step.share(rank, size)) == Counter(step.samples)
        cursor = step.after


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


@given(
    total=st.integers(2, 60),
    batches=st.lists(st.integers(1, 20), min_size=1),
    bad=st.sets(st.integers(0, 59), max_size=30),
    large=st.booleans(),
)
def test_all_samples_but_those_that_cannot_be_read_are_used_once_in_each_epoch(
    total: int, batches: list[int], bad: set[int], large: bool
) -> None:
    """They are left out when a step has them for the first time. Every epoch has an end, where it can be evaluated."""
    bad = {each for each in bad if each < total - 1}
    cursor, used, known, turn, ends = Cursor(), Counter[int](), set[int](), 0, list[int]()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sampler, "MOST_IN_TABLE", 0 if large else total)
        while cursor.epoch < 3:
            step = plan(cursor, total=total, batch_size=batches[turn % len(batches)], seed=1)
            assert step.samples
            turn += 1
            found = bad.intersection(step.samples)
            if found:
                known |= found
                cursor = without(cursor, known, total=total, seed=1)
            else:
                used.update(step.samples)
                cursor = step.after
            if not cursor.offset and cursor.epoch not in [0, *ends]:
                ends.append(cursor.epoch)
    assert used == dict.fromkeys(set(range(total)) - bad, 3)
    assert ends == [1, 2, 3]
    assert set(cursor.skipped) == bad


def test_samples_that_are_left_out_change_no_other_step() -> None:
    whole = plan(Cursor(0, 30), total=100, batch_size=10, seed=0)
    left = plan(Cursor(0, 30, skipped=(whole.samples[4], 999)), total=100, batch_size=10, seed=0)
    assert left.samples == whole.samples[:4] + whole.samples[5:]
    assert left.after.offset == whole.after.offset


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


@given(total=st.integers(1, 3000), seed=st.integers(-3, 3), epoch=st.integers(0, 3))
def test_an_order_without_a_table_has_every_sample_once(total: int, seed: int, epoch: int) -> None:
    assert sorted(scattered(np.arange(total), total, seed, epoch).tolist()) == list(range(total))


@pytest.mark.parametrize("total", [2**18, 2**18 + 1])
def test_an_long_order_without_a_table_is_a_permutation(total: int) -> None:
    order = scattered(np.arange(total), total, seed=1, epoch=2)
    assert np.bincount(order, minlength=total).tolist() == [1] * total
    assert np.array_equal(scattered(np.arange(1000, 2000), total, seed=1, epoch=2), order[1000:2000])


@pytest.mark.parametrize("total", [7, 100, 257])
def test_an_order_without_a_table_has_no_structure(total: int) -> None:
    """Over the epochs each sample is as often at each place, and as often behind each other sample, as by chance."""
    cells, epochs = min(total, 16), 400
    at, steps = np.zeros((cells, cells)), np.zeros((cells, cells))
    positions = np.arange(total)
    for epoch in range(epochs):
        order = scattered(positions, total, seed=9, epoch=epoch)
        np.add.at(at, (positions * cells // total, order * cells // total), 1)
        np.add.at(steps, (order[:-1] * cells // total, order[1:] * cells // total), 1)
    sizes = np.bincount(positions * cells // total)
    expected = np.outer(sizes, sizes) / total * epochs
    assert spread(at, expected) < LARGEST
    expected_steps = (np.outer(sizes, sizes) - np.diag(sizes)) / total * epochs
    assert spread(steps, expected_steps) < LARGEST


def test_the_order_without_a_table_depends_on_epoch_and_seed() -> None:
    orders = [scattered(np.arange(64), 10**6, seed, epoch).tolist() for seed in range(4) for epoch in range(4)]
    assert len({tuple(order) for order in orders}) == len(orders)


def test_the_order_without_a_table_is_the_same_in_every_version() -> None:
    assert tuple(scattered(np.arange(8), 8, seed=-5, epoch=1).tolist()) == SCATTERED
    assert plan(Cursor(3), total=5 * 10**9, batch_size=4, seed=1).samples == SCATTERED_FAR


@pytest.mark.parametrize("offset", [0, 2**21])
def test_a_step_of_a_large_dataset_needs_no_table(offset: int) -> None:
    beginning = Cursor(0, offset)
    tracemalloc.start()
    try:
        step = plan(beginning, total=MOST_IN_TABLE + 1, batch_size=256, seed=0)
        assert tracemalloc.get_traced_memory()[1] < 2**20
    finally:
        tracemalloc.stop()
    assert len(set(step.samples)) == 256
    assert step.after == Cursor(0, offset + 256)


def spread(counts: npt.NDArray[np.float64], expected: npt.NDArray[np.float64]) -> float:
    """Return chi-square minus its mean, in standard deviations, for a table without a free sum of a row or column."""
    known = expected > 0
    freedom = (len(counts) - 1) ** 2 - int((~known).sum())
    chi = float(((counts - expected)[known] ** 2 / expected[known]).sum())
    return (chi - freedom) / math.sqrt(2 * freedom)
