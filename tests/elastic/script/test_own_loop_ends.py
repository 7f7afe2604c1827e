"""How a worker with a loop of the script's own ends, whatever the script does about it."""

from __future__ import annotations

import sys

import pytest
import torch

import tidewater
from tests.elastic.script.conftest import Alone, Given
from tests.elastic.script.test_own_loop import Settings, by_tensor
from tidewater.contract import exit_codes


def test_a_worker_that_has_left_does_not_end_as_if_the_job_were_finished(alone: Alone, config: Settings) -> None:
    given = Given()

    def ends() -> None:
        with tidewater.session(config(), **given.fields) as run:
            for batch in run.batches():
                by_tensor(run, given, batch)
                if alone.joined:
                    run.leave()
                    alone.state.stopped = True
            sys.exit()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tidewater.elastic.session.session.Session.finish", lambda session: None)
        with pytest.raises(SystemExit) as ended:
            ends()
    assert ended.value.code == exit_codes.LEFT


@pytest.mark.parametrize("around", ["the-step", "the-loop"])
def test_an_error_of_a_step_that_the_script_catches_is_raised_again(
    around: str, alone: Alone, config: Settings
) -> None:
    """What was done of the step can't be continued: its samples would count half or not at all."""
    given, caught = Given(), list[RuntimeError]()

    def trains() -> None:
        with tidewater.session(config(), **given.fields) as run:
            try:
                for batch in run.batches():
                    loss = given.loss(batch)
                    try:
                        if alone.joined:
                            torch.autograd.grad(loss, list(given.model.parameters()))
                        run.step(loss)
                    except RuntimeError as error:
                        caught.append(error)
                        if around == "the-loop":
                            raise
            except RuntimeError:
                if around != "the-loop":
                    raise

    with pytest.raises(RuntimeError, match="backward through the graph a second time") as raised:
        trains()
    assert caught == [raised.value]
    assert alone.state.step == 0
    assert alone.closed
