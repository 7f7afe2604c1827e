"""The job is finished only when a place has the final checkpoint whole; until then it is saved again and again."""

from __future__ import annotations

import gc
import json
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from torch import nn

from tests.elastic.checkpoint.conftest import LINE, Slow, Told, at, small
from tests.elastic.session.test_fencing import GENERATION, NEXT
from tidewater.contract import exit_codes
from tidewater.elastic.checkpoint import Checkpoints, Place, places
from tidewater.elastic.errors import ConfigError, Diverged, GroupBroken, StoreError
from tidewater.elastic.membership.rules import View
from tidewater.elastic.session import ending
from tidewater.elastic.session.ending import Ending
from tidewater.elastic.session.fencing import Fence

FINAL = at(28, 4)


class Etcd:
    """A coordinator's part in the end of a job, and what happens to it meanwhile."""

    def __init__(self) -> None:
        self.view = View(GENERATION, 7)
        self.leases_lost = 0
        self.recorded: list[dict[str, Any]] = []
        self.errors: list[Exception] = []
        self.waits: list[Callable[[], object]] = []

    def in_touch(self) -> bool:
        return True

    def wait(self, condition: Callable[[View], bool], deadline: float) -> bool:
        if self.waits:
            self.waits.pop(0)()
        return condition(self.view)

    def finish(self, record: bytes) -> None:
        if self.errors:
            raise self.errors.pop()
        self.recorded.append(json.loads(record))
        self.view = View(self.view.generation, 8, finished=record.decode())

    def changes(self) -> None:
        """Let the membership change as planned."""
        self.view = View(NEXT, 8)

    def thaws(self) -> None:
        """Let this worker find out that it was frozen, and that others have continued."""
        self.leases_lost, self.view = 1, View(NEXT, 8)


class World:
    """A worker at the end of its job, after step 28."""

    def __init__(self, told: Told, *where: Place) -> None:
        self.told, self.etcd = told, Etcd()
        self.checkpoints = Checkpoints(where, keep=2, log=told.log)
        self.broken = ""
        self.problem = ""
        self.model = nn.Linear(1, 1)
        state = SimpleNamespace(
            step=28,
            present=True,
            accuracy=0.9,
            score=None,
            history=FINAL,
            saved_tree=lambda: small(28),
            check=self._check_state,
            model=self.model,
            finite=frozenset({"weight", "bias"}),
        )
        group = SimpleNamespace(check=self._check)
        worker: Any = SimpleNamespace(
            coordinator=self.etcd,
            group=group,
            state=state,
            checkpoints=self.checkpoints,
            writes=True,
            member_id="a",
        )
        fence = Fence(worker, overdue=lambda: False, waits=lambda generation: None)
        self._ending = Ending(worker, told.log, fence, overdue=lambda: False)

    def _check_state(self) -> None:
        if self.problem:
            raise ConfigError(self.problem)

    def _check(self) -> None:
        if self.broken:
            raise GroupBroken(self.broken)

    def finish(self, rank: int = 0, generation: Any = GENERATION) -> None:
        self._ending.finish(generation, rank)

    def leave(self) -> int:
        return self._ending.left(GENERATION, GENERATION, None, settle=lambda: None)

    def breaks(self) -> None:
        self.broken = "lost b"


@pytest.fixture(autouse=True)
def quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ending, "_FIRST_RETRY_SECONDS", 0.01)
    monkeypatch.setattr(ending, "_LOOK_SECONDS", 0.01)


@pytest.fixture
def full(told: Told, folder: Path) -> World:
    """Return a worker with a single place, which refuses checkpoints until the file in its way is removed."""
    folder.write_text("in the way")
    return World(told, *places(str(folder)))


@pytest.mark.parametrize("rank", [0, 1])
def test_a_job_with_a_nan_gradient_in_its_last_step_does_not_finish(told: Told, folder: Path, rank: int) -> None:
    world = World(told, *places(str(folder)))
    world.model.bias.data.fill_(float("nan"))
    with pytest.raises(Diverged, match="after step 28 the parameter bias is not a finite number"):
        world.finish(rank)
    assert world.etcd.recorded == []
    assert world.checkpoints.newest(LINE) is None


def test_a_final_checkpoint_that_fails_is_saved_again_before_the_job_is_finished(
    full: World, folder: Path, told: Told
) -> None:
    def make_room() -> None:
        assert full.etcd.recorded == []
        assert not full.checkpoints.finished()
        folder.unlink()

    told.then("finish_delayed", make_room)
    full.finish()
    (delayed,) = told.of("finish_delayed")
    assert delayed["step"] == 28
    assert f"no place has the checkpoint of step 28: {folder}: " in str(delayed["error"])
    assert full.checkpoints.newest(LINE) == FINAL
    assert full.checkpoints.finished()
    assert full.etcd.recorded == [{"version": 1, "step": 28, "accuracy": 0.9}]


def test_one_place_with_the_final_checkpoint_is_enough(told: Told, tmp_path: Path) -> None:
    (tmp_path / "a").write_text("in the way")
    world = World(told, *places(f"{tmp_path / 'a'},{tmp_path / 'b'}"))
    world.finish()
    assert world.etcd.recorded
    assert told.of("finish_delayed") == []
    assert [each["place"] for each in told.of("checkpoint_failed")] == [str(tmp_path / "a")] * 2


@pytest.mark.parametrize("rank", [0, 1])
def test_a_final_state_that_cannot_be_saved_ends_all_workers_at_once(rank: int, told: Told, folder: Path) -> None:
    world = World(told, *places(str(folder)))
    world.problem = "the state has a Thing at stateful.mine"
    with pytest.raises(ConfigError, match=r"step 28, and its final checkpoint can't be written: .* a Thing at"):
        world.finish(rank)
    assert world.etcd.recorded == []
    assert told.of("finish_delayed") == []


@pytest.mark.parametrize("rank", [0, 1])
def test_a_change_of_the_membership_leaves_the_end_to_the_next_generation(rank: int, full: World, told: Told) -> None:
    full.etcd.waits = [lambda: None, full.etcd.changes]
    full.finish(rank)
    assert full.etcd.recorded == []
    assert not full.checkpoints.finished()


@pytest.mark.parametrize("rank", [0, 1])
def test_a_worker_lost_meanwhile_breaks_the_generation(rank: int, full: World) -> None:
    full.etcd.waits = [lambda: None, full.breaks]
    with pytest.raises(GroupBroken, match="lost b"):
        full.finish(rank)
    assert full.etcd.recorded == []


@pytest.mark.parametrize("rank", [0, 1])
def test_a_worker_that_was_frozen_does_not_finish_a_job_that_others_continue(rank: int, full: World) -> None:
    full.etcd.waits = [lambda: None, full.etcd.thaws]
    with pytest.raises(GroupBroken, match="others continued"):
        full.finish(rank)
    assert full.etcd.recorded == []


def test_a_worker_frozen_while_it_saves_does_not_finish_a_job_that_others_continue(told: Told, folder: Path) -> None:
    def frozen() -> None:
        world.etcd.thaws()
        place.go.set()

    place = Slow(folder, frozen)
    world = World(told, place)
    with pytest.raises(GroupBroken, match="others continued"):
        world.finish()
    assert world.etcd.recorded == []
    assert not world.checkpoints.finished()


def test_a_slow_final_checkpoint_is_not_written_anew_in_the_next_generation(told: Told, folder: Path) -> None:
    place = Slow(folder, lambda: world.etcd.changes())
    world = World(told, place)
    world.finish()
    assert world.etcd.recorded == []
    place.go.set()
    world.finish(generation=NEXT)
    assert world.etcd.recorded
    assert told.steps("checkpoint_saved") == [28]


def test_a_slow_final_checkpoint_is_reported_with_its_place(
    told: Told, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ending, "_SAY_SECONDS", 0.0)
    place = Slow(folder)
    world = World(told, place)
    told.then("finish_delayed", place.go.set)
    world.finish()
    assert f"still being written to {folder}" in str(told.of("finish_delayed")[0]["error"])
    assert world.etcd.recorded


def test_the_end_is_recorded_again_until_etcd_has_it(told: Told, folder: Path) -> None:
    world = World(told, *places(str(folder)))
    world.etcd.errors = [StoreError("etcd is away")]
    world.finish()
    assert [each["error"] for each in told.of("finish_delayed")] == ["etcd is away"]
    assert world.etcd.recorded


def test_the_other_ranks_wait_as_long_as_it_takes_and_save_nothing(told: Told, folder: Path) -> None:
    world = World(told, *places(str(folder)))
    world.etcd.waits = [*[lambda: None] * 50, lambda: world.etcd.finish(b"{}")]
    world.finish(rank=1)
    assert world.etcd.waits == []
    assert not folder.exists()


@pytest.mark.parametrize("goes_on", [True, False], ids=["another goes on", "the last one"])
def test_a_worker_that_leaves_ends_after_the_first_step_of_those_that_go_on_and_with_little_work(
    *, goes_on: bool, told: Told, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They may share a machine, and the end of a process with torch takes most of a second of its processor."""
    waits: list[float] = []
    at_exit: list[object] = []
    monkeypatch.setattr(ending, "time", SimpleNamespace(monotonic=time.monotonic, sleep=waits.append))
    monkeypatch.setattr(ending, "atexit", SimpleNamespace(register=at_exit.append))
    world = World(told, *places(str(folder)))
    world.etcd.view = View(GENERATION if goes_on else None, 8)
    assert world.leave() == exit_codes.LEFT
    assert (waits, at_exit) == (([ending._GIVE_WAY_SECONDS], [gc.freeze]) if goes_on else ([], []))
