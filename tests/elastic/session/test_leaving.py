"""A worker enters only with others like it; the last to leave saves the state and reports its last step, unless others
have continued without it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from tests.elastic.checkpoint.conftest import LINE, Told, at, save, small
from tidewater.contract import exit_codes, leaving
from tidewater.elastic.checkpoint import Checkpoints, places
from tidewater.elastic.errors import ConfigError
from tidewater.elastic.membership.rules import Generation, Member, View
from tidewater.elastic.observe.log import Log
from tidewater.elastic.observe.metrics import Metrics
from tidewater.elastic.session import ending
from tidewater.elastic.session.session import Session
from tidewater.elastic.training import Report
from tidewater.elastic.tree import split

ME, OTHER = (Member(name, name, "127.0.0.1", 1, "signature", 0) for name in "ab")
TOGETHER = Generation(4, 9, (ME, OTHER), "start", LINE)
ALL_LEFT = View(Generation(6, 10, (), "left", LINE), 7)
NEW = Member("n", "n", "127.0.0.1", 1, "signature", 4)
CONTINUED = View(Generation(5, 11, (NEW,), "lost", LINE), 7, (replace(NEW, state_of=5),))
WAITING = View(Generation(5, 11, (NEW,), "lost", LINE), 7, (NEW,))
"""A newcomer has taken over, and does not have the state yet."""
LAST = Report(28, 1, 4, 2, 0, 0.5, 0.1, (1, 2), 4, 0.01, 0.01)


@dataclass
class Leaver:
    """A worker that leaves after step 28 of a generation of two members."""

    view: View
    checkpoints: Checkpoints
    log: Log
    leases_lost: int = 0
    in_touch: bool = True
    overdue: bool = False
    last: Generation = TOGETHER
    met: Generation = TOGETHER
    state: dict[str, Any] = field(default_factory=lambda: small(28))
    reported: list[int] = field(default_factory=list)

    def leave(self) -> int:
        config: Any = SimpleNamespace(report_every=1)
        coordinator = SimpleNamespace(
            view=self.view,
            leases_lost=self.leases_lost,
            in_touch=lambda: self.in_touch,
            wait=lambda *_: False,
            leave=lambda: None,
        )
        state = SimpleNamespace(
            check=lambda **_: split(self.state, lambda _, tensor: tensor),
            attributes=SimpleNamespace(moved=list),
            present=True,
            step=LAST.step,
            history=at(28, 4),
            cursor=SimpleNamespace(offset=4),
            saved_tree=lambda: self.state,
            score=None,
            model=torch.nn.Linear(1, 1),
            finite=frozenset({"weight", "bias"}),
            pending=LAST,
        )
        worker: Any = SimpleNamespace(
            member_id=ME.id,
            coordinator=coordinator,
            state=state,
            checkpoints=self.checkpoints,
            writes=True,
            metrics=SimpleNamespace(committed=lambda report: None),
            training=SimpleNamespace(on_step=lambda report: self.reported.append(report.step)),
        )
        session = Session(config, worker, self.log)
        session._generation, session._met_in = self.last, self.met
        session.leave()
        if self.overdue:
            session._leaving_since = -leaving.STEP_SECONDS - 1.0
        return session.end()


@pytest.fixture
def checkpoints(folder: Path, told: Told) -> Checkpoints:
    made = Checkpoints(places(str(folder)), keep=2, log=told.log)
    made.prepare()
    return made


@pytest.fixture
def quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten all waits that end without an answer."""
    monkeypatch.setattr(ending, "_FIRST_RETRY_SECONDS", 0.01)
    monkeypatch.setattr(ending, "_ASK_SECONDS", 0.0)


def test_the_last_to_leave_saves_its_last_step_and_reports_it(checkpoints: Checkpoints, told: Told) -> None:
    save(checkpoints, 20)
    leaver = Leaver(ALL_LEFT, checkpoints, told.log)
    assert (leaver.leave(), leaver.reported) == (exit_codes.LEFT, [28])
    assert checkpoints.newest(LINE) == at(28, 4)


def test_a_leaving_worker_reports_no_step_if_others_remain(checkpoints: Checkpoints, told: Told) -> None:
    leaver = Leaver(View(Generation(5, 9, (OTHER,), "left", LINE), 7, (OTHER,)), checkpoints, told.log)
    assert (leaver.leave(), leaver.reported) == (exit_codes.LEFT, [])
    assert checkpoints.newest(LINE) is None


def test_a_worker_saves_a_state_that_the_newcomer_in_its_last_generation_has_never_got(
    checkpoints: Checkpoints, told: Told
) -> None:
    alone, with_newcomer = replace(TOGETHER, members=(ME,)), replace(TOGETHER, number=5, members=(ME, NEW))
    view = View(Generation(6, 12, (NEW,), "lost", LINE), 7, (NEW,))
    leaver = Leaver(view, checkpoints, told.log, last=with_newcomer, met=alone)
    assert (leaver.leave(), leaver.reported) == (exit_codes.LEFT, [28])
    assert checkpoints.newest(LINE) == at(28, 4)


@pytest.mark.parametrize("step", [20, 40])
def test_a_worker_left_behind_does_not_report_a_step_that_others_repeated(
    step: int, checkpoints: Checkpoints, told: Told
) -> None:
    others = at(step, 6)
    assert checkpoints.save(others, small(step), wait=True)
    leaver = Leaver(ALL_LEFT, checkpoints, told.log)
    assert (leaver.leave(), leaver.reported) == (exit_codes.LEFT, [])
    assert checkpoints.newest(LINE) == others


def test_an_overdue_worker_left_behind_saves_and_reports_nothing(checkpoints: Checkpoints, told: Told) -> None:
    leaver = Leaver(CONTINUED, checkpoints, told.log, leases_lost=1, overdue=True)
    assert (leaver.leave(), leaver.reported) == (exit_codes.LEFT, [])
    assert checkpoints.newest(LINE) is None


def test_an_overdue_worker_saves_the_state_if_the_others_are_stuck(checkpoints: Checkpoints, told: Told) -> None:
    leaver = Leaver(View(TOGETHER, 7, (ME, OTHER)), checkpoints, told.log, overdue=True)
    assert (leaver.leave(), leaver.reported) == (exit_codes.LEFT, [])
    assert checkpoints.newest(LINE) == at(28, 4)


@pytest.mark.usefixtures("quickly")
@pytest.mark.parametrize("view", [ALL_LEFT, WAITING], ids=["nobody", "newcomer"])
@pytest.mark.parametrize("in_touch", [True, False])
def test_a_worker_that_may_be_left_behind_saves_what_nobody_else_has_but_reports_nothing(
    in_touch: bool, view: View, checkpoints: Checkpoints, told: Told
) -> None:
    leaver = Leaver(view, checkpoints, told.log, leases_lost=1, in_touch=in_touch)
    assert (leaver.leave(), leaver.reported) == (exit_codes.LEFT, [])
    assert checkpoints.newest(LINE) == at(28, 4)


@pytest.mark.usefixtures("quickly")
def test_a_last_state_that_cannot_be_saved_is_a_failure_that_is_told_and_not_reported_as_a_step(
    folder: Path, checkpoints: Checkpoints, monkeypatch: pytest.MonkeyPatch, told: Told
) -> None:
    monkeypatch.setattr(leaving, "FLUSH_SECONDS", 0.5)
    folder.write_text("in the way")
    leaver = Leaver(ALL_LEFT, checkpoints, told.log)
    assert (leaver.leave(), leaver.reported) == (exit_codes.FAILED, [])
    (unsaved,) = told.of("left_unsaved")
    assert unsaved["step"] == 28
    assert str(folder) in str(unsaved["reason"])


@pytest.mark.usefixtures("quickly")
def test_a_last_state_that_contains_what_cannot_be_stored_is_not_tried_again(
    checkpoints: Checkpoints, monkeypatch: pytest.MonkeyPatch, told: Told
) -> None:
    monkeypatch.setattr(leaving, "FLUSH_SECONDS", 0.5)
    leaver = Leaver(ALL_LEFT, checkpoints, told.log, state={"mine": object()})
    assert (leaver.leave(), leaver.reported) == (exit_codes.FAILED, [])
    assert told.steps("checkpoint_failed") == [28]
    assert "builtins.object at mine" in str(told.of("left_unsaved")[0]["reason"])


@pytest.mark.usefixtures("quickly")
def test_a_last_state_is_saved_again_until_there_is_time_no_more(
    folder: Path, checkpoints: Checkpoints, told: Told
) -> None:
    folder.write_text("in the way")
    told.then("checkpoint_failed", folder.unlink)
    leaver = Leaver(ALL_LEFT, checkpoints, told.log)
    assert (leaver.leave(), leaver.reported) == (exit_codes.LEFT, [28])
    assert checkpoints.newest(LINE) == at(28, 4)
    assert told.of("left_unsaved") == []


def entering(told: Told, generation: int, asked: list[int]) -> Session:
    """Return a worker in that generation, with what is found when it is compared with the others."""

    def refusal(view: View) -> str:
        asked.append(view.number)
        return "the script's module model has other code there"

    view = View(replace(TOGETHER, number=generation), 7, (ME, OTHER))
    worker: Any = SimpleNamespace(
        member_id=ME.id, coordinator=SimpleNamespace(view=view), refusal=refusal, metrics=Metrics()
    )
    config: Any = SimpleNamespace(report_every=1)
    return Session(config, worker, told.log)


def test_a_worker_that_differs_from_one_that_started_at_the_same_time_never_trains_with_it(told: Told) -> None:
    asked: list[int] = []
    with pytest.raises(ConfigError, match="module model has other code"):
        entering(told, 1, asked).meet()
    assert (asked, told.events) == ([1], [])


def test_a_member_is_not_compared_again(told: Told) -> None:
    asked: list[int] = []
    member = entering(told, 5, asked)
    member._generation = TOGETHER
    assert member._next_generation() == replace(TOGETHER, number=5)
    assert asked == []
