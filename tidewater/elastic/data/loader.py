"""The batches of a rank, in the order of the job's plan, prepared in advance by torch's DataLoader.

    loader = Loader(dataset, LoaderSettings(seed=0, workers=4), collate=None, device=device)
    loader.start(Place(cursor, rank=1, size=3, batch_size=256, epochs=90))
    prepared = loader.next()                # this rank's part of the step at the cursor
    loader.prefetch()                       # prepare the next one, while this process would only wait
    loader.start(Place(cursor, rank=0, size=2, batch_size=256, epochs=90))   # a worker was lost: start again from there
    for batch in loader.validation([(0, 1, 2), (6, 7, 8)]): ...              # between two steps
    loader.close()

A DataLoader has one sequence of batches per epoch. Here the sequence changes with the membership, while batches of the
old sequence are still being prepared. So its sampler is an endless stream of requests that can be switched, and every
answer includes its request. An answer to any other request than the next one is dropped. So only the plan decides which
samples a rank trains on (see ``sampler``), not what was being prepared at the time of a change.

The worker processes live as long as the loader. They abandon a request of an old sequence at the next sample. Create a
Loader in the main thread, before sockets and other threads, because its worker processes are forked there.
"""

from __future__ import annotations

import atexit
import errno
import functools
import itertools
import mmap
import multiprocessing
import os
import resource
import signal
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar, cast

import torch
from torch.utils.data import DataLoader, Dataset, default_collate

from tidewater.elastic.data.device import copied, leaves, same
from tidewater.elastic.data.reading import PROCESSES, Readings
from tidewater.elastic.data.sampler import Cursor, Step, plan
from tidewater.elastic.data.seeds import generators_kept
from tidewater.elastic.data.source import (
    CLOSED,
    HELD,
    IDLE,
    Answer,
    Collate,
    Request,
    Source,
    refuse_unless_passed_on,
    settle,
)
from tidewater.elastic.errors import BadSamples, ConfigError, TrainerError

Samples = TypeVar("Samples", tuple[int, ...], range)

_CLOSE_SECONDS = 2.0
_MOST_FILES = 1 << 16
"""More than torch needs to pass on batches, and few enough for programs that close all that there may be."""
_MANY_FILES = os.strerror(errno.EMFILE)


@dataclass(frozen=True)
class LoaderSettings:
    """How batches are prepared."""

    seed: int
    workers: int = 0
    """Number of processes that prepare batches; 0: the training process does it."""
    prefetch: int = 2
    """Number of batches that each of them prepares in advance."""
    max_bad_samples: int = 0
    """Number of samples of the dataset that may be left out since they can't be read: for each ``next`` and ``batch``
    raise BadSamples. 0: none, and the dataset's own error is raised."""


@dataclass(frozen=True)
class Place:
    """The position of a rank in training, which determines its next batches."""

    cursor: Cursor
    rank: int
    size: int
    batch_size: int
    epochs: int
    micro_batch: int = 0
    """Maximum number of samples in one forward pass; 0: a rank's whole part of a step."""
    inner: int = 0
    """Number of samples in an inner step: see ``Step``."""
    shards: int = 1
    """Number of ranks, one after another, that divide a model: they must make the same number of passes."""


@dataclass(frozen=True)
class Micro:
    """The batch of one forward pass."""

    batch: Any
    weight: float
    """Its number of samples divided by that of the step. The mean loss over the batch is multiplied by it."""
    size: int
    """Number of samples in the batch: one also if the weight is 0."""


@dataclass(frozen=True)
class Prepared:
    """One step, and this rank's part of it. ``onto`` puts a batch on the rank's device when its turn comes, so that
    the device never holds all of them."""

    step: Step
    micro: tuple[Micro, ...]


class Loader:
    """The batches of one rank. Only one thread may use it.

    ``next`` and ``batch`` raise ConfigError if the dataset does (other errors of the dataset are raised with the
    traceback of the process in which they occurred), and TrainerError if a worker process dies. After an error ``next``
    returns nothing until ``start``.
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
        self._settings, self._device = settings, device
        self._total = len(cast("Sequence[Any]", dataset))
        self._tag = 0
        self._current = memoryview(mmap.mmap(-1, 8)).cast("Q")  # anonymous, so shared with the worker processes
        self.readings = Readings(settings.workers)
        self._source = Source(
            (dataset, validation),
            settings.seed,
            collate or default_collate,
            self._current,
            self.readings,
            skips=settings.max_bad_samples > 0,
        )
        self._place = Place(Cursor(), rank=0, size=1, batch_size=1, epochs=0)
        self._cursor = Cursor()
        """The place in the data of the step that is next."""
        self._steps: Iterator[tuple[Step, tuple[Request, ...]]] = iter(())
        self._drawn: Prepared | Exception | None = None
        """The next step if it was prepared in advance, or the error."""
        self._requests = _Requests()
        self._answers: Iterator[Answer] | None = None
        self._processes: list[Any] = []
        if settings.workers > 0:
            before = set(multiprocessing.active_children())
            self._answers = self._open(settings)
            self._processes = [child for child in multiprocessing.active_children() if child not in before]
        # Otherwise multiprocessing waits at exit for children that ignore its SIGTERM.
        atexit.register(self.close)

    @property
    def processes(self) -> tuple[int, ...]:
        """Return the process ids of the worker processes."""
        return tuple(process.pid for process in self._processes)

    def start(self, place: Place) -> None:
        """Provide the batches from ``place`` on, and drop those prepared before. Return at once."""
        self._place, self._cursor = place, place.cursor
        self._begin(())

    def next(self) -> Prepared:
        """Wait for this rank's part of the next step and return it. Raise RuntimeError after the last epoch."""
        drawn, self._drawn = self._drawn or self._draw(), None
        if drawn is None:
            raise RuntimeError("there is no step to prepare: training has ended, failed or not been started")
        if isinstance(drawn, Exception):
            raise drawn
        self._cursor = drawn.step.after
        return drawn

    def prefetch(self) -> None:
        """Prepare the next step now, unless worker processes do that. ``next`` raises any error."""
        if self._answers is None and self._drawn is None:
            self._drawn = self._draw()

    def batch(self, samples: Sequence[int], epoch: int, *, validation: bool = False) -> Any:
        """Return a batch that this process prepares."""
        return self._prepare_here(Request(self._current[0], epoch, tuple(samples), 1.0, validation))

    def first_readable(self, count: int) -> Any:
        """Return a batch of the first samples, for a warm-up. Later samples replace those that are left out.

        Raise ConfigError if more are to be left out than may be, no sample is left, or training could not use such a
        batch.
        """
        samples, bad, most = list(range(count)), set[int](), self._settings.max_bad_samples
        while True:
            try:
                return self._tried(samples)
            except BadSamples as error:
                bad |= error.errors.keys()
                samples = list(itertools.islice((each for each in range(self._total) if each not in bad), count))
                if len(bad) > most or not samples:
                    raise ConfigError(
                        f"{len(bad)} of {self._total} samples can't be read, and --max-bad-samples is {most}: {error}"
                    ) from error

    def _tried(self, samples: Sequence[int]) -> Any:
        """Return a batch of these samples. Raise ConfigError if training could not use such batches."""
        batch = self.batch(samples, 0)
        refuse_unless_passed_on(batch, self._settings.workers)
        before = copied(batch)
        self.batch(samples[:-3:-1], 0)
        if not same(before, [*leaves(batch)]):
            raise ConfigError(
                "the training's collate changes a batch that it has returned when it makes the next one, and several "
                "are prepared ahead: return new memory each time"
            )
        return batch

    def validation(self, parts: Iterable[Sequence[int]]) -> Iterator[Any]:
        """Yield these samples of the validation data, each part as a batch.

        Training batches that were prepared in advance are dropped, and prepared again after these.
        """
        requests = [Request(self._tag + 1, 0, tuple(part), 1.0, validation=True) for part in parts]
        self._begin(requests)
        for request in requests:
            yield self._batch(request)

    def close(self) -> None:
        """End the worker processes. Safe to call twice."""
        atexit.unregister(self.close)
        self._steps = iter(())
        self._current[0] = CLOSED
        for process, reading in zip(self._processes, self.readings.now()[1:], strict=False):
            if reading.busy:  # perhaps in a file system that hangs: torch would wait for each of them
                process.kill()
        self._answers = None
        for process in self._processes:
            process.kill()
            process.join(_CLOSE_SECONDS)
        self._processes = []

    def _begin(self, first: Sequence[Request]) -> None:
        """Switch to another sequence: these requests, then the steps from the place on."""
        self._tag += 1
        self._current[0] = self._tag
        self._steps, self._drawn = self._planned(self._place, self._cursor, self._tag), None
        again = self._planned(self._place, self._cursor, self._tag)
        planned = (request for _, requests in again for request in requests)
        self._requests.follow(itertools.chain(first, planned))

    def _planned(self, place: Place, cursor: Cursor, tag: int) -> Iterator[tuple[Step, tuple[Request, ...]]]:
        while cursor.epoch < place.epochs:
            step = plan(
                cursor, total=self._total, batch_size=place.batch_size, seed=self._settings.seed, inner=place.inner
            )
            yield step, requests_of(step, cursor.epoch, place, tag)
            cursor = step.after

    def _draw(self) -> Prepared | Exception | None:
        """Return the next step or its error; None after the last one."""
        step, requests = next(self._steps, (None, ()))
        if step is None:
            return None
        try:
            return Prepared(step, tuple(self._micro(requests)))
        except BaseException as error:
            self._steps = iter(())  # continuing would skip the samples of this step
            if isinstance(error, Exception):
                return error
            raise

    def _micro(self, requests: Sequence[Request]) -> list[Micro]:
        found, bad = [], dict[int, str]()
        for request in requests:
            try:
                found.append(Micro(self._batch(request), request.weight, len(request.samples)))
            except BadSamples as error:
                bad |= error.errors
        if bad:
            raise BadSamples(bad)
        return found

    def _batch(self, request: Request) -> Any:
        return self._prepare_here(request) if self._answers is None else self._receive(request, self._answers)

    def _prepare_here(self, request: Request) -> Any:
        with generators_kept() as before:
            return self._source.prepare(request, before)

    def _receive(self, request: Request, answers: Iterator[Answer]) -> Any:
        while True:
            try:
                with self.readings.of(0, PROCESSES):
                    answered, batch, problem = next(answers)
            except (RuntimeError, OSError, EOFError) as error:
                if getattr(error, "errno", None) in (errno.EMFILE, errno.ENFILE) or _MANY_FILES in str(error):
                    raise TrainerError(
                        "too many open files for the batches that are passed on: raise the limit (ulimit -n), or lower "
                        "--data-workers, --prefetch or the number of tensors in a sample"
                    ) from error
                # The process ended while it passed a tensor on, which takes a Unix socket.
                passing_on = isinstance(error, ConnectionError | EOFError | FileNotFoundError)
                if not passing_on and all(process.is_alive() for process in self._processes):
                    raise
                detail = (str(error) or type(error).__name__).splitlines()[0]
                raise TrainerError(
                    "a process that prepares data was killed (out of memory, or /dev/shm is full): give the worker "
                    f"more of it, or lower --data-workers or --prefetch ({detail})"
                ) from error
            if answered == request:
                if problem is not None:
                    raise problem
                return batch

    def _open(self, settings: LoaderSettings) -> Iterator[Answer]:
        loader: DataLoader[Answer] = DataLoader(
            self._source,
            sampler=self._requests,
            batch_size=None,
            collate_fn=_as_it_is,
            num_workers=settings.workers,
            prefetch_factor=settings.prefetch,
            persistent_workers=True,
            pin_memory=self._device.type == "cuda",
            worker_init_fn=functools.partial(settle, os.getpid(), self._current, self.readings),
            # Forked, so that a dataset needs no pickling and its memory is shared.
            multiprocessing_context="fork",
            generator=torch.Generator(),  # otherwise it draws its seed from the global generator
        )
        _raise_file_limit()
        # torch's handler raises the error of a lost worker process anywhere in the main thread, even in the optimizer's
        # step. Without it `next` raises the error.
        handler = signal.getsignal(signal.SIGCHLD)
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, HELD)
        try:
            return cast("Iterator[Answer]", iter(loader))
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
            if signal.getsignal(signal.SIGCHLD) is not handler:
                signal.signal(signal.SIGCHLD, handler)


class _Requests:
    """The DataLoader's sampler. It never ends, and can be switched to another sequence."""

    def __init__(self) -> None:
        self._planned: Iterator[Request] = iter(())

    def follow(self, planned: Iterator[Request]) -> None:
        self._planned = planned

    def __iter__(self) -> Iterator[Request]:
        while True:
            yield next(self._planned, IDLE)


def split(samples: Samples, most: int) -> list[Samples]:
    """Return the samples in as few parts as possible, each of at most ``most`` samples (0: any number).

    Their sizes differ by at most one, so that a part has only one sample where it can't be avoided: batch normalization
    doesn't learn from such a part.
    """
    if not most or len(samples) <= most:
        return [samples]
    parts = -(-len(samples) // most)
    ends = [index * len(samples) // parts for index in range(parts + 1)]
    return [samples[begin:end] for begin, end in itertools.pairwise(ends)]


def requests_of(step: Step, epoch: int, place: Place, tag: int) -> tuple[Request, ...]:
    """Return the requests of one rank for a step. A rank without samples takes part with one request of weight 0.

    So does one that has fewer micro-batches than another rank with which it divides a model.
    """
    parts = _parts(step, place, place.rank)
    made = [Request(tag, epoch, part, len(part) / len(step.samples)) for part in parts]
    first = place.rank - place.rank % place.shards  # has the most samples of these ranks
    most = parts if place.shards == 1 else _parts(step, place, first)
    missing = max(1, len(most)) - len(made)
    return (*made, *[Request(tag, epoch, step.samples[:1], 0.0)] * missing) if missing else tuple(made)


def _parts(step: Step, place: Place, rank: int) -> list[tuple[int, ...]]:
    """Return the samples of each micro-batch of a rank."""
    return [part for each in step.shares(rank, place.size) if each for part in split(each, place.micro_batch)]


def _raise_file_limit() -> None:
    """Permit this process and those that it forks more open files: each tensor that is passed on is one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = _MOST_FILES if hard == resource.RLIM_INFINITY else min(hard, _MOST_FILES)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def _as_it_is(answer: Any) -> Any:
    return answer
