"""The epochs of a loop of the script's own, and the validation at their ends.

    for epoch in run.epochs():
        for inputs, labels in run.batches():                    # of this epoch
            run.step(criterion(model(inputs), labels))
        validation = run.validation(val)
        for (inputs, labels), add in validation:                # this worker's batches
            add(correct=(model(inputs).argmax(1) == labels).sum(), count=len(labels))
        if validation.totals:                                   # of all workers; None: it was interrupted
            print(epoch, validation.totals["correct"] / validation.totals["count"])

If the membership changes during a validation, it ends without totals, and the epoch comes once more, without batches:
then the validation goes on where it was (see ``session.evaluation``). A worker that joins there takes part. One that
was frozen or cut off, and comes back in a later epoch, gets a turn for that one: the present turn ends without totals.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.utils.data import ConcatDataset

from tidewater.elastic.data.loader import Prepared
from tidewater.elastic.errors import ConfigError
from tidewater.elastic.session.evaluation import Evaluation, Sums, passes
from tidewater.elastic.session.loop import Loop, Pause
from tidewater.elastic.session.state import State
from tidewater.elastic.session.warmup import trials
from tidewater.elastic.session.worker import Material, Worker

Event = Prepared | Pause
OUT_OF_MEMORY = (
    "tidewater: a batch of the validation doesn't fit in this worker's memory: give --micro-batch, which is also the "
    "most samples of these batches"
)


class Epochs:
    """Divides what a loop yields into epochs."""

    def __init__(self, state: State, evaluation: Evaluation, leaves: Callable[[], bool]) -> None:
        """``leaves`` returns whether this worker leaves: then the script may end its loops."""
        self._state, self._evaluation, self._leaves = state, evaluation, leaves
        self.at_end = False
        """Whether the script has got all batches of the epoch."""
        self._complete = False
        """Whether the epoch has ended: not where training has, or where this worker has left within it."""
        self._rest: Iterator[Event]
        self._ahead: Event | None = None
        """What belongs to the next turn: it has come in this one, in which this worker has missed the rest."""

    def begin(self, events: Iterator[Event]) -> Iterator[int]:
        """Yield the number of each epoch, from what the loop yields. Raise ConfigError if the script has not got all
        batches of the last one."""
        while (event := self._ahead or next(events, None)) is not None:
            self.at_end, self._complete, self._ahead = False, False, None
            epoch = self._epoch_of(event)
            self._rest = self._up_to_the_end(epoch, itertools.chain([event], events))
            yield epoch
            if self.has_left:
                return
            if not self.at_end:
                raise ConfigError(
                    "the script has begun the next turn of run.epochs() before its loop over run.batches() had ended "
                    "(by break, or without one): go on with it until it ends, or call run.stop(reason) to end training"
                )

    @property
    def has_left(self) -> bool:
        """Whether this worker leaves, and the script has ended a loop over batches or a validation itself."""
        return self._leaves() and (not self.at_end or self._evaluation.is_open)

    def to_validate(self, samples: range) -> range:
        """Return these samples, or none where training has ended or this worker has left. Raise ConfigError if the
        epoch has not ended."""
        if not self.at_end and not self.has_left:
            raise ConfigError(
                "run.validation() was called where no epoch has ended: call it in for epoch in run.epochs(), after the "
                "loop over run.batches()"
            )
        return samples if self._complete and not self.has_left else range(0)

    def events(self) -> Iterator[Event]:
        """Return what the loop yields up to the end of the epoch."""
        if self.at_end:
            raise ConfigError(
                "run.batches() was called a second time in one turn of run.epochs(): it has yielded all batches of the "
                "epoch; for a pass over held-out data use run.validation(dataset)"
            )
        return self._rest

    def _epoch_of(self, event: Event) -> int:
        cursor = self._state.cursor
        return cursor.epoch - (event is Pause.EPOCH_END and cursor.offset == 0 < cursor.epoch)

    def _up_to_the_end(self, epoch: int, events: Iterator[Event]) -> Iterator[Event]:
        for event in events:
            if self._epoch_of(event) != epoch:  # the others have ended this epoch without this worker
                self._ahead = event
                break
            if event is Pause.EPOCH_END:
                self._complete = True
                break
            yield event
        self.at_end = True


class Validation:
    """A validation in the script. Iterate over it once, for this worker's batches and the function ``add``.

    ``add`` is to be called once for each batch with the sums over its samples, by names of the script's choice:
    ``add(loss_sum=…, count=…)``, each a number or a tensor of one number. In the loop the model is in eval mode, and
    there are no gradients. Afterwards every module has its own mode again.
    """

    def __init__(self, loop: Loop, worker: Worker, material: Material, samples: range, *, most: int) -> None:
        """``samples`` is empty where this worker has left, or training has ended: then there are no batches.

        ``most``: samples in a step of one worker. In the rehearsal no batch is larger than those of training may be.
        """
        self._loop, self._worker, self._material, self._samples = loop, worker, material, samples
        self._most = most
        self.totals: dict[str, float] | None = None
        """The sums over all samples, each counted once, the same in all workers. None before the end, in the rehearsal,
        and if the validation was interrupted: then it goes on in the next turn of ``run.epochs()``."""

    def __iter__(self) -> Iterator[tuple[Any, Sums]]:
        """Yield each batch, on this worker's device, and ``add``. Raise ConfigError if the workers don't do the same,
        or if ``add`` is not called once for each batch with the same names."""
        if not self._samples:
            return
        with AutocastKept(self._worker.group.device.type), self._loop.keeping_failures:
            if self._loop.rehearses:
                yield from self._rehearsed()
            else:
                validation = self._loop.evaluation.validation(self._samples)
                yield from validation
                self.totals = validation.totals

    def _rehearsed(self) -> Iterator[tuple[Any, Sums]]:
        """Yield a few samples. Nothing is kept of them."""
        sums = Sums()
        with self._loop.evaluation.one_at_a_time(), passes(self._worker, self._material):
            for _, batch in trials(self._worker, self._material, self._samples, most=self._most):
                yield batch, sums
                sums.end_batch()


def samples_of(dataset: object, validation: Any, count: int) -> range:
    """Return which samples of the session's validation data are those of ``dataset``: all, or a part of a
    ConcatDataset. Raise ConfigError if there are none.

    ``count`` is the number of samples in use: fewer, evenly spread, where ``tidewater rehearse`` runs the script.
    """
    parts: list[Any] = [validation]
    ends: list[int] = []
    if isinstance(validation, ConcatDataset) and dataset is not validation:
        parts, ends = validation.datasets, validation.cumulative_sizes
    place = next((place for place, part in enumerate(parts) if part is dataset), None)
    if dataset is None or place is None:
        raise ConfigError(
            f"run.validation() has got a dataset, {type(dataset).__name__}, that tidewater.session() has not: give it "
            "to both, tidewater.session(…, validation=val) and run.validation(val), since the processes that read data "
            "begin with the session; of several, give validation=torch.utils.data.ConcatDataset([val, test])"
        )
    found = range(ends[place - 1] if ends and place else 0, ends[place] if ends else len(parts[place]))
    if not found:
        raise ConfigError(
            f"the dataset of run.validation(), {type(dataset).__name__}, is empty: look at the path that it reads, and "
            "at what it selects"
        )
    first, end = (-(-each * count // len(validation)) for each in (found.start, found.stop))
    first = min(first, count - 1)
    return range(first, max(end, first + 1))


class AutocastKept:
    """A context that puts autocast back at its end. A script's own autocast around ``run.step`` ends after the
    runtime's, which it would turn on again for all that follows."""

    def __init__(self, kind: str) -> None:
        self._kind = kind

    def __enter__(self) -> None:
        self._enabled, self._dtype = torch.is_autocast_enabled(self._kind), torch.get_autocast_dtype(self._kind)

    def __exit__(self, *_: object) -> None:
        torch.set_autocast_enabled(self._kind, self._enabled)
        torch.set_autocast_dtype(self._kind, self._dtype)
