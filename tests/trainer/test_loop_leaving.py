"""The last leaving worker reports its last step after saving it, unless others have repeated that step."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from contract import exit_codes
from tests.trainer.checkpoint.conftest import save, small
from trainer.checkpoint import Checkpoints, places
from trainer.loop import Loop
from trainer.membership.rules import Generation, Member, View
from trainer.observe.log import Log
from trainer.training import Report

ME, OTHER = (Member(name, name, "127.0.0.1", 1, 2, "signature", 0) for name in "ab")
TOGETHER = Generation(4, 9, (ME, OTHER), "start")
ALL_LEFT = View(Generation(6, 9, (), "left"), 7)
LAST = Report(28, 1, 4, 2, 0, 0.5, 0.1, (1, 2), 4, 0.01, 0.01)


def left(view: View, checkpoints: Checkpoints, log: Log) -> list[int]:
    """Return the steps reported by a worker that leaves after step 28 of a generation of two members."""
    reported: list[int] = []
    config: Any = SimpleNamespace(report_every=1)
    parts: Any = SimpleNamespace(
        member_id=ME.id,
        coordinator=SimpleNamespace(view=view),
        state=SimpleNamespace(present=True, step=LAST.step, cursor=SimpleNamespace(offset=4), tree=lambda: small(28)),
        checkpoints=checkpoints,
        metrics=SimpleNamespace(committed=lambda report: None),
        training=SimpleNamespace(on_step=lambda report: reported.append(report.step)),
    )
    loop = Loop(config, parts, log)
    loop._generation, loop._pending = TOGETHER, (LAST, None)
    assert loop._left() == exit_codes.LEFT
    return reported


@pytest.fixture
def checkpoints(tmp_path: Path, quiet: Log) -> Checkpoints:
    return Checkpoints(places(str(tmp_path)), keep=2, log=quiet)


def test_the_last_to_leave_saves_its_last_step_and_reports_it(checkpoints: Checkpoints, quiet: Log) -> None:
    save(checkpoints, 20)
    assert left(ALL_LEFT, checkpoints, quiet) == [28]
    assert checkpoints.newest() == 28


def test_a_leaving_worker_reports_no_step_if_others_remain(checkpoints: Checkpoints, quiet: Log) -> None:
    assert left(View(Generation(5, 9, (OTHER,), "left"), 7, (OTHER,)), checkpoints, quiet) == []
    assert checkpoints.newest() == 0


def test_a_worker_left_behind_does_not_report_a_step_that_others_repeated(checkpoints: Checkpoints, quiet: Log) -> None:
    save(checkpoints, 40)
    assert left(ALL_LEFT, checkpoints, quiet) == []
    assert checkpoints.newest() == 40


def test_a_step_that_could_not_be_saved_is_not_reported(tmp_path: Path, quiet: Log) -> None:
    (tmp_path / "file").write_text("where a directory should be")
    nowhere = Checkpoints(places(str(tmp_path / "file" / "checkpoints")), keep=2, log=quiet)
    assert left(ALL_LEFT, nowhere, quiet) == []
