"""The course of a training as the Trainer's callbacks see it: counters, logs, evaluations and checkpoints.

    course = Course(trainer, batches, ignored, started)
    with tidewater.session(..., before_step=course.before_step, on_step=course.on_step, stateful={"trainer": course}):

Everything happens when a step is final, in all workers alike. So the Trainer's state is a part of the training's
state: newcomers get it, a resumed job continues with it, and what is repeated after a loss was never counted.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from transformers.trainer_callback import ExportableState

import tidewater

_OF_THIS_PROCESS = ("is_local_process_zero", "is_world_process_zero", "stateful_callbacks")
_OF_THE_ARGUMENTS = ("max_steps", "num_train_epochs", "train_batch_size", "logging_steps", "eval_steps", "save_steps")
"""Fields of the Trainer's state that aren't part of the training's state: a resumed job has those of its arguments."""
_SPEEDS = ("_runtime", "_per_second", "_preparation_time")
"""Ends of the names of metrics that are measured in each worker. They aren't part of the state."""
_STOPPED = "a callback has set control.should_training_stop"


class Course:
    """Does what the library's loop does around its passes, for ``trainer``.

    Args:
        trainer: A ``tidewater_transformers.Trainer``.
        batches: Batches in an epoch, as the library counts them: so many as a plain Trainer in one process reads.
        ignored: Keys of the model's output that an evaluation ignores.
        started: Time at which training began, in seconds since the epoch.
    """

    def __init__(self, trainer: Any, batches: int, ignored: list[str] | None, started: float) -> None:
        self._trainer, self._batches, self._ignored, self._started = trainer, batches, ignored, started
        self._accumulated = trainer.args.gradient_accumulation_steps
        self._samples = self._accumulated * trainer.args.per_device_train_batch_size
        self.rank = -1
        """Of this worker in the step that it makes."""
        self._has_begun = self._has_written = self._has_evaluated = self._in_epoch = self.is_stopped = False
        self._epochs = 0
        """Finished ones, after the last final step."""
        self._norm: tuple[int, Any] = (0, None)
        """A step, and the norm of its gradients."""

    def before_step(self, _: torch.nn.Module) -> None:
        """Clip the gradients of the whole step, and let the callbacks see them."""
        trainer = self._trainer
        if not self._has_begun:
            self._writes(self.rank == 0)
            self._begin()
        norm = trainer._clip_grad_norm(trainer.model) if trainer.args.max_grad_norm > 0 else None
        self._norm = trainer.state.global_step + 1, trainer._get_grad_norm(trainer.model, grad_norm=norm)
        self._event("on_pre_optimizer_step")

    def on_step(self, report: tidewater.Report) -> None:
        """Count a final step, then log, evaluate and save if that is due. Raise Stop if a callback ends training."""
        trainer, state = self._trainer, self._trainer.state
        self._writes(report.writes)
        self._begin()
        ends_epoch = report.epoch > self._epochs
        if self.is_stopped:  # the others have learnt of it during this step, unless the job was resumed
            self._count(report)
            raise tidewater.Stop(_STOPPED)
        if not self._in_epoch:
            self._in_epoch = True
            self._event("on_epoch_begin")
        self._event("on_step_begin")
        self._event("on_optimizer_step")
        self._count(report)
        trainer._tr_loss += report.loss
        self._event("on_step_end")
        self._due(report)
        if ends_epoch or trainer.control.should_training_stop:
            self._in_epoch = False
            self._event("on_epoch_end")
            self._due(report)
        if trainer.control.should_epoch_stop:
            raise tidewater.ConfigError(
                "a callback has set control.should_epoch_stop, and every sample is used once per epoch: set "
                "control.should_training_stop"
            )
        if trainer.control.should_training_stop and report.step < state.max_steps:
            self.is_stopped = True
            raise tidewater.Stop(_STOPPED)

    def end(self, *, writes: bool) -> None:
        """Note whether this worker writes at the end: the one that did may have been lost after the last step."""
        self._writes(writes)
        self._begin()

    def state_dict(self) -> dict[str, str]:
        """Return the Trainer's state and that of its callbacks."""
        trainer = self._trainer
        left_out = (*_OF_THIS_PROCESS, *_OF_THE_ARGUMENTS)
        state = {name: value for name, value in vars(trainer.state).items() if name not in left_out}
        state["log_history"] = [_without_speeds(each) for each in state["log_history"]]
        step, norm = self._norm
        fields = {
            "state": state,
            "losses": [float(trainer._tr_loss), trainer._total_loss_scalar, trainer._globalstep_last_logged],
            "control": dataclasses.asdict(trainer.control),
            "callbacks": [[name, each.state()["attributes"]] for name, each in self._stateful()],
            "is_stopped": self.is_stopped,
            "has_evaluated": self._has_evaluated,
            "norm": [step, None if norm is None else float(norm)],
            "epochs": self._epochs,
            "samples": self._samples,
        }
        return {"json": json.dumps(fields, sort_keys=True)}

    def load_state_dict(self, state: Mapping[str, str]) -> None:
        """Continue with that state. Raise ConfigError if its steps have another number of samples."""
        trainer, fields = self._trainer, json.loads(state["json"])
        if fields["samples"] != self._samples:
            raise tidewater.ConfigError(
                f"the job has steps of {fields['samples']} samples, and per_device_train_batch_size times "
                f"gradient_accumulation_steps is {self._samples} now: keep the product, or give the job a new name"
            )
        vars(trainer.state).update(fields["state"])
        loss, trainer._total_loss_scalar, trainer._globalstep_last_logged = fields["losses"]
        trainer._tr_loss.fill_(loss)
        vars(trainer.control).update(fields["control"])
        for (name, callback), (stored, attributes) in zip(self._stateful(), fields["callbacks"], strict=False):
            if name == stored:
                vars(callback).update(attributes)
        self.is_stopped, self._has_evaluated = fields["is_stopped"], fields["has_evaluated"]
        self._norm, self._epochs = tuple(fields["norm"]), fields["epochs"]
        # The end of fewer steps than the arguments say now is not the end.
        trainer.control.should_training_stop &= self.is_stopped or trainer.state.global_step >= trainer.state.max_steps

    def _stateful(self) -> Iterator[tuple[str, Any]]:
        for each in self._trainer.callback_handler.callbacks:
            if isinstance(each, ExportableState):
                yield type(each).__name__, each

    def _writes(self, writes: bool) -> None:
        """Note whether this worker logs and saves for the job."""
        state = self._trainer.state
        state.is_local_process_zero = state.is_world_process_zero = writes
        if writes and self._has_begun and not self._has_written:
            self._begin_trackers()
        self._has_written |= writes

    def _begin_trackers(self) -> None:
        """Let the library's trackers begin once more: where they began without writing, they have no run."""
        handler = self._trainer.callback_handler
        everything = handler.callbacks
        handler.callbacks = [each for each in everything if hasattr(each, "_initialized")]
        for each in handler.callbacks:
            each._initialized = False
        try:
            handler.call_event("on_train_begin", self._trainer.args, self._trainer.state, self._trainer.control)
        finally:
            handler.callbacks = everything

    def _begin(self) -> None:
        if self._has_begun:
            return
        self._has_begun = True
        trainer = self._trainer
        stops = trainer.control.should_training_stop
        self._event("on_train_begin")
        trainer.control.should_training_stop |= stops
        if trainer.args.eval_on_start and trainer.state.global_step == 0 and not self._has_evaluated:
            self._has_evaluated = True
            trainer._evaluate(None, self._ignored, skip_scheduler=True)
            self._trains()

    def _count(self, report: tidewater.Report) -> None:
        state, step = self._trainer.state, report.step
        state.global_step, state.epoch = step, epoch_after(step, self._batches, self._accumulated)
        self._epochs = report.epoch

    def _event(self, name: str) -> None:
        trainer = self._trainer
        trainer.control = getattr(trainer.callback_handler, name)(trainer.args, trainer.state, trainer.control)

    def _due(self, report: tidewater.Report) -> None:
        """Log, evaluate and save if the callbacks want it."""
        trainer = self._trainer
        step, norm = self._norm
        trainer._maybe_log_save_evaluate(
            trainer._tr_loss,
            norm if step == report.step else None,
            trainer.model,
            None,
            trainer.state.epoch,
            self._ignored,
            self._started,
            learning_rate=report.lr,
        )
        self._trains()

    def _trains(self) -> None:
        """Undo what an evaluation leaves behind: all of the model in eval mode, and an optimizer's averages."""
        trainer = self._trainer
        if not trainer.model.training:
            trainer.model.train()
            if callable(getattr(trainer.optimizer, "train", None)):
                trainer.optimizer.train()


def epoch_after(step: int, batches: int, accumulated: int) -> float:
    """Return how many epochs are done after a step, as the library counts: by batches. A step has several.

    Args:
        step: From 1.
        batches: In an epoch.
        accumulated: In a step. The last one of an epoch may have fewer.
    """
    epoch, inside = divmod(step - 1, math.ceil(batches / accumulated))
    return epoch + min((inside + 1) * accumulated, batches) / batches


def _without_speeds(logs: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in logs.items() if not name.endswith(_SPEEDS)}
