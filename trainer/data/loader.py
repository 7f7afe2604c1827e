"""Batches of a rank, in the order of the job's plan, prepared ahead by torch's DataLoader.

    loader = Loader(dataset, LoaderSettings(seed=0, workers=4), collate=None, device=device)
    loader.start(Place(cursor, rank=1, size=3, batch_size=256, epochs=90))
    prepared = loader.next()                # this rank's part of the step at the cursor
    loader.prefetch()                       # the one after it, in time that is otherwise spent waiting
    loader.start(Place(cursor, rank=0, size=2, batch_size=256, epochs=90))   # a worker was lost: again, from there
    for batch in loader.validation([(0, 1, 2), (6, 7, 8)]): ...              # in between; then the next step's again
    loader.close()

A DataLoader knows one sequence of batches per epoch; here the sequence changes whenever the membership does, while
batches of the old one are still being prepared. So its sampler is an endless stream of requests that can be switched,
and every answer carries its request: what isn't exactly the request whose turn it is gets dropped. Which samples
a rank trains on is thus decided by the plan alone (see ``sampler``), never by what happened to be in flight.
The worker processes stay for the life of the loader, and leave a request of an old sequence at the next sample.

Create a Loader in the main thread, before sockets and other threads: its worker processes are forked from there.
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
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import torch
from torch.utils.data import DataLoader, Dataset, default_collate

from trainer.data.sampler import Cursor, Step, plan
from trainer.data.seeds import Generator, States, generators_kept, seed_generators, seedable_numpy_generator, states
from trainer.errors import ConfigError, TrainerError
from trainer.launch.lifeline import bound_to

Collate = Callable[[list[Any]], Any]

_HELD = (signal.SIGTERM, signal.SIGINT)
_CLOSE_SECONDS = 2.0
_CLOSED = 2**64 - 1
_STANDARD_STREAMS = (0, 1, 2)


@dataclass(frozen=True)
class LoaderSettings:
    """How batches are prepared; none of it changes what is in them."""

    seed: int
    workers: int = 0
    """Processes that prepare batches; 0: the training process does it."""
    prefetch: int = 2
    """Batches that each of them prepares ahead."""
    micro_batch: int | None = None
    """Most samples in one forward pass; None: a rank's whole part of a step."""


@dataclass(frozen=True)
class Place:
    """Where in training a rank stands: what it will be given follows from it."""

    cursor: Cursor
    rank: int
    size: int
    batch_size: int
    epochs: int


@dataclass(frozen=True)
class Micro:
    """What goes through the model at once."""

    batch: Any
    weight: float
    """Its samples, divided by those of the step: the loss is the mean over the batch times this."""


@dataclass(frozen=True)
class Prepared:
    """One step, and this rank's part of it on this rank's device."""

    step: Step
    micro: tuple[Micro, ...]


@dataclass(frozen=True)
class Request:
    """One batch to prepare. ``tag`` counts the calls of ``start``: 0 stands for nothing to do."""

    tag: int
    epoch: int
    samples: tuple[int, ...]
    weight: float
    validation: bool = False
    """Whether the samples are of the validation data."""


_IDLE = Request(tag=0, epoch=0, samples=(), weight=0.0)
_Answer = tuple[Request, Any, str | None]


class Loader:
    """The batches of one rank; one thread uses it.

    Raises ConfigError from ``next`` and ``batch`` if the dataset does (another error of the dataset comes as it is,
    with the traceback of the process it happened in), and TrainerError if a worker process dies. After an error
    ``next`` has nothing more to give until ``start``.
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
        self._current = memoryview(mmap.mmap(-1, 8)).cast("Q")  # shared with the worker processes, as it is anonymous
        self._source = _Source((dataset, validation), settings.seed, collate or default_collate, self._current)
        self._place = Place(Cursor(), rank=0, size=1, batch_size=1, epochs=0)
        self._steps: Iterator[tuple[Step, tuple[Request, ...]]] = iter(())
        self._drawn: Prepared | Exception | None = None
        """The next step if it was prepared ahead, not on the device yet, or what went wrong."""
        self._requests = _Requests()
        self._answers: Iterator[_Answer] | None = None
        self._processes: list[Any] = []
        if settings.workers > 0:
            before = set(multiprocessing.active_children())
            self._answers = self._open(settings)
            self._processes = [child for child in multiprocessing.active_children() if child not in before]
        # Otherwise multiprocessing would wait at exit for children that ignore its SIGTERM.
        atexit.register(self.close)

    @property
    def processes(self) -> tuple[int, ...]:
        """Process ids of the worker processes."""
        return tuple(process.pid for process in self._processes)

    def start(self, place: Place) -> None:
        """Give the batches from ``place`` on; what was prepared before is dropped. Returns at once."""
        self._place = place
        self._begin(())

    def next(self) -> Prepared:
        """This rank's part of the next step; blocks until it is prepared. The end of the epochs is a RuntimeError."""
        drawn, self._drawn = self._drawn or self._draw(), None
        if drawn is None:
            raise RuntimeError("there is no step to prepare: training has ended, failed or not been started")
        if isinstance(drawn, Exception):
            raise drawn
        self._place = replace(self._place, cursor=drawn.step.after)
        if self._device.type == "cpu":
            return drawn
        return Prepared(drawn.step, tuple(Micro(_onto(each.batch, self._device), each.weight) for each in drawn.micro))

    def prefetch(self) -> None:
        """Prepare the next step now, unless worker processes do that. An error is for ``next`` to raise."""
        if self._answers is None and self._drawn is None:
            self._drawn = self._draw()

    def batch(self, samples: Sequence[int], epoch: int) -> Any:
        """A batch on the device, prepared at once by this process: for a warm-up."""
        return _onto(self._prepare_here(Request(self._current[0], epoch, tuple(samples), 1.0)), self._device)

    def validation(self, parts: Iterable[Sequence[int]]) -> Iterator[Any]:
        """These samples of the validation data, each part as a batch on the device.

        Training's batches that were prepared ahead are dropped, and prepared again behind these.
        """
        requests = [Request(self._tag + 1, 0, tuple(part), 1.0, validation=True) for part in parts]
        self._begin(requests)
        for request in requests:
            yield _onto(self._batch(request), self._device)

    def close(self) -> None:
        """End the worker processes. Safe to call twice."""
        atexit.unregister(self.close)
        self._steps = iter(())
        self._current[0] = _CLOSED
        self._answers = None  # torch asks them to end, then tells them, and goes on if one hangs in its file system
        for process in self._processes:
            process.kill()
            process.join(_CLOSE_SECONDS)
        self._processes = []

    def _begin(self, first: Sequence[Request]) -> None:
        """Another sequence: these, then the steps from the place on."""
        self._tag += 1
        self._current[0] = self._tag
        self._steps, self._drawn = self._planned(self._place, self._tag), None
        planned = (request for _, requests in self._planned(self._place, self._tag) for request in requests)
        self._requests.follow(itertools.chain(first, planned))

    def _planned(self, place: Place, tag: int) -> Iterator[tuple[Step, tuple[Request, ...]]]:
        settings, cursor = self._settings, place.cursor
        while cursor.epoch < place.epochs:
            step = plan(cursor, total=self._total, batch_size=place.batch_size, seed=settings.seed)
            yield step, _split(step, cursor.epoch, place, settings.micro_batch, tag)
            cursor = step.after

    def _draw(self) -> Prepared | Exception | None:
        """The next step, or what went wrong with it; None after the last one."""
        step, requests = next(self._steps, (None, ()))
        if step is None:
            return None
        try:
            return Prepared(step, tuple(Micro(self._batch(request), request.weight) for request in requests))
        except BaseException as error:
            self._steps = iter(())  # going on would leave this step's samples out
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
            except RuntimeError as error:
                if all(process.is_alive() for process in self._processes):
                    raise
                raise TrainerError(
                    "a process that prepares data was killed (out of memory, or /dev/shm is full): give the worker "
                    f"more of it, or lower --data-workers or --prefetch ({str(error).splitlines()[0]})"
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
            generator=torch.Generator(),  # or it would draw its seed from the global one
        )
        # Torch would have a lost worker process raise an error wherever the main thread is, in the middle of the
        # optimizer's step as well; without its handler that comes from `next`.
        handler = signal.getsignal(signal.SIGCHLD)
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, _HELD)
        try:
            return cast("Iterator[_Answer]", iter(loader))
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
            if signal.getsignal(signal.SIGCHLD) is not handler:
                signal.signal(signal.SIGCHLD, handler)


class _Requests:
    """The DataLoader's sampler: never ends, and can be switched to another sequence."""

    def __init__(self) -> None:
        self._planned: Iterator[Request] = iter(())

    def follow(self, planned: Iterator[Request]) -> None:
        self._planned = planned

    def __iter__(self) -> Iterator[Request]:
        while True:
            yield next(self._planned, _IDLE)


class _Source(Dataset[_Answer]):
    """What the worker processes do: a request in, a batch out.

    To seed a generator takes as long as to get a small sample, so only those are seeded that the dataset or its
    collate function turns out to draw from: when a batch has moved one for the first time, the batch is made once more.
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
        except ConfigError as error:  # torch would bury its sentence in a traceback
            return request, None, str(error)

    def prepare(self, request: Request, before: States) -> Any:
        """The batch; None as soon as nobody wants it any more. ``before``: how the generators stand."""
        dataset: Any = self._datasets[request.validation]
        while True:
            unused = [(generator, state) for generator, state in before if generator not in self._used]
            items = []
            for sample in request.samples:
                if self._current[0] != request.tag:
                    return None
                if self._used:
                    seed_generators(self._seed, request.epoch, sample, self._used)
                items.append(dataset[sample])
            batch = self._collate(items)
            moved = [generator for generator, state in unused if generator.state() != state]
            if not moved:
                return batch
            self._used += moved


def _split(step: Step, epoch: int, place: Place, micro_batch: int | None, tag: int) -> tuple[Request, ...]:
    """The requests of one rank for a step; one of weight 0 if it has no sample, since it takes part all the same."""
    mine = step.share(place.rank, place.size)
    if not mine:
        return (Request(tag, epoch, step.samples[:1], 0.0),)
    most = micro_batch or len(mine)
    parts = [mine[begin : begin + most] for begin in range(0, len(mine), most)]
    return tuple(Request(tag, epoch, part, len(part) / len(step.samples)) for part in parts)


def _as_it_is(answer: Any) -> Any:
    return answer


def _onto(value: Any, device: torch.device) -> Any:
    """The batch with its tensors on ``device``; from pinned memory that doesn't wait. Datasets give it on the CPU."""
    if device.type == "cpu":
        return value
    if isinstance(value, Mapping):
        return {name: _onto(entry, device) for name, entry in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(_onto(entry, device) for entry in value))
    if isinstance(value, list | tuple):
        return type(value)(_onto(entry, device) for entry in value)
    if isinstance(value, torch.Tensor):
        return value.to(device, non_blocking=True)
    return value.to(device) if hasattr(value, "to") else value


def _settle(parent: int, current: memoryview, worker: int) -> None:
    """The first thing a worker process does: live and die with the training process, and hold nothing of its."""
    bound_to(parent)()

    def end_if_closed(*_: object) -> None:
        if current[0] == _CLOSED:
            os._exit(0)

    # Sent to the whole process group or container, SIGTERM means to leave at a step boundary: that takes data.
    signal.signal(signal.SIGTERM, end_if_closed)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _HELD)
    seedable_numpy_generator()
    _let_go_of_sockets()


def _let_go_of_sockets() -> None:
    """Peers see the training process's death by its connections, which a copy in here would keep open.

    The numbers stay taken: objects that came along with the fork believe that they own them.
    """
    null = os.open(os.devnull, os.O_RDWR)
    for number in map(int, os.listdir("/proc/self/fd")):
        try:
            if number not in _STANDARD_STREAMS and stat.S_ISSOCK(os.fstat(number).st_mode):
                os.dup2(null, number, inheritable=False)
        except OSError:  # the listing's own
            continue
    os.close(null)
