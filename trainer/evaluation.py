"""How good the model is: its score over the validation data, by all ranks together.

    evaluation = Evaluation(parts, log)
    if evaluation.is_due(epochs=90, every=1):
        evaluation.run(Seat(rank=1, size=3), knows=…, overdue=…)    # False: it has given way to the next generation
        evaluation.run(Seat(rank=0, size=2), knows=…, overdue=…)    # and goes on in that; True: it is done

The validation data is gone through in order, in rounds of so many samples of each rank, and each round's sum is agreed
on before the next. So a change of the membership waits for one round at most, a failure costs one round at most, and
whoever comes goes on with the others from there. The rounds are in no checkpoint: a job that was lost as a whole begins
its evaluation again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from trainer.observe.log import Log
from trainer.parts import Parts

ROUND = 64
"""Samples of each rank in a round; they go through the model at once."""
_SAY_SECONDS = 10.0


@dataclass(frozen=True)
class Seat:
    """A rank of a generation, and so its part of each round."""

    rank: int
    size: int

    def shares(self, start: int, total: int) -> Iterator[range]:
        """This rank's samples in each round from sample ``start`` on; the last ones may be short, or empty."""
        for first in range(start, total, ROUND * self.size):
            mine = first + ROUND * self.rank
            yield range(min(mine, total), min(mine + ROUND, total))


class Evaluation:
    """Evaluates one state after the other, each in as many generations as it takes."""

    def __init__(self, parts: Parts, log: Log) -> None:
        self._parts, self._log = parts, log
        self._state = (0, 0)
        """Which one was evaluated last, by the generation that applied its last step and by that step."""
        self._done = 0
        """So many of the validation samples are in the sum."""
        self._sum = 0.0
        self._said = 0.0

    def is_due(self, *, epochs: int, every: int) -> bool:
        """Whether the state is that of an epoch's end at which it is evaluated, and hasn't been yet.

        Args:
            epochs: Of the whole job; at the end of the last one it always is.
            every: So many epochs there is an evaluation; 0: at the end alone.
        """
        state = self._parts.state
        epoch = state.cursor.epoch
        wanted = epoch >= epochs or (every > 0 and epoch % every == 0)
        return wanted and state.cursor.offset == 0 and epoch > state.evaluated

    def run(self, seat: Seat, *, knows: Callable[[], bool], overdue: Callable[[], bool]) -> bool:
        """Evaluate, as far as there is something to do it by; a collective call. Whether it has come to its end.

        Args:
            seat: This rank's.
            knows: Whether this rank knows of the next generation. As soon as all do, they leave this one.
            overdue: Whether this worker is to end, whatever the others do.

        Raises GroupBroken when a peer fails. What was agreed on until then counts in the next generation.
        """
        training, state = self._parts.training, self._parts.state
        total = len(_sized(training.validation)) if training.score is not None else 0
        if total:
            self._agree(seat.rank)
            training.model.eval()
            try:
                if not self._rounds(seat, total, knows, overdue):
                    return False
            finally:
                training.model.train()
            state.accuracy = self._sum / total
            if seat.rank == 0:
                self._log.event("evaluated", epoch=state.cursor.epoch, step=state.step, accuracy=state.accuracy)
        state.evaluated = state.cursor.epoch
        return True

    def _agree(self, rank: int) -> None:
        """Go on where rank 0 is: of two ranks one may lack the last round's sum, and a newcomer lacks them all."""
        group, state = self._parts.group, self._parts.state
        if self._state != (state.applied_in, state.step):
            self._state, self._done, self._sum = (state.applied_in, state.step), 0, 0.0
            self._said = time.monotonic()
        place = torch.zeros(2, dtype=torch.float64, device=group.device)
        if rank == 0:
            place[0], place[1] = self._done, self._sum
        group.all_reduce(place)
        done, self._sum = place.tolist()
        self._done = int(done)

    def _rounds(self, seat: Seat, total: int, knows: Callable[[], bool], overdue: Callable[[], bool]) -> bool:
        """Add the rounds that are left to the sum; whether all are in it now."""
        group = self._parts.group
        shares = list(seat.shares(self._done, total))
        batches = self._parts.loader.validation(filter(None, shares))
        for share in shares:
            if overdue():
                return False
            began = time.monotonic()
            round_ = torch.zeros(2, dtype=torch.float64, device=group.device)
            round_[0] = self._score(next(batches)) if share else 0.0
            round_[1] = float(knows())
            group.all_reduce(round_)
            score, knowing = round_.tolist()
            self._sum += score
            self._done = min(self._done + ROUND * seat.size, total)
            self._parts.metrics.evaluated(time.monotonic() - began)
            self._say(seat, total)
            if round(knowing) == seat.size and self._done < total:
                return False
        return True

    def _score(self, batch: Any) -> torch.Tensor:
        """Of this rank's part of a round."""
        score: Any = self._parts.training.score
        with torch.no_grad(), self._parts.stepper.precision():
            return torch.as_tensor(score(self._parts.training.model, batch))

    def _say(self, seat: Seat, total: int) -> None:
        """How far it is, now and then."""
        if seat.rank == 0 and time.monotonic() - self._said > _SAY_SECONDS:
            self._said = time.monotonic()
            self._log.event("evaluating", step=self._parts.state.step, samples=self._done, of=total)


def _sized(dataset: Any) -> Sequence[Any]:
    """A map-style dataset, which torch's type doesn't say has a length; empty if there is none."""
    sized: Sequence[Any] = () if dataset is None else dataset
    return sized
