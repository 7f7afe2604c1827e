"""The sums of an update of the model, from gradients that a script has computed.

    updates = Updates(session)
    with updates.passes(): ...                                               # the script's passes of one minibatch
    updates.make(Contribution(gradients, records=32, total=64, whole=64))    # raises GroupBroken; then nothing changed

The runtime's session decides with whom the sums are made, and when an update is final. What passes change in buffers is
collected like gradients: between two minibatches the model has the buffers of the last update, and the next minibatch
continues from what was collected.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass

import torch

from tidewater.elastic.buffers.agreement import Buffers
from tidewater.elastic.data.sampler import Cursor
from tidewater.elastic.data.seeds import drawn_alike
from tidewater.elastic.group.reducer import Reducer
from tidewater.elastic.session.session import Session
from tidewater.elastic.session.step import Outcome
from tidewater.elastic.session.worker import Share

Gradients = list[torch.Tensor | None]


@dataclass(frozen=True)
class Contribution:
    """What one worker adds to an update."""

    gradients: Gradients
    """By parameter: the sum over its minibatches, each by its share of a whole global batch; None: there is none."""
    loss: float
    """The sum over its minibatches in the same way."""
    records: int
    """Of this worker."""
    total: int
    """Of all workers."""
    whole: int
    """Records of a whole global batch."""


class Updates:
    """The updates of one worker's model."""

    def __init__(self, session: Session) -> None:
        self._session = session
        model = session.worker.training.model
        self._parameters = list(model.parameters())
        self._buffers = Buffers(model, session.worker.group)
        self._reducer = Reducer(session.worker.group, model.named_parameters(), lambda: [2])

    @contextlib.contextmanager
    def passes(self) -> Iterator[None]:
        """Collect what the passes within change in buffers. If they fail, it is undone."""
        self._buffers.resume()
        try:
            yield
            self._buffers.take()
        finally:
            self._buffers.restore()

    def forget(self) -> None:
        """Drop what is collected of buffers."""
        self._buffers.forget()

    def make(self, mine: Contribution) -> None:
        """Update the model with the gradients of all workers. Collective.

        Raise GroupBroken on any failure of a peer: then nothing has changed here.
        """
        now, state = time.monotonic(), self._session.worker.state
        share = Share(
            samples=tuple(range(mine.records)),
            batch_size=mine.total,
            after=Cursor(0, state.step + 1),
            began=now,
            ready=now,
        )

        def apply(outcome: Outcome) -> float:
            gradients = [each.grad for each in self._parameters if each.grad is not None]
            if gradients and mine.total != mine.whole:
                torch._foreach_mul_(gradients, mine.whole / mine.total)
            self._buffers.apply(outcome.buffers)
            with drawn_alike(self._session.config.seed, "update", state.step + 1, self._session.worker.group.device):
                return state.optimizers.step(1.0)

        try:
            outcome = self._session.summed(share, lambda: self._summed(mine))
            self._session.applied(share, outcome, apply(outcome))
        finally:
            self._reducer.reset()

    def _summed(self, mine: Contribution) -> Outcome:
        """Make the sums over the workers the gradients. Return the loss and the buffers."""
        group = self._session.worker.group
        self._reducer.reset()
        for parameter, gradient in zip(self._parameters, mine.gradients, strict=True):
            # A copy, because the sums are made in place, and a failure must not spoil what is collected.
            parameter.grad = None if gradient is None else gradient.clone()
        if not mine.records:
            self._buffers.begin()
        load = torch.tensor([mine.loss, 0.0], device=group.device)
        load[1] = self._buffers.send(mine.records / mine.total)
        self._reducer.flush([load])
        (sums,) = self._reducer.sums()
        loss, more = sums.tolist()
        return Outcome(loss * mine.whole / mine.total, everyone_knows=False, buffers=self._buffers.sums(more > 0))
