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
import functools
import itertools
import mmap
import multiprocessing
import os
import signal
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar, cast

import torch
from torch.utils.data import DataLoader, Dataset, default_collate

from tidewater.elastic.data.sample_errors import naming
from tidewater.elastic.data.sampler import Cursor, Step, plan
from tidewater.elastic.data.seeds import (
    Generator,
    States,
    generators_kept,
    seed_generators,
    seedable_numpy_generator,
    states,
)
from tidewater.elastic.errors import ConfigError, TrainerError
from tidewater.elastic.launch.lifeline import bound_to

Collate = Callable[[list[Any]], Any]
Samples = TypeVar("Samples", tuple[int, ...], range)

_HELD = (signal.SIGTERM, signal.SIGINT)
_CLOSE_SECONDS = 2.0
_CLOSED = 2**64 - 1
_STANDARD_STREAMS = (0, 1, 2)


@dataclass(frozen=True)
class LoaderSettings:
    """How batches are prepared. None of it changes their content."""

    seed: int
    workers: int = 0
    """Number of processes that prepare batches; 0: the training process does it."""
    prefetch: int = 2
    """Number of batches that each of them prepares in advance."""


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


@dataclass(frozen=True)
class Request:
    """One batch to prepare. ``tag`` counts the calls of ``start``; 0 means nothing to do."""

    tag: int
    epoch: int
    samples: tuple[int, ...]
    weight: float
    validation: bool = False
    """Whether the samples are from the validation data."""


_IDLE = Request(tag=0, epoch=0, samples=(), weight=0.0)
_Answer = tuple[Request, Any, str | None]


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
        self._source = _Source((dataset, validation), settings.seed, collate or default_collate, self._current)
        self._place = Place(Cursor(), rank=0, size=1, batch_size=1, epochs=0)
        self._steps: Iterator[tuple[Step, tuple[Request, ...]]] = iter(())
        self._drawn: Prepared | Exception | None = None
        """The next step if it was prepared in advance, or the error."""
        self._requests = _Requests()
        self._answers: Iterator[_Answer] | None = None
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
        self._place = place
        self._begin(())

    def next(self) -> Prepared:
        """Wait for this rank's part of the next step and return it. Raise RuntimeError after the last epoch."""
        drawn, self._drawn = self._drawn or self._draw(), None
        if drawn is None:
            raise RuntimeError("there is no step to prepare: training has ended, failed or not been started")
        if isinstance(drawn, Exception):
            raise drawn
        self._place = replace(self._place, cursor=drawn.step.after)
        return drawn

    def prefetch(self) -> None:
        """Prepare the next step now, unless worker processes do that. ``next`` raises any error."""
        if self._answers is None and self._drawn is None:
            self._drawn = self._draw()

    def batch(self, samples: Sequence[int], epoch: int, *, validation: bool = False) -> Any:
        """Return a batch, prepared by this process, for a warm-up."""
        return self._prepare_here(Request(self._current[0], epoch, tuple(samples), 1.0, validation))

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
        self._current[0] = _CLOSED
        self._answers = None  # torch ends them, and continues if one hangs in its file system
        for process in self._processes:
            process.kill()
            process.join(_CLOSE_SECONDS)
        self._processes = []

    def _begin(self, first: Sequence[Request]) -> None:
        """Switch to another sequence: these requests, then the steps from the place on."""
        self._tag += 1
        self._current[0] = self._tag
        self._steps, self._drawn = self._planned(self._place, self._tag), None
        planned = (request for _, requests in self._planned(self._place, self._tag) for request in requests)
        self._requests.follow(itertools.chain(first, planned))

    def _planned(self, place: Place, tag: int) -> Iterator[tuple[Step, tuple[Request, ...]]]:
        cursor = place.cursor
        while cursor.epoch < place.epochs:
            step = plan(cursor, total=self._total, batch_size=place.batch_size, seed=self._settings.seed)
            yield step, requests_of(step, cursor.epoch, place, tag)
            cursor = step.after

    def _draw(self) -> Prepared | Exception | None:
        """Return the next step or its error; None after the last one."""
        step, requests = next(self._steps, (None, ()))
        if step is None:
            return None
        try:
            parts = [(self._batch(request), request) for request in requests]
            return Prepared(step, tuple(Micro(batch, each.weight, len(each.samples)) for batch, each in parts))
        except BaseException as error:
            self._steps = iter(())  # continuing would skip the samples of this step
            if isinstance(error, Exception):
                return error
            raise

    def _batch(self, request: Request) -> Any:
        return self._prepare_here(request) if self._answers is None else self._receive(request, self._answers)

    def _prepare_here(self, request: Request) -> Any:
        with generators_kept() as before:
            return self._source.prepare(request, before)

    def _receive(self, request: Request, answers: Iterator[_Answer]) -> Any:
        while True:
            try:
                answered, batch, problem = next(answers)
            # All but RuntimeError: the process ended while it passed a tensor on, which takes a Unix socket.
            except (RuntimeError, ConnectionError, EOFError, FileNotFoundError) as error:
                if isinstance(error, RuntimeError) and all(process.is_alive() for process in self._processes):
                    raise
                detail = (str(error) or type(error).__name__).splitlines()[0]
                raise TrainerError(
                    "a process that prepares data was killed (out of memory, or /dev/shm is full): give the worker "
                    f"more of it, or lower --data-workers or --prefetch ({detail})"
                ) from error
            if answered == request:
                if problem is not None:
                    raise ConfigError(problem)
                return batch

    def _open(self, settings: LoaderSettings) -> Iterator[_Answer]:
        loader: DataLoader[_Answer] = DataLoader(
            self._source,
            sampler=self._requests,
            batch_size=None,
            collate_fn=_as_it_is,
            num_workers=settings.workers,
            prefetch_factor=settings.prefetch,
            persistent_workers=True,
            pin_memory=self._device.type == "cuda",
            worker_init_fn=functools.partial(_settle, os.getpid(), self._current),
            # Forked, so that a dataset needs no pickling and its memory is shared.
            multiprocessing_context="fork",
            generator=torch.Generator(),  # otherwise it draws its seed from the global generator
        )
        # torch's handler raises the error of a lost worker process anywhere in the main thread, even in the optimizer's
        # step. Without it `next` raises the error.
        handler = signal.getsignal(signal.SIGCHLD)
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, _HELD)
        try:
            return cast("Iterator[_Answer]", iter(loader))
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
            yield next(self._planned, _IDLE)


class _Source(Dataset[_Answer]):
    """The dataset of the worker processes: it returns the batch for a request.

    Seeding a generator takes as long as loading a small sample. So only generators that the dataset or its collate
    function uses are seeded: when a batch has used one for the first time, the batch is prepared again.
    """

    def __init__(
        self, datasets: tuple[Dataset[Any], Dataset[Any] | None], seed: int, collate: Collate, current: memoryview
    ) -> None:
        self._datasets, self._seed, self._collate, self._current = datasets, seed, collate, current
        self._used: list[Generator] = []

    def __getitem__(self, request: Request) -> _Answer:
        if not request.samples:
            return request, None, None
        try:
            return request, self.prepare(request, states()), None
        except ConfigError as error:  # torch would hide its sentence in a traceback
            return request, None, str(error)

    def prepare(self, request: Request, before: States) -> Any:
        """Return the batch, or None when it is no longer wanted. ``before`` is the state of the generators."""
        dataset: Any = self._datasets[request.validation]
        data = "validation data" if request.validation else "dataset"
        while True:
            unused = [(generator, state) for generator, state in before if generator not in self._used]
            items = []
            for sample in request.samples:
                if self._current[0] != request.tag:
                    return None
                if self._used:
                    seed_generators(self._seed, request.epoch, sample, self._used)
                with naming((sample,), data):
                    items.append(dataset[sample])
            with naming(request.samples, data):
                batch = self._collate(items)
            moved = [generator for generator, state in unused if generator.state() != state]
            if not moved:
                return batch
            self._used += moved


def split(samples: Samples, most: int) -> list[Samples]:
    """Return the samples in as few parts as possible, each of at most ``most`` samples (0: any number).

    Their sizes differ by at most one, so that a part has only one sample where it can't be avoided: batch normalization
    doesn't learn from such a part.
    """
    parts = max(1, -(-len(samples) // most)) if most else 1
    ends = [index * len(samples) // parts for index in range(parts + 1)]
    return [samples[begin:end] for begin, end in itertools.pairwise(ends)]


def requests_of(step: Step, epoch: int, place: Place, tag: int) -> tuple[Request, ...]:
    """Return the requests of one rank for a step. A rank without samples takes part with one request of weight 0."""
    mine = step.share(place.rank, place.size)
    if not mine:
        return (Request(tag, epoch, step.samples[:1], 0.0),)
    parts = split(mine, place.micro_batch)
    return tuple(Request(tag, epoch, part, len(part) / len(step.samples)) for part in parts)


def _as_it_is(answer: Any) -> Any:
    return answer


def _settle(parent: int, current: memoryview, worker: int) -> None:
    """Prepare a worker process: it ends with the training process and keeps none of its connections open."""
    bound_to(parent)()

    def end_if_closed(*_: object) -> None:
        if current[0] == _CLOSED:
            os._exit(0)

    # SIGTERM may go to the whole process group or container. The worker then leaves at a step boundary and needs data
    # until then.
    signal.signal(signal.SIGTERM, end_if_closed)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _HELD)
    seedable_numpy_generator()
    _let_go_of_sockets()


def _let_go_of_sockets() -> None:
    """Close inherited sockets: peers notice the death of the training process only if its connections close.

    The descriptor numbers stay in use, because objects copied by the fork still refer to them.
    """
    null = os.open(os.devnull, os.O_RDWR)
    for number in map(int, os.listdir("/proc/self/fd")):
        try:
            if number not in _STANDARD_STREAMS and stat.S_ISSOCK(os.fstat(number).st_mode):
                os.dup2(null, number, inheritable=False)
        except OSError:  # the descriptor of the listing itself
            continue
    os.close(null)
