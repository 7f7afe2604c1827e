"""The checkpoint with the best score is kept in addition to the newest ones, and can be loaded like any other."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch.distributed.checkpoint.state_dict_loader import load

from tests.elastic.checkpoint.conftest import LINE, Slow, Told, at, loaded, same, small
from tidewater.elastic.checkpoint import Checkpoints
from tidewater.elastic.checkpoint.lineage import Segment
from tidewater.elastic.checkpoint.manifest import Manifest, Score
from tidewater.elastic.checkpoint.places import Stored


class Coarse(Slow):
    """A place with a clock of whole seconds, as S3's, in which a test takes no time."""

    def stored(self) -> list[Stored]:
        return [replace(each, written=0.0) for each in super().stored()]


def names(folder: Path) -> list[str]:
    return sorted(each.name for each in folder.iterdir() if not each.name.startswith("."))


def evaluated(checkpoints: Checkpoints, step: int, value: float, mode: str = "max") -> None:
    """Save as after an evaluation."""
    checkpoints.save(at(step), small(step), wait=True, score=Score(value, mode), if_best=True)


def steps(folder: Path) -> list[int]:
    return [int(name.split("-")[1]) for name in names(folder)]


def test_the_best_one_is_never_removed_and_the_newest_are_kept_too(checkpoints: Checkpoints, folder: Path) -> None:
    for step in range(1, 8):
        checkpoints.save(at(step), small(step), wait=True)
        if step % 2 == 0:
            evaluated(checkpoints, step, {2: 0.5, 4: 0.9, 6: 0.7}[step])
    assert steps(folder) == [4, 6, 7]


def test_a_worker_that_has_just_started_knows_the_best_of_the_others(
    folder: Path, open_places: Callable[..., Checkpoints]
) -> None:
    evaluated(open_places(folder), 2, 0.9)
    again = open_places(folder)
    evaluated(again, 4, 0.8)
    for step in (5, 6, 7):
        again.save(at(step), small(step), wait=True)
    assert steps(folder) == [2, 6, 7]


def test_the_lowest_score_is_the_best_where_the_script_says_so(checkpoints: Checkpoints, folder: Path) -> None:
    for step, value in ((1, 0.5), (2, 0.2), (3, 0.3), (4, 0.2)):
        evaluated(checkpoints, step, value, "min")
    assert steps(folder) == [1, 2], "what is no better than the best is not written"


def test_a_better_one_takes_the_place_of_the_best(checkpoints: Checkpoints, folder: Path, told: Told) -> None:
    for step, value in ((1, 0.5), (2, 0.6), (3, 0.7), (4, 0.8)):
        evaluated(checkpoints, step, value)
    assert steps(folder) == [2, 3, 4]
    assert [each["score"] for each in told.of("checkpoint_saved")] == [0.5, 0.6, 0.7, 0.8]


def test_a_best_state_waits_for_the_checkpoint_in_progress_and_the_caller_does_not(folder: Path, told: Told) -> None:
    place = Slow(folder)
    checkpoints = Checkpoints([place], keep=2, log=told.log)
    assert checkpoints.save(at(1), small(1))
    state = small(2)
    assert checkpoints.save(at(2), state, score=Score(0.5, "max"), if_best=True)
    state["model"]["weight"].zero_()
    assert checkpoints.save(at(3), small(3), score=Score(0.7, "max"), if_best=True), "it is better than what waits"
    assert checkpoints.has_better(Score(0.6, "max"))
    assert not checkpoints.save(at(4), small(4))
    assert not checkpoints.flush(deadline=0.0)
    place.go.set()
    assert checkpoints.flush()
    assert steps(folder) == [1, 3]
    assert checkpoints.whole(at(3))
    assert same(loaded(checkpoints).tree, small(3))


def test_a_best_state_that_still_waits_when_the_worker_ends_is_reported(folder: Path, told: Told) -> None:
    place = Slow(folder)
    checkpoints = Checkpoints([place], keep=2, log=told.log)
    checkpoints.save(at(1), small(1))
    checkpoints.save(at(2), small(2), score=Score(0.5, "max"), if_best=True)
    checkpoints.close(deadline=0.0)
    assert told.steps("checkpoint_failed") == [1, 2]
    place.go.set()
    assert checkpoints.flush()


@pytest.mark.parametrize("finished", [False, True], ids=["in-progress", "written"])
def test_a_checkpoint_of_the_evaluated_state_gets_the_score(finished: bool, folder: Path, told: Told) -> None:
    place = Coarse(folder)
    checkpoints = Checkpoints([place], keep=2, log=told.log)
    assert checkpoints.save(at(1), small(1))
    if finished:
        place.go.set()
        assert checkpoints.flush()
    assert checkpoints.save(at(1), small(1), score=Score(0.5, "max"), if_best=True)
    place.go.set()
    assert checkpoints.flush()
    assert [Manifest.of(folder / name).score for name in names(folder)] == [Score(0.5, "max")]
    assert checkpoints.whole(at(1))
    assert same(loaded(checkpoints).tree, small(1))
    for step in (2, 3, 4):
        checkpoints.save(at(step), small(step), wait=True)
    assert steps(folder) == [1, 3, 4]


def test_what_every_place_has_better_is_known(tmp_path: Path, open_places: Callable[..., Checkpoints]) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    checkpoints = open_places(f"{one},{other}")
    assert not checkpoints.has_better(Score(0.1, "max"))
    evaluated(checkpoints, 1, 0.5)
    assert [checkpoints.has_better(Score(value, "max")) for value in (0.4, 0.5, 0.6)] == [True, True, False]
    assert not checkpoints.has_better(Score(0.4, "min"))


def test_each_place_keeps_its_best(tmp_path: Path, open_places: Callable[..., Checkpoints]) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    evaluated(open_places(one), 1, 0.9)
    evaluated(open_places(f"{one},{other}"), 2, 0.8)
    assert (steps(one), steps(other)) == ([1], [2])


def test_a_cold_start_continues_from_the_newest_and_not_from_the_best(checkpoints: Checkpoints) -> None:
    evaluated(checkpoints, 2, 0.9)
    checkpoints.save(at(5), small(5), wait=True)
    found = checkpoints.load(LINE)
    assert found
    assert found.step == 5


def test_the_best_of_a_line_of_training_that_was_abandoned_is_kept(checkpoints: Checkpoints, folder: Path) -> None:
    evaluated(checkpoints, 8, 0.9)
    for step in (5, 6, 7):
        resumed = at(step, 3, Segment(LINE, 1, 1, 4), since=3)
        checkpoints.save(resumed, small(step), wait=True)
    assert steps(folder) == [6, 7, 8]


def test_it_is_found_and_loaded_as_the_docs_say(checkpoints: Checkpoints, folder: Path) -> None:
    evaluated(checkpoints, 2, 0.9)
    for step in (3, 4, 5):
        checkpoints.save(at(step), small(step), wait=True)
    found = {path.parent: json.loads(path.read_text())["score"] for path in folder.glob("step-*/manifest.json")}
    best = max((path for path in found if found[path]), key=lambda path: found[path]["value"])
    assert Manifest.of(best).score == Score(0.9, "max")
    state = {"model": {"weight": torch.zeros(4, 3), "bias": torch.zeros(3)}}
    load(state, checkpoint_id=best)
    assert torch.equal(state["model"]["weight"], small(2)["model"]["weight"])
