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

BATCHES, EPOCHS = 4, 3


class Alone:
    """What a course uses of a Trainer, without passes."""

    def __init__(self, folder: Path, *callbacks: Any, max_steps: int = EPOCHS * BATCHES, **more: Any) -> None:
        self.args = TrainingArguments(str(folder), **{"report_to": "none", "logging_steps": 2, **more})
        self.state, self.control = TrainerState(max_steps=max_steps), TrainerControl()
        self.state.compute_steps(self.args, max_steps)
        self.model: Any = torch.nn.Linear(1, 1)
        self.optimizer = None
        self.callback_handler = CallbackHandler([DefaultFlowCallback(), *callbacks], self.model, None, None, None)
        self._tr_loss, self._total_loss_scalar, self._globalstep_last_logged = torch.tensor(0.0), 0.0, 0
        self.logged: list[int] = []
        self.evaluated: list[int] = []

    def _clip_grad_norm(self, _: Any) -> torch.Tensor:
        return torch.tensor(0.3)

    def _get_grad_norm(self, _: Any, grad_norm: torch.Tensor) -> torch.Tensor:
        return grad_norm

    def _evaluate(self, *_: Any, **__: Any) -> None:
        self.control.should_evaluate = False
        self.evaluated.append(self.state.global_step)

    def _maybe_log_save_evaluate(self, loss: torch.Tensor, norm: Any, *_: Any, **__: Any) -> None:
        if self.control.should_log:
            self.logged.append(self.state.global_step)
            logs = {"loss": float(loss), "eval_runtime": 3.0, "grad_norm": None if norm is None else float(norm)}
            self.state.log_history.append(logs)
            self.control = self.callback_handler.on_log(self.args, self.state, self.control, logs)
            loss -= loss
        if self.control.should_evaluate:
            self._evaluate()


class Counts(TrainerCallback, ExportableState):
    """A callback with a state."""

    def __init__(self) -> None:
        self.steps = 0

    def on_step_end(self, *_: Any, **__: Any) -> None:
        self.steps += 1

    def state(self) -> dict[str, Any]:
        return {"args": {}, "attributes": {"steps": self.steps}}


def report(step: int, **more: Any) -> tidewater.Report:
    about: dict[str, Any] = {"generation": 1, "world_size": 1, "rank": 0, "samples": (), "batch_size": 1}
    about |= {"epoch": step // BATCHES, **more}
    return tidewater.Report(step=step, loss=1.5, lr=0.1, step_seconds=0.1, useful_seconds=0.1, **about)


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
    with pytest.raises(tidewater.Stop):  # again: a job that was resumed meanwhile doesn't know of the first one
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


def resumed(before: Course, trainer: Any) -> Course:
    after = course(trainer)
    after.load_state_dict(before.state_dict())
    return after


def test_a_resumed_job_has_the_steps_of_its_arguments(tmp_path: Path) -> None:
    old, new = Alone(tmp_path, logging_steps=3), Alone(tmp_path, eval_strategy="epoch", max_steps=20)
    before = course(old)
    for step in range(1, 13):  # the last one of the old arguments
        before.on_step(report(step))
    after = resumed(before, new)
    for step in range(13, 21):
        after.on_step(report(step))
    assert new.state.max_steps == 20
    assert new.logged == [14, 16, 18, 20]
    assert new.evaluated == [16, 20]


def test_epochs_end_where_the_data_says_so(tmp_path: Path) -> None:
    one = course(trainer := Alone(tmp_path, eval_strategy="epoch"))
    for step, epoch in ((1, 0), (2, 0), (3, 1), (4, 1), (5, 1), (6, 2)):  # a sample was left out
        one.on_step(report(step, epoch=epoch))
    assert trainer.evaluated == [3, 6]


def test_a_resumed_job_with_another_batch_is_refused(tmp_path: Path) -> None:
    before = course(Alone(tmp_path))
    with pytest.raises(tidewater.ConfigError, match=r"steps of 8 samples, .* is 16 now"):
        resumed(before, Alone(tmp_path, gradient_accumulation_steps=2))
    resumed(before, Alone(tmp_path, gradient_accumulation_steps=2, per_device_train_batch_size=4))


@pytest.mark.parametrize("made", [0, 1])
def test_the_model_is_evaluated_once_before_the_first_step(tmp_path: Path, made: int) -> None:
    one = course(first := Alone(tmp_path, eval_on_start=True))
    one.before_step(first.model)
    if made:
        one.on_step(report(1))
    resumed(one, second := Alone(tmp_path, eval_on_start=True)).on_step(report(made + 1))
    assert (first.evaluated, second.evaluated) == ([0], [])


def test_a_newcomer_logs_the_norm_of_the_step_that_is_pending(tmp_path: Path) -> None:
    one = course(first := Alone(tmp_path, logging_steps=1))
    one.before_step(first.model)
    resumed(one, second := Alone(tmp_path, logging_steps=1)).on_step(report(1))
    one.on_step(report(1))
    assert second.state.log_history == first.state.log_history
    assert first.state.log_history[0]["grad_norm"] == pytest.approx(0.3)


def test_a_tracker_begins_in_each_worker_that_comes_to_write(tmp_path: Path) -> None:
    class Tracks(TrainerCallback):
        """Has a run only where it began as process zero, as most of the library's trackers."""

        def __init__(self) -> None:
            self._initialized = False
            self.runs = 0
            self.points: list[int] = []

        def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            if not self._initialized:
                self._initialized = True
                self.runs += state.is_world_process_zero

        def on_log(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            if state.is_world_process_zero:
                assert self.runs
                self.points.append(state.global_step)

    one = course(Alone(tmp_path, counts := Counts(), tracks := Tracks()))
    for step, writes in ((1, False), (2, False), (3, True), (4, True), (5, False), (6, True)):
        one.on_step(report(step, writes=writes))
    assert (tracks.runs, tracks.points, counts.steps) == (1, [4, 6], 6)
