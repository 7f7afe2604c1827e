"""Prepares the batch of a request, in the training process or in one that prepares data.

source = Source((dataset, validation), seed, collate, current, readings)
batch = source.prepare(request, states())
refuse_unless_passed_on(batch, processes=4)
"""

from __future__ import annotations

import os
import pickle
import signal
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from multiprocessing.reduction import ForkingPickler
from typing import Any

import torch
from torch.utils.data import Dataset

from tidewater.elastic.data.descriptors import separate_files
from tidewater.elastic.data.reading import DATASET, HELD_OUT, NAMES, Readings
from tidewater.elastic.data.sample_errors import is_of_the_sample, raise_named
from tidewater.elastic.data.seeds import Generator, States, seed_generators, seedable_numpy_generator, states
from tidewater.elastic.errors import BadSamples, ConfigError, DataStuck, TrainerError
from tidewater.elastic.launch.lifeline import bound_to

Collate = Callable[[list[Any]], Any]

HELD = (signal.SIGTERM, signal.SIGINT)
"""A process that prepares data handles them itself."""
CLOSED = 2**64 - 1
"""The number of the current sequence when the loader is closed."""


@dataclass(frozen=True)
class Request:
    """One batch to prepare. ``tag`` counts the calls of ``start``; 0 means nothing to do."""

    tag: int
    epoch: int
    samples: tuple[int, ...]
    weight: float
    validation: bool = False
    """Whether the samples are from the validation data."""


IDLE = Request(tag=0, epoch=0, samples=(), weight=0.0)
Answer = tuple[Request, Any, TrainerError | None]


class Source(Dataset[Answer]):
    """The dataset of the worker processes: it returns the batch for a request.

    Seeding a generator takes as long as loading a small sample. So only generators that the dataset or its collate
    function uses are seeded: when a batch has used one for the first time, the batch is prepared again.

    A dataset with ``__getitems__(indices)`` is asked for all samples of a batch in one call, as by a DataLoader:
    https://github.com/pytorch/pytorch/blob/main/torch/utils/data/_utils/fetch.py. If that fails or draws random
    numbers, the samples are read one by one, each from its own seed.
    """

    def __init__(
        self,
        datasets: tuple[Dataset[Any], Dataset[Any] | None],
        seed: int,
        collate: Collate,
        current: memoryview,
        readings: Readings,
        *,
        skips: bool,
    ) -> None:
        self._datasets, self._seed, self._collate, self._current = datasets, seed, collate, current
        self._readings, self._skips = readings, skips
        self._used: list[Generator] = []
        self._one_by_one = [not _reads_many(each) for each in datasets]
        """For the dataset and the validation data."""

    def __getitem__(self, request: Request) -> Answer:
        if not request.samples:
            return request, None, None
        try:
            return request, self.prepare(request, states()), None
        except (ConfigError, DataStuck, BadSamples) as error:  # torch would hide its sentence in a traceback
            return request, None, error

    def prepare(self, request: Request, before: States) -> Any:
        """Return the batch, or None when it is no longer wanted.

        ``before`` has the states of the generators. It is empty afterwards if all of them still have these.

        Raise BadSamples, when all of them have been tried, if samples are left out that can't be read.
        """
        kind = HELD_OUT if request.validation else DATASET
        while True:
            unused = [(generator, state) for generator, state in before if generator not in self._used]
            with self._readings.of(request.samples[0], kind):
                items = self._items(request, kind)
                if items is None:
                    return None
                self._readings.of(request.samples[0], kind)
                try:
                    batch = self._collate(items)
                except Exception as error:
                    raise_named(error, request.samples, NAMES[kind])
            moved = [generator for generator, state in unused if generator.state() != state]
            if not moved:
                if not self._used:
                    before.clear()
                return batch
            self._used += moved

    def _items(self, request: Request, kind: int) -> list[Any] | None:
        """Return the samples. Raise like ``prepare``."""
        current, reads, items, bad = self._current, self._readings.sample, list[Any](), dict[int, str]()
        if not self._one_by_one[request.validation] and current[0] == request.tag:
            together = self._together(request, kind)
            if together is not None:
                return together
            self._readings.of(request.samples[0], kind)  # its own time begins when it is read alone
        dataset: Any = self._datasets[request.validation]
        for sample in request.samples:
            if current[0] != request.tag:
                return None
            if self._used:
                seed_generators(self._seed, request.epoch, sample, self._used)
            reads[0] = sample
            try:
                items.append(dataset[sample])
            except Exception as error:
                if not self._skips or request.validation or not is_of_the_sample(error):
                    raise_named(error, (sample,), NAMES[kind])
                bad[sample] = f"{type(error).__name__}: {error}"
        if bad:
            raise BadSamples(bad)
        return items

    def _together(self, request: Request, kind: int) -> list[Any] | None:
        """Return the samples, read in one call; None if they must be read one by one."""
        dataset: Any = self._datasets[request.validation]
        if self._used:  # what collate draws depends on the last sample
            seed_generators(self._seed, request.epoch, request.samples[-1], self._used)
        before = states()
        self._readings.of(request.samples[0], kind)
        try:
            found = dataset.__getitems__(list(request.samples))
            items = list(found)
        except Exception as error:
            if is_of_the_sample(error):
                return None  # the sample at fault is named then
            raise_named(error, request.samples, NAMES[kind])
        if isinstance(found, Mapping | tuple):  # columns, as many of them as samples perhaps
            raise ConfigError(
                f"__getitems__ of the {NAMES[kind]}, {type(dataset).__name__}, has returned a {type(found).__name__}: "
                "return a list of the samples, one for each index in their order, or leave the method out"
            )
        if len(items) != len(request.samples):
            raise ConfigError(
                f"__getitems__ of the {NAMES[kind]}, {type(dataset).__name__}, has returned {len(items)} samples for "
                f"{len(request.samples)} indices: return one for each, in their order, or leave the method out"
            )
        if any(generator.state() != state for generator, state in before):
            self._one_by_one[request.validation] = True
            return None
        return items


def _reads_many(dataset: object) -> bool:
    """Return whether the dataset's class has ``__getitems__``, and no subclass changes ``__getitem__`` alone."""
    for each in type(dataset).__mro__:
        if "__getitems__" in vars(each) or "__getitem__" in vars(each):
            return "__getitems__" in vars(each)
    return False


def settle(parent: int, current: memoryview, readings: Readings, worker: int) -> None:
    """Prepare a worker process: it ends with the training process and keeps none of its connections open."""
    bound_to(parent)()

    def end_if_closed(*_: object) -> None:
        if current[0] == CLOSED:
            os._exit(0)

    # SIGTERM may go to the whole process group or container. The worker then leaves at a step boundary and needs data
    # until then.
    signal.signal(signal.SIGTERM, end_if_closed)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, HELD)
    readings.settle(1 + worker)
    readings.handle()
    seedable_numpy_generator()
    separate_files()


def refuse_unless_passed_on(batch: Any, processes: int) -> None:
    """Raise ConfigError if a batch can be read only once, or can't be sent to the training process by one of these.

    torch's thread that sends would only print the error, and the batch would never arrive.
    """
    if isinstance(batch, Iterator):
        raise ConfigError(
            f"the training's collate returns a {type(batch).__name__}, which can be read only once: let collate return "
            "a list"
        )
    if not processes:
        return
    try:
        _Trial(_Nothing(), pickle.HIGHEST_PROTOCOL).dump(batch)
    except Exception as error:
        raise ConfigError(
            f"a batch of the training's collate can't be passed on by a process that prepares it ({error}): define its "
            "classes outside of functions, leave out what can't be pickled, detach tensors, or use --data-workers 0"
        ) from error


class _Trial(ForkingPickler):
    """Pickles as for another process, but without the content of tensors, which would need open files."""

    def reducer_override(self, value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return NotImplemented
        if value.requires_grad and not value.is_leaf:
            raise pickle.PicklingError("a tensor that requires its gradient is a result of others")
        return int, ()


class _Nothing:
    """A file that keeps nothing."""

    def write(self, data: Any) -> int:
        return len(data)
