"""The sums of an update of the model, from gradients that a script has computed.

    updates = Updates(session)
    updates.make(Contribution(gradients, records=32, total=64, whole=64))    # raises GroupBroken; then nothing changed

The runtime's session decides with whom the sums are made, and when an update is final.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import torch

from tidewater.elastic.data.sampler import Cursor
from tidewater.elastic.data.seeds import drawn_alike
from tidewater.elastic.group.reducer import Reducer
from tidewater.elastic.session.session import Session, Share
from tidewater.elastic.session.step import Outcome

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
        self._floats = [each for each in model.buffers() if each.is_floating_point()]
        self._counts = [each for each in model.buffers() if not each.is_floating_point()]
        self._reducer = Reducer(session.worker.group, model.named_parameters())

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
        sums: list[torch.Tensor] = []

        def summed() -> Outcome:
            loss, *rest = self._sums(mine)
            sums.extend(rest)
            return Outcome(float(loss) * mine.whole / mine.total, everyone_knows=False, buffers=())

        def apply(_: Outcome) -> float:
            if mine.total != mine.whole:
                gradients = [each.grad for each in self._parameters if each.grad is not None]
                torch._foreach_mul_(gradients, mine.whole / mine.total)
            with torch.no_grad():
                for buffer, value in zip([*self._floats, *self._counts], sums, strict=True):
                    buffer.copy_(value.view_as(buffer))
            with drawn_alike(self._session.config.seed, "update", state.step + 1, self._session.worker.group.device):
                return state.optimizers.step(1.0)

        try:
            self._session.update(share, summed, apply)
        finally:
            self._reducer.reset()

    def _sums(self, mine: Contribution) -> list[torch.Tensor]:
        """Make the sums over the workers the gradients. Return those of the loss and of the buffers."""
        group = self._session.worker.group
        self._reducer.reset()
        for parameter, gradient in zip(self._parameters, mine.gradients, strict=True):
            # A copy, because the sums are made in place, and a failure must not spoil what is collected.
            parameter.grad = None if gradient is None else gradient.clone()
        share = mine.records / mine.total
        loss = torch.tensor([mine.loss], device=group.device)
        averages = [each.detach().flatten().float() * share for each in self._floats]
        first = [each.detach().flatten().float() * (group.rank == 0) for each in self._counts]
        self._reducer.flush([loss, *averages, *first])
        return list(self._reducer.sums())
