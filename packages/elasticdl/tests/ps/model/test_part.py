"""What one server does with gradients: versions, ages, duplicates, refusals, snapshots."""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from elasticdl.embedding_init import Table, initial_rows
from elasticdl.errors import InputError
from elasticdl.ps.errors import PushRefused, SnapshotLost
from elasticdl.ps.model.deduplication import Minibatch
from elasticdl.ps.model.gradients import Gradient
from elasticdl.ps.model.part import MAX_SNAPSHOTS, Contents, Part
from elasticdl.ps.model.policy import Policy
from elasticdl.ps.placement import coalesced, split
from elasticdl.rpc.tensors import decode
from elasticdl.zoo.optimizers import SGD, Adagrad, Adam, Optimizer
from hypothesis import given, settings
from hypothesis import strategies as st

TABLE = Table("item", 2, seed=1, num_ids=1000)


def part(policy: Policy | None = None, optimizer: Optimizer | None = None) -> Part:
    dense, buffers = {"w": torch.zeros(3)}, {"mean": torch.zeros(2)}
    return Part(Contents(dense, {"item": TABLE}, optimizer or SGD(lr=1.0), buffers), policy or Policy())


def gradient(number: int, value: float = 1.0, *, version: int = 0, worker: str = "w", **other: Any) -> Gradient:
    return Gradient(Minibatch(worker, "p", number), version, {"w": torch.full((3,), float(value))}, **other)


def weight(part: Part, snapshot: int = 0) -> float:
    values = decode(part.view(snapshot).dense["w"])
    assert (values == values[0]).all()
    return float(values[0])


@dataclass(frozen=True)
class Case:
    policy: Policy
    pushes: list[tuple[float, int]]
    """Gradient, and the version that it was computed with."""
    accepted: list[bool]
    version: int
    weight: float


CASES = [
    pytest.param(Case(Policy(), [(1, 0), (1, 1)], [True] * 2, 2, -2.0), id="each-gradient-is-a-version"),
    pytest.param(Case(Policy(), [(1, 0), (1, 0)], [True] * 2, 2, -2.0), id="an-old-one-is-used-in-full"),
    pytest.param(
        Case(Policy(lr_staleness_modulation=True), [(1, 0), (1, 0), (1, 0), (1, 3)], [True] * 4, 4, -3.5),
        id="an-old-one-is-divided-by-its-age",
    ),
    pytest.param(Case(Policy(grads_to_wait=2), [(1, 0)], [True], 0, 0.0), id="one-of-two-waits"),
    pytest.param(Case(Policy(grads_to_wait=2), [(1, 0), (3, 0)], [True] * 2, 1, -2.0), id="the-mean-of-two"),
    pytest.param(
        Case(Policy(grads_to_wait=2), [(1, 0), (3, 0), (9, 0), (1, 1)], [True, True, False, True], 1, -2.0),
        id="an-old-one-is-refused",
    ),
    pytest.param(
        Case(Policy(grads_to_wait=2, sync_version_tolerance=1), [(1, 0), (3, 0), (4, 0), (2, 1)], [True] * 4, 2, -5.0),
        id="an-old-one-within-the-tolerance-is-used",
    ),
    pytest.param(
        Case(Policy(grads_to_wait=2), [(1, 5)], [False], 0, 0.0), id="one-of-a-version-that-was-lost-is-refused"
    ),
    pytest.param(
        Case(Policy(grads_to_wait=2, use_async=True), [(1, 0), (1, 0)], [True] * 2, 2, -2.0),
        id="use_async-waits-for-nobody",
    ),
]


@pytest.mark.parametrize("case", CASES)
def test_gradients_make_versions_as_the_flags_say(case: Case) -> None:
    ours = part(case.policy)
    accepted = [
        ours.push(gradient(number, value, version=version))[0] for number, (value, version) in enumerate(case.pushes)
    ]
    assert (accepted, ours.view().version, weight(ours)) == (case.accepted, case.version, case.weight)


@pytest.mark.parametrize("flags", [{"grads_to_wait": 0}, {"sync_version_tolerance": -1}], ids=str)
def test_a_wrong_flag_is_named(flags: dict[str, int]) -> None:
    with pytest.raises(InputError, match=f"--{next(iter(flags))}"):
        Policy(**flags)  # type: ignore[arg-type]


@pytest.mark.parametrize("policy", [Policy(), Policy(grads_to_wait=3)], ids=["async", "sync"])
def test_a_minibatch_that_is_pushed_again_counts_once(policy: Policy) -> None:
    ours = part(policy)
    for number in (1, 1, 2, 1, 2, 3, 3):
        assert ours.push(gradient(number, 3.0))[0]
    assert weight(ours) == (-9.0 if policy.waits_for == 1 else -3.0)


def test_flush_applies_the_mean_of_those_that_wait() -> None:
    ours = part(Policy(grads_to_wait=4))
    assert ours.flush() == 0
    ours.push(gradient(1, 1.0))
    ours.push(gradient(2, 2.0))
    assert ours.flush() == 1
    assert weight(ours) == -1.5


def test_a_row_without_a_gradient_in_one_of_two_counts_as_zero_there() -> None:
    ours = part(Policy(grads_to_wait=2))
    ids, ones = torch.tensor([4, 7]), torch.ones(2, 2)
    ours.push(gradient(1, rows={"item": (ids, ones)}))
    ours.push(gradient(2, rows={"item": (torch.tensor([7]), torch.full((1, 2), 3.0))}))
    changes = ours.rows("item", ids, ours.view()) - initial_rows(TABLE, ids)
    assert torch.allclose(changes, torch.tensor([[-0.5, -0.5], [-2.0, -2.0]]))


def test_the_learning_rate_is_that_of_the_newest_of_several() -> None:
    ours = part(Policy(grads_to_wait=2, sync_version_tolerance=9))
    ours.push(gradient(1))
    ours.push(gradient(2))
    ours.push(gradient(3, version=1, lr=5.0))
    ours.push(gradient(4, version=0, lr=7.0))
    assert weight(ours) == -1.0 - 5.0


REFUSED = [
    pytest.param({"dense": {"v": torch.ones(3)}}, r"doesn't know v, .* shape \[3\]", id="unknown-name"),
    pytest.param({"dense": {"w": torch.ones(4)}}, r"w has shape \[3\] .* and \[4\]", id="shape"),
    pytest.param({"dense": {"w": torch.ones(3).double()}}, r"float32\) on .* \(torch.float64\)", id="dtype"),
    pytest.param({"dense": {"w": torch.tensor([1.0, math.nan, 1.0])}}, "gradient of w, .* NaN", id="nan"),
    pytest.param({"dense": {"w": torch.tensor([1.0, math.inf, 1.0])}}, "gradient of w, .* infinite", id="inf"),
    pytest.param({"dense": {"mean": torch.ones(2)}}, "mean is a buffer", id="gradient-of-a-buffer"),
    pytest.param({"buffers": {"mean": torch.ones(5)}}, r"mean has shape \[2\] .* and \[5\]", id="buffer-shape"),
    pytest.param({"buffers": {"w": torch.ones(3)}}, "doesn't know w", id="parameter-as-a-buffer"),
    pytest.param({"rows": {"user": (torch.tensor([1]), torch.ones(1, 2))}}, "table 'user'", id="unknown-table"),
    pytest.param({"rows": {"item": (torch.tensor([1]), torch.ones(1, 3))}}, r"2 numbers .* \[1, 3\]", id="dim"),
    pytest.param({"rows": {"item": (torch.tensor([-1]), torch.ones(1, 2))}}, "no row -1", id="negative-id"),
    pytest.param({"rows": {"item": (torch.tensor([1000]), torch.ones(1, 2))}}, "no row 1000", id="id-too-large"),
    pytest.param(
        {"rows": {"item": (torch.tensor([1]), torch.full((1, 2), math.nan))}}, "table 'item', .* NaN", id="nan-row"
    ),
    pytest.param({"lr": math.nan}, "learning rate", id="learning-rate"),
]


@pytest.mark.parametrize(("wrong", "message"), REFUSED)
def test_what_does_not_fit_is_refused_by_name_and_changes_nothing(wrong: dict[str, Any], message: str) -> None:
    ours = part()
    pushed = Gradient(Minibatch("w", "p", 1), 0, **{"dense": {}, **wrong})
    with pytest.raises(PushRefused, match=message):
        ours.push(pushed)
    assert ours.view().version == 0
    assert ours.push(gradient(1)) == (True, 1)


def test_a_buffer_has_the_value_that_was_pushed_last() -> None:
    ours = part()
    ours.push(gradient(1, buffers={"mean": torch.tensor([1.0, 2.0])}))
    ours.push(gradient(2))
    assert decode(ours.view().dense["mean"]).tolist() == [1.0, 2.0]


def test_several_snapshots_keep_their_values() -> None:
    ours, ids = part(), torch.tensor([4, 5])
    for number in range(1, 4):
        ours.push(gradient(number, rows={"item": (ids, torch.ones(2, 2))}))
        ours.take_snapshot(number)
        ours.take_snapshot(number)
    for number in range(1, 4):
        assert weight(ours, number) == -number
        assert ours.view(number).version == number
        change = ours.rows("item", ids, ours.view(number)) - initial_rows(TABLE, ids)
        assert torch.allclose(change, torch.full((2, 2), -float(number)))


def test_a_snapshot_that_is_dropped_or_unknown_is_named() -> None:
    ours = part()
    ours.take_snapshot(3)
    ours.drop_snapshot(3)
    ours.drop_snapshot(3)
    with pytest.raises(SnapshotLost, match="no snapshot of version 3"):
        ours.view(3)


def test_the_oldest_snapshot_goes_when_there_are_too_many() -> None:
    ours = part()
    for number in range(1, MAX_SNAPSHOTS + 2):
        ours.take_snapshot(number)
    with pytest.raises(SnapshotLost):
        ours.view(1)
    assert ours.view(2).version == 0
    assert len(ours.stores["item"]._snapshots) == MAX_SNAPSHOTS


def test_pulls_do_not_wait_for_an_update() -> None:
    ours = part()
    with ours._changing, ThreadPoolExecutor(2) as pool:  # as if an update took long
        assert pool.submit(weight, ours).result(60) == 0.0
        assert pool.submit(ours.rows, "item", torch.tensor([4]), ours.view()).result(60).shape == (1, 2)


OPTIMIZERS = [SGD(lr=0.1), SGD(lr=0.1, momentum=0.9), Adagrad(lr=0.1, lr_decay=0.1), Adam(lr=0.1, amsgrad=True)]
PUSHES = st.lists(st.lists(st.integers(0, 30), min_size=1, max_size=10), min_size=1, max_size=8)


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 7), PUSHES, st.sampled_from(OPTIMIZERS))
def test_any_number_of_servers_gives_the_same_rows(count: int, pushes: list[list[int]], optimizer: Optimizer) -> None:
    alone, parts = part(optimizer=optimizer), [part(optimizer=optimizer) for _ in range(count)]
    generator = torch.Generator().manual_seed(len(pushes))
    for number, pushed in enumerate(pushes):
        ids = torch.tensor(pushed)
        values = torch.randn(len(ids), 2, generator=generator)
        alone.push(Gradient(Minibatch("w", "p", number), 0, {}, {"item": (ids, values)}))
        unique, summed = coalesced(ids, values)
        for ours, mine in zip(parts, split(unique, count), strict=True):
            ours.push(Gradient(Minibatch("w", "p", number), 0, {}, {"item": (unique[mine], summed[mine])}))
    every = torch.arange(31)
    for ours, mine in zip(parts, split(every, count), strict=True):
        assert torch.equal(ours.rows("item", every[mine], ours.view()), alone.rows("item", every[mine], alone.view()))
