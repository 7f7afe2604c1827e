"""Habits of training loops that would be wrong in a loop with ``tidewater.session``, each refused by a sentence.

    habits.begin(rehearses=True)        # the script gets a batch
    habits.check(index, count)          # before the backward pass of that micro-batch
    habits.added()                      # after it, if another one of the same step follows
    habits.end()                        # before the script gets another batch

The rehearsal has a step of one micro-batch and one of several. So most of them are found before the worker joins.
"""

from __future__ import annotations

from typing import Any

from tidewater.elastic.errors import ConfigError
from tidewater.elastic.method.optimizers import several
from tidewater.elastic.training import Training


class Habits:
    """Looks at what the loop of a script does to the objects of its training."""

    def __init__(self, training: Training) -> None:
        self._parameters = [each for each in training.model.parameters() if each.requires_grad]
        self._schedulers = several(training.scheduler)
        self._rehearses = False
        self._stepped: list[Any] = []
        """How often each scheduler was stepped when the script got its batch."""
        self._held: tuple[Any, Any, int] | None = None
        """A parameter, its gradient, and how often that was written when the passes so far had added theirs."""

    def begin(self, *, rehearses: bool) -> None:
        """Note how things are when the script gets a batch."""
        self._rehearses = rehearses
        if rehearses:
            self._stepped = self._steps()

    def check(self, index: int, count: int) -> None:
        """Raise ConfigError if the script has changed gradients, before the backward pass of micro-batch ``index``."""
        if self._rehearses and count == 1 and any(each.grad is not None for each in self._parameters):
            raise ConfigError(
                "the script has called backward() itself: leave it out, since run.step(loss) does it, and weights the "
                "loss by this worker's share of the step"
            )
        if index and self._held is not None:
            parameter, gradient, version = self._held
            if parameter.grad is not gradient or gradient._version != version:
                raise ConfigError(
                    "the script has changed the gradients between two micro-batches of a step, with zero_grad() "
                    "perhaps: leave it out, since the runtime clears them before every step; what changes the "
                    "gradients of the whole step belongs into before_step"
                )

    def added(self) -> None:
        """Note the gradients after the backward pass of a micro-batch."""
        used = next((each for each in self._parameters if each.grad is not None), None)
        self._held = None if used is None or used.grad is None else (used, used.grad, used.grad._version)

    def end(self) -> None:
        """Raise ConfigError if the script has stepped a scheduler."""
        if self._rehearses and self._steps() != self._stepped:
            raise ConfigError(
                "the script has called scheduler.step() itself: leave it out, since the schedulers that "
                "tidewater.session() has got are stepped once after every step"
            )

    def _steps(self) -> list[Any]:
        return [getattr(each, "last_epoch", None) for each in self._schedulers]
