"""The metrics of a copy of the model, computed by a thread while the training goes on.

    evaluator = Evaluator(spec, records, minibatch_size=64, say=log.info)
    evaluator.begin(model, step=200)      # copies the model, and returns at once
    evaluator.finish()                    # waits for what was begun
    evaluator.run(model, step=230)        # at once, in this thread

One worker evaluates all validation data, so the metrics are exact with nothing to merge. Evaluations that fall due
while one is under way are one, of the last model.
"""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Sequence

import torch

from elasticdl.allreduce.records import Records, fed
from elasticdl.worker.step import moved
from elasticdl.zoo.spec import ModelSpec


class Evaluator:
    """Evaluates one model after another.

    Args:
        spec: The model's functions.
        records: The validation data. Only this object uses it.
        minibatch_size: Records that the model gets at once.
        say: Gets the line with the metrics, and one for each evaluation that is joined with a later one.
    """

    def __init__(self, spec: ModelSpec, records: Records, minibatch_size: int, say: Callable[[str], None]) -> None:
        self._spec, self._records, self._size, self._say = spec, records, minibatch_size, say
        self._feed = fed(spec.feed)
        self._waiting: tuple[torch.nn.Module, int] | None = None
        self._thread: threading.Thread | None = None
        self._error: Exception | None = None
        self._lock = threading.Lock()
        self.evaluated: tuple[int, dict[str, float]] = (-1, {})
        """Step and metrics of the last evaluation."""

    def begin(self, model: torch.nn.Module, step: int) -> None:
        """Evaluate a copy of the model in a thread, unless an evaluation has failed."""
        with self._lock:
            if self._error is not None:
                return
            if self._waiting is not None:
                self._say(f"The evaluation due at step {self._waiting[1]} is joined with that of step {step}")
            self._waiting = copy.deepcopy(model), step
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="evaluation", daemon=True)
                self._thread.start()

    def finish(self) -> None:
        """Wait for the evaluations that were begun, and raise the error of the one that has failed."""
        thread = self._thread
        if thread is not None:
            thread.join()
        if self._error is not None:
            raise self._error

    def run(self, model: torch.nn.Module, step: int) -> dict[str, float]:
        """Return the model's metrics, after writing them to the log."""
        metrics, device = self._spec.eval_metrics(), _device_of(model)
        was_training = model.training
        model.eval()
        try:
            for part in _parts(len(self._records), self._size):
                features, labels = self._feed([self._records[index] for index in part])
                with torch.no_grad():
                    predictions = model(moved(features, device))
                metrics.update(labels, moved(predictions, torch.device("cpu")))
        finally:
            model.train(was_training)
        values = metrics.compute()
        self._say(f"Evaluation metrics[step={step}]: {values}")
        self.evaluated = step, values
        return values

    def _work(self) -> None:
        while True:
            with self._lock:
                if self._waiting is None or self._error is not None:
                    self._thread = None
                    return
                (model, step), self._waiting = self._waiting, None
            try:
                self.run(model, step)
            except Exception as error:  # whatever the model's functions raise is raised once the training has ended
                self._error = error
                self._say(f"The evaluation of step {step} has failed, and no other one begins: {error}")


def _parts(total: int, size: int) -> Sequence[range]:
    return [range(start, min(start + size, total)) for start in range(0, total, size)]


def _device_of(model: torch.nn.Module) -> torch.device:
    first = next(model.parameters(), None)
    return torch.device("cpu") if first is None else first.device
