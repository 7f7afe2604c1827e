"""The steps of a dataset that can only be read from a place on: an IterableDataset.

    loader = open_loader(training, LoaderSettings(seed=0), device)      # a StreamLoader if the dataset is a stream

A stream has no index, so a worker can't read only its samples. Every rank reads the whole stream, in the same order,
and keeps its share of each step. The stream must be able to continue where another process was: its ``state_dict()``
after n samples, given to ``load_state_dict()``, makes ``iter(dataset)`` begin with the next one. torchdata's
StatefulDataLoader expects the same of a dataset:
https://github.com/pytorch/data/blob/main/torchdata/stateful_dataloader/README.md

The state after the last sample of a step is part of the cursor after the step, and so of the training state: newcomers
and checkpoints have it. Where the stream is really, because the next step was read ahead, is not.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, cast

import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, default_collate

from tidewater.elastic.data.device import same
from tidewater.elastic.data.loader import Loader, LoaderSettings, Micro, Prepared, requests_of
from tidewater.elastic.data.reading import DATASET, Readings
from tidewater.elastic.data.sample_errors import raise_named
from tidewater.elastic.data.sampler import Cursor, Step
from tidewater.elastic.data.seeds import generators_kept, seed_generators
from tidewater.elastic.data.source import Collate
from tidewater.elastic.errors import ConfigError
from tidewater.elastic.training import Training
from tidewater.elastic.tree import split

_END = object()
_FAR, _FAR_STEP = 2048, 64
"""Number of a sample that is probably beyond what a stream shuffles in a buffer, which is often of 1000."""
_FAR_SECONDS = 3.0


def is_stream(dataset: object) -> bool:
    """Return whether one iterates over the dataset, instead of asking for samples by their index.

    torchdata's StatefulDataLoader, which is a DataLoader, has the samples of a stream, and its state.
    """
    return isinstance(dataset, IterableDataset | DataLoader)


def length(dataset: Any) -> int | None:
    """Return the number of samples; None if it is not known."""
    try:
        return len(dataset)
    except TypeError:  # it has no length, or what it wraps has none
        return None


def open_loader(training: Training, settings: LoaderSettings, device: torch.device) -> Loader:
    """Return the loader for the training's kind of dataset. Raise ConfigError if a stream can't continue in it."""
    kind = StreamLoader if is_stream(training.dataset) else Loader
    return kind(training.dataset, settings, collate=training.collate, device=device, validation=training.validation)


class Stream:
    """Reads steps of a stream from any cursor on.

    Each pass begins with the state that the stream has now, and with ``set_epoch(epoch)`` if it has this method. The
    generators are seeded by seed, epoch and number of the sample before each sample is read.
    """

    def __init__(self, dataset: Any, seed: int, readings: Readings) -> None:
        self._dataset, self._seed, self._readings = dataset, seed, readings
        self._name = type(dataset).__name__
        self._first = self._state()
        self._samples: Iterator[Any] = iter(())
        self._ahead: list[Any] = []
        self._at: Cursor | None = None
        """The place of the next sample, ``_ahead`` included; None: unknown."""

    def take(self, cursor: Cursor, most: int, *, rank: int = 0, size: int = 1) -> tuple[Step, dict[int, Any]]:
        """Return the step of at most ``most`` samples at ``cursor``, and the samples of this rank by their numbers.

        The samples of a step are numbered from the beginning of the pass. The step's first sample is always returned.
        Raise ConfigError if there is no sample at ``cursor``.
        """
        if cursor is not self._at:
            self._seek(cursor)
        self._at = None  # until all has gone well
        items: dict[int, Any] = {}
        end = cursor.offset
        while end < cursor.offset + most:
            item = self._read(cursor.epoch, end)
            if item is _END:
                break
            index = end - cursor.offset
            if index == 0 or index % size == rank:
                items[end] = item
            end += 1
        if end == cursor.offset:
            raise ConfigError(
                f"the training's dataset, {self._name}, has no sample {end} in pass {cursor.epoch}, where training "
                "continues (both count from 0): the stream must be the same in all workers and after a restart, and "
                "its first state must begin each pass"
            )
        after = Cursor(cursor.epoch, end, self._state())
        if end < cursor.offset + most or self._is_over(after):
            after = Cursor(cursor.epoch + 1, 0)
        return Step(tuple(range(cursor.offset, end)), after), items

    def refuse_if_it_cannot_continue(self) -> None:
        """Raise ConfigError if the stream's state can't be stored, or doesn't lead to the samples that follow.

        That is tried after the first sample and farther on: once from there, and once more from the sample after it.
        """
        step, _ = self.take(Cursor(), 1)
        split({"dataset": step.after.stream}, lambda _, tensor: tensor)
        if step.after.epoch:
            return
        read_on = [(step.after, self.take(step.after, 2)[1])]
        farther = list(self._farther())
        read_on += [farther[index] for index in sorted({0, len(farther) // 2, len(farther) - 1}) if farther]
        for place, items in read_on:
            self._compare(place, items)

    def _farther(self) -> Iterator[tuple[Cursor, dict[int, Any]]]:
        """Yield places farther on, each with the samples that are read there if one reads on.

        A stream with a buffer may continue as long as the first content of the buffer lasts.
        """
        until = time.monotonic() + _FAR_SECONDS
        place = Cursor()
        while not place.epoch and place.offset <= _FAR and time.monotonic() < until:
            try:
                step, items = self.take(place, _FAR_STEP, rank=1, size=_FAR_STEP)
            except Exception:  # training meets it at its step
                return
            if place.offset:
                yield place, items
            place = step.after

    def _compare(self, place: Cursor, read_on: dict[int, Any]) -> None:
        """Raise ConfigError if one of the samples at that place is not what was read there before."""
        for number, sample in sorted(read_on.items()):
            step, sought = self.take(replace(place), 1)
            if not same(sample, sought.get(number)):
                raise ConfigError(
                    f"the training's dataset, {self._name}, doesn't continue where its state_dict() says: after "
                    f"load_state_dict(), iter() must begin with the sample that follows, here number {number}: "
                    f"{self._remedy()}"
                )
            place = step.after

    def _remedy(self) -> str:
        if isinstance(self._dataset, DataLoader) and not hasattr(self._dataset.dataset, "state_dict"):
            return (
                f"give {type(self._dataset.dataset).__name__} state_dict() and load_state_dict(); torchdata's loader "
                "only counts its samples, and counts them twice after a resume"
            )
        return (
            "count a sample before it is yielded, don't begin anew in __iter__ or set_epoch, and don't keep samples in "
            "a buffer that is no part of the state; shuffle the files, or use a dataset with an index"
        )

    def _is_over(self, after: Cursor) -> bool:
        """Return whether the pass has no more samples; read one of the next step to find out."""
        try:
            item = self._read(after.epoch, after.offset)
        except Exception:  # it belongs to the next step, which reads the sample again
            return False
        if item is _END:
            return True
        self._ahead, self._at = [item], after
        return False

    def _read(self, epoch: int, number: int) -> Any:
        if self._ahead:
            return self._ahead.pop()
        seed_generators(self._seed, epoch, number)
        with self._readings.of(number, DATASET):
            return next(self._samples, _END)

    def _seek(self, cursor: Cursor) -> None:
        self._samples, self._ahead = iter(()), []  # before all else: a generator that is closed may change the dataset
        with self._readings.of(cursor.offset, DATASET):
            self._dataset.load_state_dict(copy.deepcopy(self._first if cursor.stream is None else cursor.stream))
        ordered = self._dataset.dataset if isinstance(self._dataset, DataLoader) else self._dataset
        if hasattr(ordered, "set_epoch"):
            ordered.set_epoch(cursor.epoch)
        seed_generators(self._seed, cursor.epoch, cursor.offset)
        self._samples = iter(self._dataset)

    def _state(self) -> Any:
        return copy.deepcopy(self._dataset.state_dict())  # it may be what the dataset goes on to change


class StreamLoader(Loader):
    """The batches of one rank, from a stream that this process reads.

    Raises ConfigError if the stream can't continue where it was (see ``Stream``); otherwise used like a Loader. What
    ``collate`` draws depends only on the samples of its batch.
    """

    def __init__(
        self,
        dataset: Dataset[Any],
        settings: LoaderSettings,
        *,
        collate: Collate | None,
        device: torch.device,
        validation: Dataset[Any] | None = None,
    ) -> None:
        nothing_by_index = cast("Dataset[Any]", ())
        super().__init__(nothing_by_index, settings, collate=collate, device=device, validation=validation)
        self._collate = collate or default_collate
        with generators_kept():  # a DataLoader draws when it is asked for its state
            self._stream = Stream(dataset, settings.seed, self.readings)
            self._stream.refuse_if_it_cannot_continue()

    def batch(self, samples: Sequence[int], epoch: int, *, validation: bool = False) -> Any:
        """Return a batch of these samples of the pass, counted from 0 again where it ends."""
        if validation:
            return super().batch(samples, epoch, validation=True)
        with generators_kept():
            step, items = self._stream.take(Cursor(epoch), max(samples) + 1)
            found = [items[number] for number in step.samples]
            return self._collate([found[index % len(found)] for index in samples])

    def _draw(self) -> Prepared | Exception | None:
        if self._cursor.epoch >= self._place.epochs:
            return None
        try:
            with generators_kept():
                return self._read(self._cursor)
        except BaseException as error:
            self._place = replace(self._place, epochs=0)  # continuing would skip the samples of this step
            if isinstance(error, Exception):
                return error
            raise

    def _read(self, cursor: Cursor) -> Prepared:
        place, micro = self._place, []
        step, items = self._stream.take(cursor, place.batch_size, rank=place.rank, size=place.size)
        for request in requests_of(step, cursor.epoch, place, tag=0):
            # A negative number is that of no sample.
            seed_generators(self._settings.seed, cursor.epoch, -1 - request.samples[-1])
            try:
                with self.readings.of(request.samples[0], DATASET):
                    batch = self._collate([items[number] for number in request.samples])
            except Exception as error:
                raise_named(error, request.samples)
            micro.append(Micro(batch, request.weight, len(request.samples)))
        return Prepared(step, tuple(micro))
