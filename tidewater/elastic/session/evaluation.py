"""The validation of the model: all ranks together go through held-out data, and each gets the totals of named sums.

    evaluation = Evaluation(session, material)
    if evaluation.is_due(over=False, every=1):
        evaluation.begin(Seat(rank=1, size=3))
        evaluation.measure()                            # the training's score, if it has one
        validation = evaluation.validation(range(1000))
        for batch, add in validation:                   # this rank's batches
            add(correct=…, count=len(batch))
        validation.totals                               # of all ranks; None: interrupted by the next generation
        evaluation.finish()                             # False: interrupted; begin again in that generation

The data is processed in order, in rounds. In each round every rank takes ROUND samples, and all ranks agree on the sums
before the next round begins. So a change of the membership waits for at most one round, a failure costs at most one
round, and a newcomer continues with the others from there. Each sample counts exactly once. A state may have several
validations; what was finished is not repeated in the next generation. Checkpoints do not contain the rounds: a job that
loses all its workers validates again from the beginning. What a validation changes in buffers is undone at its end.

All ranks must make the same validations in the same order. Before each one, and at the end, they compare which it is.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar, cast

import torch

from tidewater.elastic.data.device import onto
from tidewater.elastic.data.loader import split
from tidewater.elastic.errors import ConfigError, GroupBroken
from tidewater.elastic.group.group import await_all
from tidewater.elastic.session.session import Session
from tidewater.elastic.session.worker import Material, Worker
from tidewater.elastic.sharding import reshard
from tidewater.elastic.training import Evaluated

ROUND = 64
"""Samples of each rank in a round. The model processes them as one batch if the training does so with as many."""
_SAY_SECONDS = 10.0
_Result = TypeVar("_Result")


@dataclass(frozen=True)
class Seat:
    """A rank of a generation, or one of its processes that divide a model, and so its part of each round."""

    rank: int
    size: int
    index: int = 0
    """Of this process among those of the rank."""
    shards: int = 1
    """Number of these."""

    @property
    def taken(self) -> int:
        """The number of samples that all ranks take in a round."""
        return ROUND * self.size * self.shards

    def shares(self, start: int, total: int) -> Iterator[range]:
        """Yield its samples for each round from sample ``start`` on; the last ranges may be short or empty."""
        for first in range(start, total, self.taken):
            mine = first + ROUND * (self.rank * self.shards + self.index)
            yield range(min(mine, total), min(mine + ROUND, total))


class Sums:
    """The sums of this rank's batches: call it once for each batch, ``add(loss_sum=…, count=…)``.

    Each value is a number or a tensor of one number, summed over the samples of the batch. Raises ConfigError if it is
    not, or if the names are not those of the other batches.
    """

    def __init__(self, names: Sequence[str] = ()) -> None:
        self.names = tuple(names)
        """Sorted; empty if they are not known yet."""
        self._values: list[dict[str, Any]] = []
        self._batches = 0

    def __call__(self, **sums: Any) -> None:
        """Add what this batch has."""
        names = tuple(sorted(sums))
        if not names or len(self._values) > self._batches:
            what = "a second time for one batch" if names else "without a sum"
            raise ConfigError(f"add() was called {what}: call it once for each batch: add(correct=…, count=len(batch))")
        self.names = self.names or names
        if names != self.names:
            raise ConfigError(
                f"add() has got the sums {', '.join(names)}, and for other batches of this validation "
                f"{', '.join(self.names)}: add the same sums for each batch, 0 where there is nothing to add"
            )
        self._values.append({name: _number(name, value) for name, value in sums.items()})

    def end_batch(self) -> None:
        """Raise ConfigError if nothing was added for the batch."""
        self._batches += 1
        if len(self._values) < self._batches:
            raise ConfigError(
                "the loop over run.validation() has called no add() for its batch (continue, perhaps?): call it once "
                "for each batch: add(correct=…, count=len(batch))"
            )

    def total(self) -> list[float]:
        """Return the sum of each name."""
        return [sum(float(each[name]) for each in self._values) for name in self.names]


def _number(name: str, value: Any) -> Any:
    """Return the value, on its device. Raise ConfigError if it is no number."""
    if isinstance(value, torch.Tensor):
        if value.numel() == 1 and not value.is_complex():
            return value.detach()
        kind = f"a tensor of shape {tuple(value.shape)}"
    else:
        try:
            return float(value)
        except (TypeError, ValueError):
            kind = f"a {type(value).__name__}"
    raise ConfigError(f"add() has got {kind} as {name}: give one number, the sum over the batch")


@dataclass
class _Progress:
    """What all ranks have agreed on in one validation."""

    done: int = 0
    """Samples that are in the sums."""
    sums: dict[str, float] = field(default_factory=dict)


class Evaluation:
    """Validates one state after another. The validations of a state may extend over several generations."""

    def __init__(self, session: Session, material: Material) -> None:
        self._session, self._material = session, material
        self._of = (0, 0)
        """The state that was validated last: the generation that applied its last step, and that step."""
        self._progress: list[_Progress] = []
        """Of each validation of that state."""
        self._count = 0
        """Validations that have begun in this generation."""
        self.is_open = False
        """Whether one has begun, and has not ended."""
        self._score: float | None = None
        self._said = 0.0
        self.interrupted = False
        """Whether all ranks leave this generation, or this worker ends, before the validations are complete."""
        self.seat = Seat(0, 1)

    def is_due(self, *, over: bool, every: int) -> bool:
        """Return whether an evaluation is due: the state is at the end of an epoch or of training, and has not been
        evaluated there yet.

        Args:
            over: Whether training has ended. An evaluation is always due then.
            every: Number of epochs between two evaluations; 0 evaluates only at the end.
        """
        state = self._session.worker.state
        wanted = over or (every > 0 and state.cursor.offset == 0 and state.cursor.epoch % every == 0)
        return wanted and state.step > state.evaluated

    def begin(self, seat: Seat) -> None:
        """Begin the evaluation of the state, or continue it in another generation."""
        state = self._session.worker.state
        if self._of != (state.applied_in, state.step):
            self._of, self._progress = (state.applied_in, state.step), []
            self._said = time.monotonic()
        self.seat, self._count, self._score = seat, 0, None
        self.is_open = self.interrupted = False

    def measure(self) -> None:
        """Compute the training's score, if it has one, over its validation data. Collective. Raise GroupBroken."""
        training = self._material.training
        total = len(cast("Any", training.validation)) if training.score and training.validation is not None else 0
        if not total:
            return
        validation = self.validation(range(total))
        for batch, add in validation:
            with self._material.stepper.enough_memory(validation.size):
                add(score=self._scored(batch))
        if validation.totals is not None:
            self._score = validation.totals["score"] / total

    def _scored(self, batch: Any) -> float:
        score = cast("Any", self._material.training.score)
        return float(score(self._material.training.model, batch))

    def validation(self, samples: range) -> Validation:
        """Return a validation over these samples of the validation data. All ranks must go through it."""
        return Validation(self, self._session, self._material, samples)

    def finish(self, *, compare: bool = False) -> bool:
        """Note the end of the evaluation. Return False if it is interrupted, and is to begin again. Collective.

        With ``compare``, the ranks compare how many validations they have made. Raise GroupBroken; ConfigError if they
        differ, on all of them, or if this one has not gone through all of a validation.
        """
        self.refuse_unfinished()
        if self.interrupted:
            return False
        if compare:
            self._alike(self._count, None)
        self._session.check()  # before the result counts: this process may have been frozen meanwhile
        state, score = self._session.worker.state, self._score
        if score is not None:
            state.scored(score)
            if self._is_first:
                self._session.log.event("evaluated", epoch=state.cursor.epoch, step=state.step, accuracy=score)
        state.evaluated = state.step
        if score is not None:
            report = Evaluated(state.step, state.cursor.epoch, score, self._is_first)
            self._material.training.on_evaluation(report)
        return True

    @property
    def _is_first(self) -> bool:
        return self.seat.rank == self.seat.index == 0

    def refuse_unfinished(self) -> None:
        """Raise ConfigError if the script has not gone through all of a validation."""
        if self.is_open:
            raise ConfigError(
                "the script has left a loop over run.validation() before its end (by break, perhaps): every worker's "
                "batches belong to the totals, so go on with it until it ends"
            )

    @contextmanager
    def one_at_a_time(self) -> Iterator[None]:
        """Give a context for a validation. Raise ConfigError if there is one."""
        if self.is_open:
            raise ConfigError(
                "a loop over run.validation() was begun where another one has not ended: end that first (without break)"
            )
        self.is_open = True
        try:
            yield
        except GroupBroken:
            self.is_open, self.interrupted = False, True
            raise
        self.is_open = False

    @contextmanager
    def next_validation(self, samples: range) -> Iterator[_Progress]:
        """Give a context for a validation of all ranks, with what is agreed of it. Raise like ``finish``."""
        place, self._count = self._count, self._count + 1
        if place == len(self._progress):
            self._progress.append(_Progress())
        mine = self._progress[place]
        with self.one_at_a_time():
            # A rank may lack the sums of the last round, and a newcomer lacks all: they continue where rank 0 is.
            rank_0 = self._alike(place, samples, [mine.done, mine.sums] if mine.done else [])
            self._progress[place] = progress = _Progress(*rank_0)
            yield progress

    def waiting(self, sum_: Callable[[], _Result]) -> _Result:
        """Return a sum over the ranks. If it takes long, the heartbeat looks after the others."""
        self._session.waiting_since = time.monotonic()
        found = self._session.together(sum_)
        self._session.waiting_since = None
        return found

    def gathered(self, row: Any) -> list[Any]:
        """Return what each rank gives, by rank. Collective. Raise GroupBroken."""
        group, data = self._session.worker.group, json.dumps(row).encode()
        return [json.loads(each) for each in self.waiting(lambda: group.gather(data))]

    def refuse_differences(self, acts: Sequence[str], remedy: str) -> None:
        """Raise ConfigError, on all ranks, if what the ranks do differs. Empty: it is not known. Collective."""
        different = sorted(set(acts) - {""}, key=acts.index)
        if len(different) <= 1:
            return
        workers = self.gathered(self._session.config.worker)
        await_all(self._session.worker.group)
        found = ", ".join(f"worker {workers[acts.index(act)]} {act}" for act in different)
        step = self._session.worker.state.step
        raise ConfigError(f"the workers don't validate alike after step {step}: {found}: {remedy}")

    def say(self, done: int, total: int) -> None:
        """Log the progress from time to time."""
        if self._is_first and time.monotonic() - self._said > _SAY_SECONDS:
            self._said = time.monotonic()
            self._session.log.event("evaluating", step=self._session.worker.state.step, samples=done, of=total)

    def _alike(self, place: int, samples: range | None, known: Sequence[Any] = ()) -> Any:
        """Compare what this rank is about to do with the others. Return what rank 0 knows of it."""
        span = None if samples is None else [samples.start, samples.stop]
        rows = self.gathered([place, span, known if self.seat.rank == 0 else []])
        self.refuse_differences(
            [_act(place, span) for place, span, _ in rows],
            "every worker has to make the same validations in the same order, since each has a part of the samples; "
            "only what follows from their totals may be done by one worker alone",
        )
        return rows[0][2]


def _act(place: int, span: list[int] | None) -> str:
    if span is None:
        return f"has ended after {place} validation{'s' * (place != 1)}"
    return f"begins validation {place + 1}, over samples {span[0]} to {span[1] - 1}"


class Validation:
    """One pass over held-out data by all ranks together. Iterate over it, for this rank's batches and ``add``."""

    def __init__(self, evaluation: Evaluation, session: Session, material: Material, samples: range) -> None:
        self._evaluation, self._session, self._material, self._samples = evaluation, session, material, samples
        self.totals: dict[str, float] | None = None
        """The sums over all samples, the same on all ranks. None before the end, and if it was interrupted: then the
        ranks go on with it in the next generation."""
        self.size = 0
        """Samples in the present batch."""

    def __iter__(self) -> Iterator[tuple[Any, Sums]]:
        """Yield this rank's batches, on its device, with the function for its sums. Collective.

        The model is in eval mode in between, and there are no gradients. Raise GroupBroken or ConfigError.
        """
        evaluation = self._evaluation
        if evaluation.interrupted:
            return
        with evaluation.next_validation(self._samples) as progress:
            with passes(self._session.worker, self._material):
                yield from self._rounds(progress)
            if not evaluation.interrupted:
                self._session.check()  # this process may have been frozen in the last round
                self.totals = dict(progress.sums)

    def _rounds(self, progress: _Progress) -> Iterator[tuple[Any, Sums]]:
        """Add the remaining rounds to the sums."""
        evaluation, worker, total = self._evaluation, self._session.worker, len(self._samples)
        # Of the processes that divide a model, all make as many passes as the first one, which has the most samples.
        most = map(len, self._parts(progress, replace(evaluation.seat, index=0)))
        parts = self._parts(progress, evaluation.seat)
        passes = [each + [self._samples[:1]] * (count - len(each)) for each, count in zip(parts, most, strict=True)]
        batches = self._material.loader.validation(part for round_ in passes for part in round_)
        for count, parts_of_round in zip(map(len, parts), passes, strict=True):
            if self._session.is_overdue():
                evaluation.interrupted = True
                return
            began, sums, unused = time.monotonic(), Sums(tuple(progress.sums)), Sums(tuple(progress.sums))
            for place, part in enumerate(parts_of_round):
                self.size, used = len(part), sums if place < count else unused
                yield onto(next(batches), worker.group.device), used
                used.end_batch()
            sums.names = sums.names or unused.names
            everyone_knows = self._agree(progress, sums)
            worker.metrics.evaluated(time.monotonic() - began)
            evaluation.say(progress.done, total)
            if everyone_knows and progress.done < total:
                evaluation.interrupted = True
                return

    def _parts(self, progress: _Progress, seat: Seat) -> list[list[range]]:
        """Return the samples of each pass in each round that is left."""
        shares = seat.shares(progress.done, len(self._samples))
        most = self._session.worker.state.micro_batch
        return [split(share, most) if (share := self._samples[each.start : each.stop]) else [] for each in shares]

    def _agree(self, progress: _Progress, sums: Sums) -> bool:
        """Add the sums of a round of all ranks. Return whether all know of the next generation."""
        evaluation, group = self._evaluation, self._session.worker.group
        if not progress.sums:
            progress.sums = dict.fromkeys(self._names(sums), 0.0)
        mine = sums.total() or [0.0] * len(progress.sums)  # a rank without samples in this round knows no names
        knows = float(self._session.knows())
        *totals, knowing = self._session.over_processes(evaluation.waiting(lambda: group.tally([*mine, knows])))
        for name, total in zip(progress.sums, totals, strict=True):
            progress.sums[name] += total
        progress.done = min(progress.done + evaluation.seat.taken, len(self._samples))
        return round(knowing) == evaluation.seat.size

    def _names(self, sums: Sums) -> Sequence[str]:
        """Return the names of all ranks. Collective. Raise ConfigError, on all ranks, if they differ."""
        rows = self._evaluation.gathered(sums.names)
        acts = [f"adds the sums {', '.join(row)}" if row else "" for row in rows]
        self._evaluation.refuse_differences(acts, "every worker has to add the same sums")
        names: Sequence[str] = next(row for row in rows if row)
        if names != (first := self._session.decided(names)):
            raise ConfigError(
                f"the processes of this worker add other sums: this one {', '.join(names)}, and the first one "
                f"{', '.join(first)}: every process has to add the same sums"
            )
        return names


@contextmanager
def passes(worker: Worker, material: Material) -> Iterator[None]:
    """Give a context for passes that validate; afterwards the model is as before."""
    with ExitStack() as stack:
        stack.enter_context(worker.state.evaluating())
        stack.enter_context(material.stepper.evaluating())
        stack.callback(reshard, material.training.model)
        stack.enter_context(torch.no_grad())
        stack.enter_context(material.stepper.precision())
        yield
