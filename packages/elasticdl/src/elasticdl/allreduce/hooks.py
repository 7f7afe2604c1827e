"""Log the loss during training, run the evaluations, and export the final model at the end.

    following = Following(plan, model, evaluator, export, say)
    Training(…, on_step=following.on_step, stateful={"": following}, validation=End(), score=following.at_the_end)

The trainer has its own evaluation at the end of the training, all workers together: it hands out the validation
samples in rounds. If a worker is lost, its round is repeated. Here that evaluation has one sample, and its score is
that the final model was evaluated and exported. So the worker of rank 0 does it, and if that worker is lost, the next
one does it again before the job counts as finished.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from elasticdl.allreduce.evaluating import Evaluator
from tidewater import Report

log = logging.getLogger(__name__)

ACCURACY = "accuracy"


@dataclass(frozen=True)
class Plan:
    """When something is due."""

    epochs: int
    last_step: int | None
    """After which training ends; None: after the epochs."""
    log_loss_steps: int
    """Each worker also tells the loss of its first step and of the last ones."""
    evaluation_steps: int


class Following:
    """Follows the steps of a job. Its state is the number of the last step, which newcomers need, too."""

    def __init__(
        self,
        plan: Plan,
        model: torch.nn.Module,
        evaluator: Evaluator | None,
        export: Callable[[int], None],
        say: Callable[[str], None],
    ) -> None:
        self._plan, self._model, self._evaluator, self._export, self._say = plan, model, evaluator, export, say
        self._step = 0
        self._is_over = False
        self._sum, self._count = 0.0, 0
        self._has_told = False

    def state_dict(self) -> dict[str, Any]:
        """Return what must be equal in all workers."""
        return {"step": self._step, "is_over": self._is_over}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take the state of another worker."""
        self._step, self._is_over = state["step"], state["is_over"]

    def on_step(self, report: Report) -> None:
        """Take in a step that is final. The model is as after it."""
        plan = self._plan
        self._step = report.step
        self._is_over = report.epoch >= plan.epochs or report.step == plan.last_step
        if report.rank < 0:
            return
        log.debug("Samples of step %d: %s", report.step, ",".join(map(str, report.samples)))
        self._sum, self._count = self._sum + report.loss, self._count + 1
        if plan.log_loss_steps and (not self._has_told or report.step % plan.log_loss_steps == 0 or self._is_over):
            self._say(f"Loss: {self._sum / self._count:.6g} step={report.step}")
            self._sum, self._count, self._has_told = 0.0, 0, True
        due = plan.evaluation_steps and report.step % plan.evaluation_steps == 0
        if due and not self._is_over and report.rank == 0 and self._evaluator:
            self._evaluator.begin(self._model, report.step)

    def at_the_end(self, model: torch.nn.Module, batch: Any) -> torch.Tensor:
        """Export and evaluate the final model; return its accuracy, 0 if it has no such metric.

        Before the end it does nothing: the trainer also calls it to warm up. Raise the error of an evaluation that has
        failed; the model is exported before.
        """
        accuracy = 0.0
        if self._is_over:
            self._export(self._step)
            if self._evaluator:
                self._evaluator.finish()
                accuracy = self._evaluator.run(self._model, self._step).get(ACCURACY, 0.0)
        return torch.tensor(accuracy, dtype=torch.float64)


class End(torch.utils.data.Dataset[None]):
    """The one sample of the trainer's own evaluation."""

    def __len__(self) -> int:
        return 1

    def __getitem__(self, index: int) -> None:
        return None
