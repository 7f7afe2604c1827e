"""A realistic script trains at changing world sizes as plain torch does in one process."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from tests.elastic.method import tokens
from tests.elastic.workers import Worker
from tidewater.contract import exit_codes
from tidewater.elastic.checkpoint import Checkpoints, places
from tidewater.elastic.observe.log import Log

pytestmark = pytest.mark.e2e

SCRIPT = ("tests/elastic/method/tokens.py",)
STEPS = 60
PACED = ("--min-step-seconds", "0.05", "--checkpoint-every", "5")


def test_a_script_with_padding_clipping_two_optimizers_and_a_new_learning_rate_on_resume_is_that_of_plain_torch(
    start: Callable[..., Worker], tmp_path: Path, quiet: Log
) -> None:
    arguments = (*tokens.ARGUMENTS, "--max-steps", str(STEPS))
    a, b = (start(name, *arguments, *PACED, "--min-workers", "2", "--lr", "0.5", python=SCRIPT) for name in "ab")
    a.wait_for(lambda _: a.events("checkpoint_saved") or b.events("checkpoint_saved"))
    for worker in (a, b):
        worker.signal(signal.SIGKILL)
        worker.wait()
    c = start("c", *arguments, "--lr", "0.2", python=SCRIPT)
    assert c.wait() == exit_codes.FINISHED
    resumed = int(c.events("checkpoint_loaded")[0]["step"])
    assert 0 < resumed < STEPS
    (finished,) = c.events("finished")
    assert (finished["step"], float(finished["accuracy"])) == (str(STEPS), 1.0)
    found = Checkpoints(places(str(tmp_path / "checkpoints")), keep=2, log=quiet).load("")
    assert found
    assert found.step == STEPS
    expected = tokens.trained([0.5] * resumed + [0.2] * (STEPS - resumed)).state_dict()
    for name, value in found.tree["model"].items():
        torch.testing.assert_close(value, expected[name], rtol=1e-6, atol=1e-9)
