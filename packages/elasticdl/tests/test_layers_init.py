"""The first value of a row depends on seed, table and id, and on nothing else."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable

import pytest
import torch
from elasticdl.embedding_init import Table, initial_rows
from elasticdl.errors import InputError
from elasticdl.layers import LocalTables
from hypothesis import given
from hypothesis import strategies as st

IDS = st.lists(st.integers(0, 2**63 - 1), min_size=1, max_size=40, unique=True)
INITIALIZERS = ["uniform(-1,1)", "normal(0,1)", "constant(0.5)"]
MASK = 2**64 - 1


@given(IDS, st.integers(1, 5), st.sampled_from(INITIALIZERS), st.randoms(use_true_random=False))
def test_any_placement_gives_the_same_rows(ids: list[int], servers: int, initializer: str, draw: random.Random) -> None:
    table = Table("user", 3, initializer, seed=7)
    whole = initial_rows(table, torch.tensor(ids))
    placed = [LocalTables([table]) for _ in range(servers)]
    for each in draw.sample(ids, len(ids)):
        placed[each % servers].pull("user", torch.tensor([each]))
    for each, row in zip(ids, whole, strict=True):
        assert torch.equal(placed[each % servers].pull("user", torch.tensor([each]))[0], row)


def by_hand(seed: int, name: str, row: int, column: int) -> float:
    """Return a uniform number in [0, 1) as the module's docstring describes it, in Python's own whole numbers."""

    def mix(word: int) -> int:
        word = (word ^ word >> 30) * 0xBF58476D1CE4E5B9 & MASK
        word = (word ^ word >> 27) * 0x94D049BB133111EB & MASK
        return word ^ word >> 31

    gamma = 0x9E3779B97F4A7C15
    key = int.from_bytes(hashlib.sha256(f"{seed}:{name}".encode()).digest()[:8], "little")
    start = mix((row * gamma + key) & MASK)
    return (mix((start + (column + 1) * gamma) & MASK) >> 11) * 2.0**-53


def test_the_numbers_are_those_of_the_description() -> None:
    """A checkpoint of an earlier version must go on with the same rows: these bits must never change."""
    found = initial_rows(Table("user", 2, "uniform(0,1)", seed=3), torch.tensor([0, 12345678901234]))
    expected = [[by_hand(3, "user", row, column) for column in range(2)] for row in (0, 12345678901234)]
    assert torch.equal(found, torch.tensor(expected, dtype=torch.float64).float())
    assert found.flatten().tolist() == [
        0.25415635108947754,
        0.31355181336402893,
        0.9493503570556641,
        0.5372357368469238,
    ]


@pytest.mark.parametrize(
    "other", [Table("user", 4, seed=1), Table("item", 4), Table("user", 4, "uniform(-0.05,0.06)")], ids=str
)
def test_another_table_has_other_rows(other: Table) -> None:
    ids = torch.arange(5)
    assert not torch.equal(initial_rows(other, ids), initial_rows(Table("user", 4), ids))


@pytest.mark.parametrize(
    ("initializer", "mean", "deviation"),
    [("uniform(-1,3)", 1.0, 4 / 12**0.5), ("normal(2,0.5)", 2.0, 0.5), ("zeros", 0.0, 0.0), ("constant(3)", 3.0, 0.0)],
)
def test_numbers_are_distributed_as_said(initializer: str, mean: float, deviation: float) -> None:
    rows = initial_rows(Table("user", 8, initializer), torch.arange(20_000))
    assert rows.mean().item() == pytest.approx(mean, abs=0.01)
    assert rows.std().item() == pytest.approx(deviation, abs=0.01)


def test_neighbours_in_a_table_are_not_correlated() -> None:
    rows = initial_rows(Table("user", 8, "normal(0,1)"), torch.arange(20_000))
    assert torch.corrcoef(rows.T).fill_diagonal_(0).abs().max().item() < 0.04
    assert torch.corrcoef(torch.stack([rows[:-1].flatten(), rows[1:].flatten()]))[0, 1].abs().item() < 0.02


def test_uniform_numbers_stay_within_their_bounds() -> None:
    rows = initial_rows(Table("user", 64), torch.arange(10_000))
    assert rows.min() >= -0.05
    assert rows.max() <= 0.05


def test_a_table_travels_unchanged() -> None:
    table = Table("user", 16, "normal(0,0.1)", seed=5, num_ids=100)
    assert Table.from_json(table.to_json()) == table


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: Table("", 1), "has no name"),
        (lambda: Table("t", 0), "'t': dim is 0"),
        (lambda: Table("t", 1, num_ids=0), "'t': num_ids is 0"),
        (lambda: Table("t", 1, "glorot"), "unknown initializer of an embedding table: 'glorot'"),
        (lambda: Table("t", 1, "uniform(1)"), "has 1 arguments"),
        (lambda: Table("t", 1, "uniform(1,0)"), "lower bound above its upper"),
        (lambda: Table("t", 1, "normal(0,-1)"), "negative deviation"),
        (lambda: Table("t", 1, "normal(0,x)"), "no number"),
        (lambda: Table("t", 1, "constant(inf)"), "not finite"),
        (lambda: Table.from_json("{}"), "this is no embedding table"),
        (lambda: Table.from_json("["), "this is no embedding table"),
    ],
)
def test_a_table_that_makes_no_sense_is_named(make: Callable[[], Table], said: str) -> None:
    with pytest.raises(InputError, match=said):
        make()
