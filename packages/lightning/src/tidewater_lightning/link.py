"""The loop of Lightning on one side, a session of Tidewater on the other.

    link = Link(run, …)
    for batch in link.rehearsals():         # before the worker joins
        link.sums(loss)
    while link.peek():                      # between two epochs: whether training goes on
        batch = link.take()                 # the first micro-batch of a step
        link.sums(loss)                     # of each micro-batch
        while not link.stands:
            batch = link.again()            # the next micro-batch, or one of the new share of a repeated step
            link.sums(loss)
        link.applied()                      # when the optimizer is stepped

What the runtime does in between, forming groups and handing over the state, is done in ``peek``, ``take`` and
``again``. If this worker has got the state of another step by that, ``take`` and ``again`` raise Moved.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

from tidewater import ConfigError

Away = AbstractContextManager[None]

_MISSING = object()


class Moved(Exception):
    """This worker has got the state after another step than the one that it has made last."""


class Over(Exception):
    """Training has ended, or this worker leaves, within an epoch."""


class Link:
    """Gives the micro-batches of ``run`` to a loop that makes whole steps.

    Args:
        run: What ``tidewater.session`` gives.
        loads: Returns how often another state has replaced this worker's.
        before: Called before the next step is asked for.
        made: Called when a step was made.
        away: A context in which the runtime works. Afterwards this worker's rank may be another one.
    """

    def __init__(
        self,
        run: Any,
        loads: Callable[[], int],
        *,
        before: Callable[[], None],
        away: Callable[[], Away],
        made: Callable[[], None],
    ) -> None:
        self._run, self._loads, self._before, self._away, self._made = run, loads, before, away, made
        self._batches: Iterator[Any] = run.batches()
        self._next: Any = _MISSING
        self._seen = 0
        self._summed = True
        self.stands = False
        """Whether the sums of the step stand, so that the optimizer is to be stepped."""
        self.over = False
        """Whether the runtime gives no more batches."""

    def rehearsals(self) -> Iterator[Any]:
        """Yield the batches that come before the worker joins. Call ``sums`` for each."""
        while self._fetch() and self._run.rank < 0:
            batch, self._next = self._next, _MISSING
            yield batch
        self._seen = self._loads()

    def peek(self) -> bool:
        """Return whether training goes on. Call it between two epochs, where the loop may continue at any place."""
        if self._next is _MISSING:
            self._before()
            self._fetch()
        self._seen = self._loads()
        return not self.over

    def take(self) -> Any:
        """Return the first micro-batch of the next step. Raise Moved or Over."""
        if self._next is _MISSING:
            self._before()
            self._fetch()
        return self._given()

    def again(self) -> Any:
        """Return another micro-batch of the same step. Raise Moved or Over."""
        self._fetch()
        return self._given()

    def sums(self, loss: Any) -> None:
        """Make the backward pass of the micro-batch."""
        with self._away():
            self.stands = self._run.sums(loss)
        self._summed = True

    def applied(self) -> None:
        """Note that the optimizer was stepped."""
        self.stands = False
        with self._away():
            self._run.applied()
        self._made()

    @property
    def has_final_state(self) -> bool:
        """Whether the job is finished and this worker has its final model: it hasn't left, and wasn't left behind."""
        return self.over and bool(self._run.has_final_state)

    def _given(self) -> Any:
        if self._loads() != self._seen:
            raise Moved
        if self.over:
            raise Over
        batch, self._next = self._next, _MISSING
        return batch

    def _fetch(self) -> bool:
        """Get the next micro-batch. Return whether there is one. Raise ConfigError if the last one has no loss."""
        if not self._summed:
            raise ConfigError(
                "training_step has returned None, or on_train_batch_start -1, and every sample counts once in its "
                "epoch: return a loss that is 0, such as 0 * output.sum(), for a batch without anything to learn"
            )
        with self._away():
            self._next = next(self._batches, _MISSING)
        self.over = self._next is _MISSING
        self._summed = self.over
        return not self.over
