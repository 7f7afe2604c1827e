"""The check accepts a correct run and names every problem of an incorrect one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.elastic.schedules.ledger import Attempt, Book, Final, Restored, Scribe, Validated, Written, verdict

TOTAL = 4


def attempt(step: int, samples: tuple[int, ...], *, rank: int = 0, epoch: int = 0, generation: int = 1) -> Attempt:
    """Return the attempt of one of two ranks at a step of two samples, in a generation without predecessor."""
    base = 0 if step == 1 else generation
    return Attempt(step, generation, rank, 2, epoch, base, weight=len(samples) / 2, samples=samples)


def final(of: Attempt, digest: str = "same") -> Final:
    return Final(of.step, of.generation, of.rank, of.size, 0.5, digest, float(of.step), of.samples)


@pytest.fixture
def book(tmp_path: Path) -> Book:
    """Return a book of two steps of two samples by two ranks: the first epoch is finished, the second has begun."""
    book = Book(tmp_path)
    for step, epoch, samples in ((1, 0, (3, 1)), (2, 0, (0, 2)), (3, 1, (1, 2))):
        for rank, process in enumerate("ab"):
            made = attempt(step, samples[rank : rank + 1], rank=rank, epoch=epoch)
            book.add(process, made)
            book.add(process, final(made))
    return book


def test_a_run_without_faults_has_no_problems(book: Book) -> None:
    assert verdict(book, TOTAL) == []


def test_a_lost_and_a_repeated_sample_are_named(book: Book) -> None:
    made = book.attempts[2][1]
    made[0] = replace(made[0], samples=(3,))
    book.finals[2]["a"] = final(made[0])
    assert verdict(book, TOTAL) == [
        "epoch 0: sample 3 was repeated (steps 1, 2)",
        "epoch 0: lost 1 of 4 samples: 0",
    ]


def test_a_step_committed_by_two_groups_is_a_failure(book: Book) -> None:
    book.add("c", final(attempt(2, (0,), generation=2)))
    assert "step 2 became final in generations 1 (a, b) and 2 (c)" in verdict(book, TOTAL)


def test_a_repeated_committed_step_is_detected_even_if_it_was_reported_once(book: Book) -> None:
    for rank, process in enumerate("ab"):
        book.add(process, attempt(2, ((0,), (2,))[rank], rank=rank, generation=2))
        made = replace(attempt(3, ((1,), (2,))[rank], rank=rank, epoch=1, generation=2), base=2)
        book.add(process, made)
        book.add(process, final(made))
    book.attempts[2][2] = [replace(made, base=1) for made in book.attempts[2][2]]
    assert verdict(book, TOTAL)[0] == (
        "step 2 was reported final in generation 1 by a, but what followed builds on generation 2's"
    )


def test_samples_of_failed_attempts_do_not_count(book: Book) -> None:
    book.add("c", attempt(2, (0,), generation=2))
    book.add("c", attempt(4, (3,), rank=1, epoch=1))
    assert verdict(book, TOTAL) == []


def test_a_rank_without_a_sample_has_no_weight(book: Book) -> None:
    book.add("a", replace(attempt(3, (1,), rank=0, epoch=1), weight=0.0))
    assert verdict(book, TOTAL) == []


def test_a_share_with_too_much_weight_is_detected(book: Book) -> None:
    made = book.attempts[2][1]
    made[0] = replace(made[0], weight=1.0)
    assert verdict(book, TOTAL) == ["step 2: rank 0's 1 of 2 samples have weight 1"]


def test_missing_ranks_different_parameters_and_wrong_reports_are_detected(book: Book) -> None:
    del book.attempts[3][1][1]
    book.finals[2]["b"] = replace(book.finals[2]["b"], digest="other")
    book.finals[1]["a"] = replace(book.finals[1]["a"], samples=(0,))
    found = verdict(book, TOTAL)
    assert "step 3 (generation 1) lacks the gradients of rank [1] of 2" in found
    assert "step 2: the replicas' states differ (a: same, b: other)" in found
    assert "step 1: a was told of samples [0], its loss saw [3]" in found


def test_only_processes_with_the_same_part_of_a_model_must_have_equal_states(book: Book) -> None:
    parts = [replace(book.finals[2]["b"], digest=digest, part=1) for digest in ("other", "third")]
    book.finals[2]["b"] = parts[0]
    assert verdict(book, TOTAL) == []
    book.finals[2] |= {"c": parts[0], "d": parts[1]}
    assert verdict(book, TOTAL) == ["step 2: the replicas' states differ (a: same, b: other, c: other, d: third)"]


def test_a_step_that_a_process_took_part_in_and_never_learnt_of_is_a_failure(book: Book) -> None:
    del book.finals[2]["b"]
    assert verdict(book, TOTAL) == ["step 2 (generation 1) was never reported to b, which took part in it"]


def test_a_step_that_was_reported_twice_is_a_failure(book: Book) -> None:
    book.add("b", book.finals[3]["b"])
    assert verdict(book, TOTAL) == ["step 3 was reported twice to b"]


def test_a_broken_chain_of_steps_is_a_failure(book: Book) -> None:
    book.attempts[3][1] = [replace(made, base=7) for made in book.attempts[3][1]]
    assert verdict(book, TOTAL) == ["nobody attempted step 2 in generation 7, on which all else builds"]


def test_going_back_to_a_checkpoint_is_a_failure_unless_no_state_was_left(book: Book) -> None:
    book.add("c", Restored(step=1, generation=2, base=1))
    for rank, process in enumerate("cd"):
        for step, epoch, samples in ((2, 0, (0, 2)), (3, 1, (1, 2)), (4, 1, (0, 3))):
            made = attempt(step, samples[rank : rank + 1], rank=rank, epoch=epoch, generation=2)
            book.add(process, made)
            book.add(process, final(made))
    assert verdict(book, TOTAL)[0] == "step 2 became final in generations 1 (a, b) and 2 (c, d)"
    assert verdict(book.without_what_was_undone(), TOTAL) == []


def test_a_state_that_was_left_behind_twice_before_it_made_a_step_leads_back_to_who_made_it(book: Book) -> None:
    for generation, base in ((3, 1), (5, 3)):
        book.add("a", Restored(step=3, generation=generation, base=base))
    made = replace(attempt(4, (0, 3), epoch=1, generation=5), size=1, weight=1.0)
    book.add("a", made)
    book.add("a", final(made))
    assert verdict(book, TOTAL) == []


def test_a_growing_ledger_is_read_incrementally_and_an_incomplete_line_is_read_later(tmp_path: Path) -> None:
    scribe, made = Scribe(tmp_path / "a-1.ledger"), attempt(1, (3,))
    book, totals = Book(tmp_path), Validated(0, 1, 1, times="111", outputs=0.5)
    scribe.write(made)
    scribe.write(totals)
    book.refresh()
    scribe.write(final(made))
    with (tmp_path / "a-1.ledger").open("ab") as file:
        file.write(b'["attempt", 2')
    book.refresh()
    book.refresh()
    assert book.attempts[1][1] == [made]
    assert book.validated == [totals]
    assert book.finals == {1: {"a-1": final(made)}}
    assert book.last["a-1"].step == book.reached == 1


def test_what_is_wrong_with_the_totals_of_a_validation_is_named(book: Book) -> None:
    for process in "ab":
        book.add(process, Validated(0, 2, 1, times="111", outputs=0.5))
    assert verdict(book, TOTAL) == []
    book.add("c", Validated(0, 2, 2, times="021", outputs=0.5))
    book.add("c", Validated(0, 2, 1, times="111", outputs=0.75))
    assert verdict(book, TOTAL) == [
        "epoch 0: the totals of its validation in generation 2 have sample 0 0 times, sample 1 2 times",
        "epoch 0: the totals of its validation in generation 1 differ: [0.5, 0.75]",
    ]


def test_totals_that_count_for_another_epoch_than_that_of_their_step_are_named(book: Book) -> None:
    for epoch in (0, 1):
        book.add("a", Validated(epoch, 2, 1, times="111", outputs=0.5))
    assert verdict(book, TOTAL) == ["epoch 1: its validation was made after step 2, of epoch 0"]


def test_a_finished_epoch_without_the_totals_of_a_validation_is_named(book: Book) -> None:
    book.add("a", Validated(1, 4, 1, times="111", outputs=0.5))
    assert verdict(book, TOTAL) == ["no worker has got the totals of the validations after epochs 0"]


def test_a_missing_and_a_double_point_of_a_tracker_are_named(book: Book) -> None:
    for step in (1, 2, 3):
        book.add("a", Written(step, 1, opened=0.5))
    book.written_to = 3
    book.add("b", Written(3, 3, opened=1.5))
    assert verdict(book, TOTAL) == [], "b has replaced the point of a"
    book.add("b", Written(3, 3, opened=1.5))
    assert verdict(book, TOTAL) == ["step 3 has 2 points"]
    book.written.remove(Written(2, 1, opened=0.5))
    assert "of steps 1 to 3, the points of [2] are missing" in verdict(book, TOTAL)
