"""The state that others continued from counts, not the one with more steps; and it is not deleted for that one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.elastic.checkpoint.conftest import LINE, at, loaded, save, small
from tests.elastic.checkpoint.conftest import same as same_bits
from tidewater.elastic.checkpoint import Checkpoints
from tidewater.elastic.checkpoint.lineage import History, Segment, Undecided, begun, ranked, superseded
from tidewater.elastic.errors import RecordError

Open = Callable[..., Checkpoints]

OLD = at(80, 4)
CUT_OFF = at(100, 5)
"""Saved by workers that were cut off in generation 5, after the others had continued from OLD in generation 6."""
SIXTH = OLD.continued(LINE, 6)
CURRENT = SIXTH.at(6, 90)

LOST = at(500, 9, lineage="first")
"""The last checkpoint before etcd lost its data."""
SECOND = LOST.continued("second", 1).at(2, 510)
LATE = at(600, 10, lineage="first")
"""Of a worker of the first lineage that did not notice."""


def order(*histories: History, lineage: str = LINE) -> list[History]:
    return [histories[index] for index in ranked(histories, lineage)]


def kept(written: History, keep: int, *stored: History) -> list[History]:
    gone = superseded(stored, written, keep)
    return [each for index, each in enumerate(stored) if index not in gone]


def store(checkpoints: Checkpoints, *histories: History) -> None:
    for history in histories:
        assert checkpoints.save(history, small(history.step), wait=True)


def test_the_newer_generation_counts_although_an_older_one_has_more_steps() -> None:
    assert order(CUT_OFF, CURRENT, OLD) == [CURRENT, OLD, CUT_OFF]


def test_the_lineage_that_etcd_knows_counts_whatever_numbers_others_have() -> None:
    assert order(LATE, SECOND, LOST, lineage="second") == [SECOND, LOST, LATE]
    assert order(LATE, SECOND, LOST, lineage="first") == [LATE, LOST, SECOND]


def test_without_a_checkpoint_of_its_lineage_etcd_lets_the_one_count_that_continues_the_others() -> None:
    assert order(LATE, SECOND, LOST, lineage="third") == [SECOND, LOST, LATE]


def test_between_lineages_of_which_none_continues_the_other_nothing_is_guessed() -> None:
    other = at(600, 10, lineage="other")
    with pytest.raises(Undecided):
        order(LATE, other, lineage="third")
    assert next(ranked([LATE, other], "other")) == 1


def test_a_state_that_was_left_behind_and_then_continued_counts_more_than_what_was_abandoned_for_it() -> None:
    kept_on = CUT_OFF.continued(LINE, 7)
    assert order(CURRENT, kept_on)[0] == kept_on
    assert not kept_on.contains(CURRENT)


def test_the_current_checkpoints_are_not_deleted_for_abandoned_ones_with_more_steps() -> None:
    assert kept(SIXTH, 2, CUT_OFF, OLD, SIXTH) == [CUT_OFF, OLD, SIXTH]
    assert kept(CURRENT, 2, CUT_OFF, CURRENT, OLD, SIXTH) == [CURRENT, SIXTH]
    assert kept(SECOND, 1, LATE, SECOND, LOST) == [SECOND]


def test_abandoned_checkpoints_stay_until_there_are_enough_others() -> None:
    assert kept(CURRENT, 3, CUT_OFF, CURRENT, SIXTH, OLD) == [CUT_OFF, CURRENT, SIXTH, OLD]


def test_a_worker_that_was_left_behind_deletes_no_checkpoint_of_those_that_continued() -> None:
    assert kept(CUT_OFF, 1, CUT_OFF, CURRENT, OLD) == [CUT_OFF, CURRENT]
    assert kept(LATE, 1, LATE, SECOND, LOST) == [LATE, SECOND]


@pytest.mark.parametrize(
    ("stored", "step", "keep", "left"),
    [([30, 20, 10], 30, 2, [30, 20]), ([30, 20, 10], 30, 0, [30]), ([30, 20, 10], 20, 1, [30, 20]), ([], 30, 2, [])],
    ids=["two", "never-none", "newer-stay", "empty"],
)
def test_within_one_generation_the_last_steps_are_kept(
    stored: list[int], step: int, keep: int, left: list[int]
) -> None:
    assert kept(at(step), keep, *map(at, stored)) == list(map(at, left))


@st.composite
def trees(draw: st.DrawFn) -> list[History]:
    """Return states of jobs that were continued from any earlier state, in one generation after the other."""
    lineage, states = "1", [begun("1", 1)]
    for generation in range(2, draw(st.integers(3, 12))):
        base = draw(st.sampled_from(states))
        if draw(st.integers(0, 3)) == 0:
            lineage += "1"
        states.append(base.continued(lineage, generation).at(generation, base.step + draw(st.integers(0, 9))))
    return states


@given(states=trees(), keep=st.integers(1, 4), data=st.data())
def test_what_the_last_generation_saved_counts_first_and_is_kept(
    states: list[History], keep: int, data: st.DataObject
) -> None:
    last = states[-1]
    shuffled = data.draw(st.permutations(states))
    assert shuffled[next(ranked(shuffled, last.now.lineage))] == last
    gone = {shuffled[index] for index in superseded(shuffled, last, keep)}
    assert last not in gone
    path = [each for each in shuffled if last.contains(each)]
    assert len([each for each in path if each not in gone]) == min(keep, len(path))


def test_a_cold_start_continues_what_others_continued(folder: Path, open_places: Open) -> None:
    store(open_places(folder, keep=3), OLD, CUT_OFF)
    store(open_places(folder, keep=3), CURRENT)
    assert loaded(open_places(folder)).history == CURRENT


def test_after_etcd_lost_its_data_a_cold_start_continues_the_new_lineage(folder: Path, open_places: Open) -> None:
    store(open_places(folder), LOST, SECOND)
    store(open_places(folder), LATE)
    for lineage in ("second", "third"):
        assert loaded(open_places(folder), lineage).history == SECOND


def test_a_job_started_anew_continues_from_the_checkpoints_that_are_there(folder: Path, open_places: Open) -> None:
    store(open_places(folder), LOST)
    assert loaded(open_places(folder), "second").history == LOST


def test_a_cold_start_between_unrelated_lineages_is_refused_with_both_paths(tmp_path: Path, open_places: Open) -> None:
    for name in "ab":
        store(open_places(tmp_path / name), at(10, lineage=name))
    both = open_places(f"{tmp_path / 'a'},{tmp_path / 'b'}")
    with pytest.raises(RecordError, match=r"a/step-000000000010 and .*b/step-000000000010 .*: move away what must"):
        both.load("c")
    assert both.newest("c") is None
    assert loaded(both, "b").path.startswith(str(tmp_path / "b"))


@pytest.mark.parametrize("keep", [1, 2])
def test_a_step_that_an_abandoned_line_has_too_is_saved_apart_and_loaded(
    keep: int, folder: Path, open_places: Open
) -> None:
    store(open_places(folder), OLD, CUT_OFF)
    again = SIXTH.at(6, CUT_OFF.step)
    state = {**small(CUT_OFF.step), "again": True}
    assert open_places(folder, keep=keep).save(again, state, wait=True)
    found = loaded(open_places(folder))
    assert found.history == again
    assert same_bits(found.tree, state)
    store(open_places(folder, keep=1), again.at(6, 110))
    assert [each.name for each in folder.iterdir()] == ["step-000000000110"]


def test_if_the_checkpoint_that_counts_is_damaged_the_one_before_it_is_used_not_an_abandoned_one(
    folder: Path, open_places: Open
) -> None:
    store(open_places(folder, keep=3), OLD, CUT_OFF, CURRENT)
    (folder / "step-000000000090" / "__0_0.distcp").write_bytes(b"")
    assert loaded(open_places(folder)).history == OLD


def test_the_history_in_a_bucket_is_the_one_that_was_saved(s3: object, open_places: Open) -> None:
    checkpoints = open_places("s3://there/digits", keep=1)
    store(checkpoints, OLD, CUT_OFF)
    store(checkpoints, CURRENT)
    assert loaded(open_places("s3://there/digits")).history == CURRENT
    save(checkpoints, 10)
    assert checkpoints.newest(LINE) == CURRENT


@pytest.mark.parametrize("values", [[], [["a", 1, 2]], [["a", "x", 2, 3]], None])
def test_values_that_are_no_history_are_refused(values: list[list[object]]) -> None:
    with pytest.raises((ValueError, TypeError)):
        History.of(values)


def test_a_history_survives_json() -> None:
    assert History.of(SECOND.values()) == SECOND
    assert SECOND.segments == (Segment("first", 1, 9, 500), Segment("second", 1, 2, 510))
