"""What a loop of a script's own can do between two epochs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import tidewater
from tests.elastic.buffers.together import all_at_once
from tests.elastic.script.conftest import EPOCHS, STEPS, Alone, Given
from tests.elastic.script.test_own_loop import by_own_steps, trained
from tests.elastic.session.stopping.ranks import EPOCH, begun
from tidewater.contract import exit_codes
from tidewater.elastic.config import UNTIL_FINISHED, Config
from tidewater.elastic.data.sampler import Cursor
from tidewater.elastic.session.loop import Pause
from tidewater.elastic.session.worker import Meeting

Settings = Callable[..., Config]


def test_with_pauses_the_script_has_its_turn_before_each_epoch_and_can_end_training_there(
    alone: Alone, config: Settings
) -> None:
    given, seen = Given(), []
    with tidewater.session(replace(config(), epochs=UNTIL_FINISHED), **given.fields) as run:
        for batch in run.batches(pauses=True):
            if batch is not Pause.PAUSE:
                by_own_steps(run, given, batch)
                continue
            seen.append((run.epoch, run.steps))
            if run.epoch == EPOCHS:
                run.finish("the script's epochs are over")
    assert run.exit_code == exit_codes.FINISHED
    assert seen == [(0, 0), (1, STEPS // EPOCHS), (EPOCHS, STEPS)]
    assert alone.state.step == STEPS
    assert [event["reason"] for event in alone.told.of("stopped")] == ["the script's epochs are over"]


def test_training_is_not_ended_within_a_step(
    alone: Alone, config: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        trained(config(), lambda run, given, batch: run.finish("too early"))
    assert ended.value.code == exit_codes.USAGE
    assert "run.finish() was called within a step" in capsys.readouterr().err


def test_a_newcomer_that_pauses_makes_as_many_sums_as_a_worker_that_has_paused_before(tmp_path: Path) -> None:
    made = begun(lambda rank: {}, tmp_path, "--evaluate-every", "1")
    sums: list[int] = []
    for each in made:
        each.state.step, each.state.evaluated, each.state.cursor = EPOCH, EPOCH, Cursor(1, 0)
    made[0].loop._epoch = 1  # it has paused, and the first step of the epoch was discarded

    def until_a_step(rank: int) -> None:
        steps = made[rank].loop._steps_of(Meeting(rank, 2, replaced=False, included=True, generation=1))
        assert next(each for each in steps if not isinstance(each, Pause))
        backend: Any = made[rank].session.worker.group._backend
        sums.append(backend._begun)

    all_at_once(until_a_step, 2)
    assert sums == [1, 1]
