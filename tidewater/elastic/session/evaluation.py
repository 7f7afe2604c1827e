"""The evaluation of the model: all ranks together compute its score over the validation data.

    evaluation = Evaluation(worker, material, log)
    if evaluation.is_due(over=False, every=1):
        evaluation.run(Seat(rank=1, size=3), …)    # False: interrupted by the next generation
        evaluation.run(Seat(rank=0, size=2), …)    # continues in that generation; True: finished

The validation data is processed in order, in rounds. In each round every rank takes ROUND samples, and all ranks agree
on the sum before the next round begins. So a change of the membership waits for at most one round, a failure costs at
most one round, and a newcomer continues with the others from there. Checkpoints do not contain the rounds: a job that
loses all its workers evaluates again from the beginning. What an evaluation changes in buffers is undone at its end.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch

from tidewater.elastic.data.device import onto
from tidewater.elastic.data.loader import split
from tidewater.elastic.observe.log import Log
from tidewater.elastic.session.memory import enough_memory
from tidewater.elastic.session.worker import Material, Worker
from tidewater.elastic.training import Evaluated

ROUND = 64
"""Samples of each rank in a round. The model processes them as one batch if the training does so with as many."""
_SAY_SECONDS = 10.0


@dataclass(frozen=True)
class Seat:
    """A rank of a generation, and so its part of each round."""

    rank: int
    size: int

    def shares(self, start: int, total: int) -> Iterator[range]:
        """Yield this rank's samples for each round from sample ``start`` on; the last ranges may be short or empty."""
        for first in range(start, total, ROUND * self.size):
            mine = first + ROUND * self.rank
            yield range(min(mine, total), min(mine + ROUND, total))


class Evaluation:
    """Evaluates one state after another. An evaluation may extend over several generations."""

    def __init__(self, worker: Worker, material: Material, log: Log) -> None:
        self._worker, self._material, self._log = worker, material, log
        self._state = (0, 0)
        """The state that was evaluated last: the generation that applied its last step, and that step."""
        self._done = 0
        """Number of validation samples in the sum."""
        self._sum = 0.0
        self._said = 0.0

    def is_due(self, *, over: bool, every: int) -> bool:
        """Return whether an evaluation is due: the state is at the end of an epoch or of training, and has not been
        evaluated there yet.

        Args:
            over: Whether training has ended. An evaluation is always due then.
            every: Number of epochs between two evaluations; 0 evaluates only at the end.
        """
        state = self._worker.state
        wanted = over or (every > 0 and state.cursor.offset == 0 and state.cursor.epoch % every == 0)
        return wanted and state.step > state.evaluated

    def run(
        self,
        seat: Seat,
        *,
        knows: Callable[[], bool],
        overdue: Callable[[], bool],
        check: Callable[[], None],
    ) -> bool:
        """Evaluate, if there are validation data and a score. Return whether the evaluation is finished. Collective.

        Args:
            seat: This rank's seat.
            knows: Returns whether this rank knows of the next generation. When all ranks do, they leave this one.
            overdue: Returns whether this worker must end, whatever the others do.
            check: Raises GroupBroken if others have continued without this worker.

        Raise GroupBroken when a peer fails. The rounds that were agreed on before count in the next generation.
        """
        training, state = self._material.training, self._worker.state
        total = len(_sized(training.validation)) if training.score is not None else 0
        if total:
            self._agree(seat.rank)
            with state.evaluating(), self._material.stepper.evaluating():
                if not self._rounds(seat, total, knows, overdue):
                    return False
        check()  # before the result counts: this process may have been frozen in a round
        if total:
            state.scored(self._sum / total)
            if seat.rank == 0:
                self._log.event("evaluated", epoch=state.cursor.epoch, step=state.step, accuracy=state.accuracy)
        state.evaluated = state.step
        if total:
            training.on_evaluation(Evaluated(state.step, state.cursor.epoch, self._sum / total, seat.rank == 0))
        return True

    def _agree(self, rank: int) -> None:
        """Continue where rank 0 is: a rank may lack the sum of the last round, and a newcomer lacks all sums."""
        state = self._worker.state
        if self._state != (state.applied_in, state.step):
            self._state, self._done, self._sum = (state.applied_in, state.step), 0, 0.0
            self._said = time.monotonic()
        done, self._sum = self._worker.group.tally([self._done, self._sum] if rank == 0 else [0, 0])
        self._done = int(done)

    def _rounds(self, seat: Seat, total: int, knows: Callable[[], bool], overdue: Callable[[], bool]) -> bool:
        """Add the remaining rounds to the sum. Return whether the sum is complete."""
        shares = list(seat.shares(self._done, total))
        parts = [split(share, self._worker.state.micro_batch) if share else [] for share in shares]
        batches = self._material.loader.validation(part for round_ in parts for part in round_)
        for parts_of_round in parts:
            if overdue():
                return False
            began = time.monotonic()
            mine = sum(self._score(next(batches), len(part)) for part in parts_of_round)
            score, knowing = self._worker.group.tally([mine, float(knows())])
            self._sum += score
            self._done = min(self._done + ROUND * seat.size, total)
            self._worker.metrics.evaluated(time.monotonic() - began)
            self._say(seat, total)
            if round(knowing) == seat.size and self._done < total:
                return False
        return True

    def _score(self, batch: Any, samples: int) -> float:
        """Return the score of one batch. Raise OutOfMemory if a smaller one may fit."""
        group, score = self._worker.group, cast("Any", self._material.training.score)
        with (
            enough_memory(self._worker.state, group, samples=samples),
            torch.no_grad(),
            self._material.stepper.precision(),
        ):
            return float(score(self._material.training.model, onto(batch, group.device)))

    def _say(self, seat: Seat, total: int) -> None:
        """Log the progress from time to time."""
        if seat.rank == 0 and time.monotonic() - self._said > _SAY_SECONDS:
            self._said = time.monotonic()
            self._log.event("evaluating", step=self._worker.state.step, samples=self._done, of=total)


def _sized(dataset: Any) -> Sequence[Any]:
    """Return the dataset as a sequence (torch's type has no length); an empty one for None."""
    sized: Sequence[Any] = () if dataset is None else dataset
    return sized
