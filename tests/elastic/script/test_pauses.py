"""What a loop of a script's own can do between two epochs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

import tidewater
from tests.elastic.script.conftest import EPOCHS, STEPS, Alone, Given
from tests.elastic.script.test_own_loop import by_own_steps, trained
from tidewater.contract import exit_codes
from tidewater.elastic.config import UNTIL_FINISHED, Config
from tidewater.elastic.script.own_loop import Pause

Settings = Callable[..., Config]


def test_with_pauses_the_script_has_its_turn_before_each_epoch_and_can_end_training_there(
    alone: Alone, config: Settings
) -> None:
    given, seen = Given(), []
    with tidewater.session(replace(config(), epochs=UNTIL_FINISHED), **given.fields) as run:
        for batch in run.batches(pauses=True):
            if batch is not Pause.PAUSE:
                by_own_steps(run, given, batch)
                assert run.is_between_epochs == (run.steps % (STEPS // EPOCHS) == 0)
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
