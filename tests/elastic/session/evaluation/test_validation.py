"""Each sample of a validation counts once, however workers come and go; one that does something else is named."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from tests.elastic.buffers.together import all_at_once, ranks
from tests.elastic.session.stopping.ranks import Rank, begun
from tidewater.elastic.errors import ConfigError, GroupBroken
from tidewater.elastic.session.evaluation import ROUND, Seat, Validation

TOTAL = 10 * ROUND + 5
SAMPLES = range(3, 3 + TOTAL)
EXPECTED = {"count": TOTAL, "squares": sum(each**2 for each in SAMPLES), "total": sum(SAMPLES)}


def made(folder: Path, size: int) -> list[Rank]:
    """Return ranks with validation data of numbers, each equal to its index."""
    found = begun(lambda rank: {}, folder, size=size)
    for each in found:
        loader: Any = each.loop._material.loader
        loader.validation = lambda parts: iter([torch.tensor(list(part), dtype=torch.float64) for part in parts])
        each.loop.evaluation.begin(Seat(each.rank, size))
    return found


def together(members: list[Rank]) -> None:
    """Let these ranks form the next generation, in this order."""
    for rank, (each, group) in enumerate(zip(members, ranks(len(members))[1], strict=True)):
        object.__setattr__(each.session.worker, "group", group)
        each.loop.evaluation.begin(Seat(rank, len(members)))


def validated(rank: Rank, rounds: int = 1000, samples: range = SAMPLES) -> dict[str, float] | None:
    """Go through a validation; know of the next generation after this number of batches."""
    validation = rank.loop.evaluation.validation(samples)
    for place, (batch, add) in enumerate(validation):
        if place + 1 == rounds:
            rank.session.knows = lambda: True  # type: ignore[method-assign]
        add(total=batch.sum(), squares=batch.square().sum(), count=len(batch))
    del rank.session.__dict__["knows"]
    return validation.totals


@pytest.mark.parametrize("size", [1, 2, 3])
def test_the_totals_are_the_same_at_any_number_of_workers(size: int, tmp_path: Path) -> None:
    members = made(tmp_path, size)
    for each in members:
        each.session.knows = lambda: False  # type: ignore[method-assign]
    assert all_at_once(lambda rank: validated(members[rank]), size) == [EXPECTED] * size
    assert all(each.loop.evaluation.finish() for each in members)


def test_it_goes_on_where_it_was_when_workers_leave_and_join(tmp_path: Path) -> None:
    a, b, c = made(tmp_path / "one", 3)
    (newcomer,) = made(tmp_path / "two", 1)
    for members, rounds in (([a, b, c], 1), ([c, a], 2), ([a, c, newcomer], 1)):
        together(members)
        for each in members:
            each.session.knows = lambda: False  # type: ignore[method-assign]
        assert all_at_once(lambda rank: validated(members[rank], rounds), len(members)) == [None] * len(members)  # noqa: B023
        assert [each.loop.evaluation.finish() for each in members] == [False] * len(members)
    together([newcomer, a])
    for each in (newcomer, a):
        each.session.knows = lambda: False  # type: ignore[method-assign]
    assert all_at_once(lambda rank: validated((newcomer, a)[rank]), 2) == [EXPECTED] * 2


@pytest.mark.parametrize("deaf", [0, 1])
def test_a_round_that_only_one_worker_has_got_counts_once(deaf: int, tmp_path: Path) -> None:
    """The second round's sums reach only one of two workers. The next generation is where its rank 0 is."""
    members = made(tmp_path, 2)

    def broken(rank: int) -> None:
        group: Any = members[rank].session.worker.group
        tally, rounds = group.tally, list[Any]()

        def once(values: Any) -> Any:
            rounds.extend([values] * (len(values) == len(EXPECTED) + 1))  # others compare what the workers do
            if len(rounds) == 3:
                raise GroupBroken("a peer is lost")
            sums = tally(values)
            if rank == deaf and len(rounds) == 2:
                raise GroupBroken("a peer is lost")
            return sums

        group.tally = once
        members[rank].session.knows = lambda: False  # type: ignore[method-assign]
        with pytest.raises(GroupBroken):
            validated(members[rank])

    all_at_once(broken, 2)
    done = [each.loop.evaluation._progress[0].done for each in members]
    assert (done[deaf], done[1 - deaf]) == (2 * ROUND, 4 * ROUND)
    together(members)
    for each in members:
        each.session.knows = lambda: False  # type: ignore[method-assign]
    assert all_at_once(lambda rank: validated(members[rank]), 2) == [EXPECTED] * 2


def test_a_worker_that_the_others_have_gone_on_without_gets_no_totals(tmp_path: Path) -> None:
    (rank,) = made(tmp_path, 1)

    def frozen() -> None:
        raise GroupBroken("others have continued without this worker")

    def goes_through(validation: Validation) -> None:
        for batch, add in validation:
            add(count=len(batch))

    rank.session.knows, rank.session.check = lambda: False, frozen  # type: ignore[method-assign]
    first, second = (rank.loop.evaluation.validation(SAMPLES) for _ in range(2))
    with pytest.raises(GroupBroken):
        goes_through(first)
    goes_through(second)
    assert (first.totals, second.totals) == (None, None)


def test_a_change_that_is_known_in_the_last_round_interrupts_nothing(tmp_path: Path) -> None:
    (rank,) = made(tmp_path, 1)
    rank.session.knows = lambda: False  # type: ignore[method-assign]
    assert validated(rank, rounds=11) == EXPECTED
    assert rank.loop.evaluation.finish()


def test_a_worker_that_has_to_end_begins_no_round(tmp_path: Path) -> None:
    (rank,) = made(tmp_path, 1)
    rank.session.is_overdue = lambda: True  # type: ignore[method-assign]
    validation = rank.loop.evaluation.validation(SAMPLES)
    assert list(validation) == []
    assert validation.totals is None
    assert not rank.loop.evaluation.finish()


def test_what_was_finished_is_not_repeated_in_the_next_generation(tmp_path: Path) -> None:
    members = made(tmp_path, 2)

    def all_of_it(rank: int) -> dict[str, float] | None:
        members[rank].session.knows = lambda: False  # type: ignore[method-assign]
        return validated(members[rank])

    assert all_at_once(all_of_it, 2) == [EXPECTED] * 2
    together(members)

    def again(rank: int) -> dict[str, float] | None:
        validation = members[rank].loop.evaluation.validation(SAMPLES)
        assert list(validation) == []
        return validation.totals

    assert all_at_once(again, 2) == [EXPECTED] * 2


def refused(members: list[Rank], do: Any) -> str:
    """Return the sentence with which all of them end."""

    def ended(rank: int) -> str:
        members[rank].session.knows = lambda: False  # type: ignore[method-assign]
        with pytest.raises(ConfigError) as error:
            do(members[rank])
        return str(error.value)

    (sentence,) = set(all_at_once(ended, len(members)))
    return sentence


def test_a_worker_that_skips_a_validation_is_named(tmp_path: Path) -> None:
    def do(rank: Rank) -> None:
        if rank.rank != 1:
            validated(rank)
        rank.loop.evaluation.finish(compare=True)

    members = made(tmp_path, 3)
    for each in members:
        object.__setattr__(each.session, "config", type("Config", (), {"worker": f"w-{each.rank}"}))
    sentence = refused(members, do)
    assert "worker w-0 begins validation 1, over samples 3 to 647, worker w-1 has ended after 0 validations" in sentence


@pytest.mark.parametrize("other", [range(5), range(3, 4)])
def test_workers_with_other_data_are_named(other: range, tmp_path: Path) -> None:
    sentence = refused(made(tmp_path, 2), lambda rank: validated(rank, samples=other if rank.rank else SAMPLES))
    assert f"begins validation 1, over samples {other.start} to {other.stop - 1}" in sentence


def test_workers_with_other_sums_are_named(tmp_path: Path) -> None:
    def do(rank: Rank) -> None:
        for _, add in rank.loop.evaluation.validation(SAMPLES):
            add(**{"loss" if rank.rank else "error": 1})

    sentence = refused(made(tmp_path, 2), do)
    assert "adds the sums error, worker" in sentence
    assert "adds the sums loss: every worker has to add the same sums" in sentence
