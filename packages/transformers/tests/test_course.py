"""What the Trainer's state is after a step, and how it gets into another worker."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from tidewater_transformers.course import Course, epoch_after
from transformers import DefaultFlowCallback, TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from transformers.trainer_callback import CallbackHandler, ExportableState

import tidewater

BATCHES, STEPS = 4, 3


class Alone:
    """What a course uses of a Trainer, without passes."""

    def __init__(self, folder: Path, *callbacks: Any) -> None:
        self.args = TrainingArguments(str(folder), report_to="none", logging_steps=2)
        self.state, self.control = TrainerState(max_steps=STEPS * BATCHES), TrainerControl()
        self.state.logging_steps = 2
        self.model: Any = torch.nn.Linear(1, 1)
        self.optimizer = None
        self.callback_handler = CallbackHandler([DefaultFlowCallback(), *callbacks], self.model, None, None, None)
        self._tr_loss, self._total_loss_scalar, self._globalstep_last_logged = torch.tensor(0.0), 0.0, 0
        self.logged: list[int] = []

    def _maybe_log_save_evaluate(self, loss: torch.Tensor, *_: Any, **__: Any) -> None:
        if self.control.should_log:
            self.logged.append(self.state.global_step)
            self.control.should_log = False
            self.state.log_history.append({"loss": float(loss), "eval_runtime": 3.0})
            loss -= loss


class Counts(TrainerCallback, ExportableState):
    """A callback with a state."""

    def __init__(self) -> None:
        self.steps = 0

    def on_step_end(self, *_: Any, **__: Any) -> None:
        self.steps += 1

    def state(self) -> dict[str, Any]:
        return {"args": {}, "attributes": {"steps": self.steps}}


def report(step: int, **more: Any) -> tidewater.Report:
    about: dict[str, Any] = {"epoch": 0, "generation": 1, "world_size": 1, "rank": 0, "samples": (), "batch_size": 1}
    return tidewater.Report(step=step, loss=1.5, lr=0.1, step_seconds=0.1, useful_seconds=0.1, **{**about, **more})


def course(trainer: Any) -> Course:
    return Course(trainer, BATCHES, None, 0.0)


@pytest.mark.parametrize(
    ("step", "batches", "accumulated", "epoch"), [(1, 4, 1, 0.25), (4, 4, 1, 1.0), (5, 4, 1, 1.25), (3, 5, 2, 1.0)]
)
def test_epochs_are_counted_by_batches(step: int, batches: int, accumulated: int, epoch: float) -> None:
    assert epoch_after(step, batches, accumulated) == epoch


def test_another_worker_continues_with_the_same_state(tmp_path: Path) -> None:
    first, second = (Alone(tmp_path, Counts()) for _ in range(2))
    one, other = course(first), course(second)
    for step in (1, 2, 3):
        one.on_step(report(step, writes=True))
    other.load_state_dict(one.state_dict())
    assert other.state_dict() == one.state_dict()
    assert (second.state.global_step, second.state.epoch, float(second._tr_loss)) == (3, 0.75, 1.5)
    assert second.callback_handler.callbacks[1].steps == 3
    assert (first.state.is_world_process_zero, second.state.is_world_process_zero) == (True, True)
    for each in (one, other):
        each.on_step(report(4))
    assert other.state_dict() == one.state_dict()
    assert (first.logged, second.logged) == ([2, 4], [4])


def test_what_a_clock_has_measured_is_not_part_of_the_state(tmp_path: Path) -> None:
    trainer = Alone(tmp_path)
    one = course(trainer)
    one.on_step(report(1))
    one.on_step(report(2))
    assert "eval_runtime" not in one.state_dict()["json"]
    assert "eval_runtime" in trainer.state.log_history[0]


def test_a_callback_ends_training_for_all_and_the_steps_of_the_others_count(tmp_path: Path) -> None:
    class Ends(DefaultFlowCallback):
        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            control.should_training_stop = state.global_step == 2

    one = course(trainer := Alone(tmp_path, Ends()))
    one.on_step(report(1))
    with pytest.raises(tidewater.Stop):
        one.on_step(report(2))
    one.on_step(report(3))
    assert (trainer.state.global_step, one.is_stopped) == (3, True)


def test_a_callback_cannot_end_an_epoch(tmp_path: Path) -> None:
    class Ends(DefaultFlowCallback):
        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            control.should_epoch_stop = True

    with pytest.raises(tidewater.ConfigError, match="should_epoch_stop"):
        course(Alone(tmp_path, Ends())).on_step(report(1))


def test_only_the_worker_that_writes_is_process_zero(tmp_path: Path) -> None:
    one = course(trainer := Alone(tmp_path))
    for step, writes in ((1, True), (2, False), (3, True)):
        one.on_step(report(step, writes=writes))
        assert trainer.state.is_world_process_zero is writes
