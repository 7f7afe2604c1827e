"""A worker frozen past its takeover, at any moment, reports, evaluates, saves and finishes nothing when it thaws."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from tests.elastic.checkpoint.conftest import LINE, Told, at, small
from tidewater.elastic.checkpoint import Checkpoints, places
from tidewater.elastic.data.sampler import Cursor
from tidewater.elastic.errors import GroupBroken
from tidewater.elastic.membership.rules import Generation, Member, View
from tidewater.elastic.session import handover
from tidewater.elastic.session.loop import Loop
from tidewater.elastic.session.session import Session
from tidewater.elastic.training import Report

ME, NEW = (Member(name, name, "127.0.0.1", 1, "signature", 0) for name in "an")
MINE = Generation(4, 9, (ME,), "lost", LINE)
SUCCESSOR = replace(NEW, state_of=5)
THEIRS = Generation(5, 10, (SUCCESSOR,), "lost", LINE)
LAST = Report(28, 1, 4, 1, 0, 0.5, 0.1, (1, 2), 4, 0.01, 0.01)


class Etcd:
    """The coordinator of a worker that is frozen and thaws."""

    def __init__(self) -> None:
        self.view, self.leases_lost, self.away = View(MINE, 7, (ME,)), 0, False
        self.finished: list[bytes] = []

    def in_touch(self) -> bool:
        return not self.away

    def wait(self, condition: Callable[[View], bool], deadline: float) -> bool:
        return condition(self.view)

    def synced(self, number: int) -> None:
        pass

    def finish(self, record: bytes) -> None:
        self.finished.append(record)
        self.view = replace(self.view, finished=record.decode())

    def freeze(self) -> None:
        """Let the worker be frozen until others have continued, and thaw."""
        self.leases_lost, self.view = 1, View(THEIRS, 8, (SUCCESSOR,))


@dataclass
class World:
    """A worker that has applied step 28, the last of an epoch of two."""

    told: Told
    folder: Path
    epochs: int = 1
    frozen_at: str = ""
    """The moment at which it is frozen: ``handover``, ``confirm`` or ``tally``."""

    def __post_init__(self) -> None:
        self.etcd = Etcd()
        self.reported: list[int] = []
        self.checkpoints = Checkpoints(places(str(self.folder)), keep=2, log=self.told.log)
        self.state: Any = SimpleNamespace(
            check=lambda **_: None,
            attributes=SimpleNamespace(moved=list),
            evaluating=nullcontext,
            present=True,
            step=28,
            applied_in=4,
            cursor=Cursor(1, 0),
            evaluated=0,
            accuracy=None,
            scored=lambda accuracy: setattr(self.state, "accuracy", accuracy),
            score=None,
            stopped=False,
            micro_batch=4,
            history=at(28, 4),
            saved_tree=lambda: small(28),
            model=torch.nn.Linear(1, 1),
            finite=frozenset({"weight", "bias"}),
            pending=LAST,
        )

    def reach(self, moment: str) -> bool:
        """Return whether another rank has reported the last step."""
        if moment == self.frozen_at:
            self.etcd.freeze()
        return False

    def train(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Train in the generation that this worker was in."""
        session = self.session()
        loop = Loop(session, self._material())
        monkeypatch.setattr(handover, "synchronise", lambda *_: self.reach("handover"))
        session._generation = MINE
        assert list(loop._steps_of(session._met(MINE))) == []

    def session(self) -> Session:
        config: Any = SimpleNamespace(
            epochs=self.epochs,
            max_steps=0,
            evaluate_every=1,
            report_every=1,
            checkpoint_minutes=0,
            checkpoint_every=1,
            min_step_seconds=0.0,
            compare_every=0,
            on_drift="mend",
            begin_again=False,
            bad_samples="stop",
            members=1,
            least_members=1,
            most_members=1,
            sync_every=None,
            step_size=lambda size: 4,
        )
        return Session(config, self._worker(), self.told.log)

    def _worker(self) -> Any:
        group = SimpleNamespace(
            device=torch.device("cpu"),
            rank=0,
            form=lambda *_, **__: None,
            check=lambda **_: None,
            attributes=SimpleNamespace(moved=list),
            evaluating=nullcontext,
            confirm=lambda: self.reach("confirm"),
            tally=self._tally,
            gather=lambda data: [data],
        )
        return SimpleNamespace(
            member_id=ME.id,
            coordinator=self.etcd,
            state=self.state,
            group=group,
            checkpoints=self.checkpoints,
            writes=True,
            heartbeat=SimpleNamespace(tense=lambda on: None),
            metrics=SimpleNamespace(committed=lambda report: None, evaluated=lambda seconds: None),
            training=SimpleNamespace(on_step=lambda report: self.reported.append(report.step)),
        )

    def _material(self) -> Any:
        return SimpleNamespace(
            training=SimpleNamespace(
                model=self.state.model,
                validation=[1],
                score=lambda model, batch: 1.0,
                on_evaluation=lambda evaluated: None,
            ),
            loader=SimpleNamespace(start=lambda place: None, validation=lambda shares: iter([[1.0]])),
            stepper=SimpleNamespace(
                precision=torch.no_grad, evaluating=nullcontext, enough_memory=lambda samples: nullcontext()
            ),
        )

    def _tally(self, numbers: list[float]) -> list[float]:
        self.reach("tally")
        return list(numbers)


@pytest.mark.parametrize("frozen_at", ["handover", "confirm"])
def test_a_frozen_worker_reports_and_saves_no_step_that_others_repeated(
    frozen_at: str, told: Told, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(told, folder, frozen_at=frozen_at)
    with pytest.raises(GroupBroken, match="others continued"):
        world.train(monkeypatch)
    assert world.reported == []
    assert world.checkpoints.flush()
    assert world.checkpoints.newest(LINE) is None


def test_a_frozen_worker_evaluates_no_state_that_others_replaced(
    told: Told, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(told, folder, frozen_at="tally")
    with pytest.raises(GroupBroken, match="others continued"):
        world.train(monkeypatch)
    assert (world.state.evaluated, world.state.accuracy) == (0, None)
    assert told.of("evaluated") == []


def test_a_frozen_worker_finishes_no_job_that_others_continue(
    told: Told, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(told, folder, frozen_at="confirm")
    world.state.evaluated = 28  # the only confirmation left is that of the end
    with pytest.raises(GroupBroken, match="others continued"):
        world.train(monkeypatch)
    assert world.etcd.finished == []
    assert not world.checkpoints.finished()


def test_an_overdue_worker_that_cannot_reach_etcd_reports_nothing(told: Told, folder: Path) -> None:
    world = World(told, folder, epochs=2)
    world.etcd.away = True
    session = world.session()
    session._generation, session._leaving_since = MINE, time.monotonic() - 3600
    with pytest.raises(GroupBroken, match="can't ask etcd"):
        session.confirm()
    assert world.reported == []


def test_a_worker_that_was_not_frozen_reports_evaluates_saves_and_finishes(
    told: Told, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(told, folder)
    world.train(monkeypatch)
    assert world.reported == [28]
    assert (world.state.evaluated, world.state.accuracy) == (28, 1.0)
    assert world.checkpoints.newest(LINE) == at(28, 4)
    assert len(world.etcd.finished) == 1
