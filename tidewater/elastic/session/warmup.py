"""The first passes of a worker, which are its slowest, before the others know of it.

    for prepared in rehearsals(worker, material, log, most=config.step_size(1), check=check):
        stepper.gradients(prepared)         # the result is dropped

They choose algorithms, show the reducer how many gradients to expect, and compile what the script compiles. A compiled
function is compiled again for inputs of another kind, which takes seconds to minutes. The number of samples in a
micro-batch depends on the number of workers, and is smaller at the end of an epoch. torch can compile for any number at
once, but sets conditions that depend on the model (not one sample, at least 16 samples). So where anything is compiled,
all powers of two up to the largest number are tried, in training and in evaluation. Otherwise one small batch of each.
Where the script makes the forward passes, a step of several micro-batches is tried too, with the largest one, and
several batches of its validation: what is wrong in the script's loops shows before the worker has joined.

Afterwards the model is as the script has built it.
"""

from __future__ import annotations

import itertools
import secrets
import time
from collections.abc import Callable, Generator, Iterator
from typing import Any

import torch

from tidewater.elastic.addresses import Address
from tidewater.elastic.data.device import leaves, onto
from tidewater.elastic.data.loader import Micro, Prepared
from tidewater.elastic.data.sampler import Cursor, Step
from tidewater.elastic.errors import ConfigError, OutOfMemory
from tidewater.elastic.group.group import Group
from tidewater.elastic.machine_errors import device_failure
from tidewater.elastic.observe.log import Log
from tidewater.elastic.session.evaluation import ROUND, passes
from tidewater.elastic.session.worker import Material, Worker

_FORM_SECONDS = 20.0
_PASSES = 2
"""The reducer begins sums during a backward pass only if it has seen one before."""
_SAMPLES = 2
"""With one sample batch normalization would be another computation than with several."""


def form_alone(group: Group) -> None:
    """Form a group of one. Before its first rendezvous a worker must have been in one: torch tells the peers of a new
    group apart by the groups in which they were before."""
    group.form(secrets.randbits(48), 0, (Address("localhost", 0),), time.monotonic() + _FORM_SECONDS)


def rehearsals(
    worker: Worker, material: Material, log: Log, *, most: int, check: Callable[[], None], own_loop: bool = False
) -> Iterator[Prepared]:
    """Yield steps to make in a group of one, so that a join costs the others as little time as possible.

    Raise ConfigError if the memory does not suffice for one sample, or if a gradient can't be summed.

    Args:
        worker: Of this process.
        material: Of the training.
        log: Gets the event ``out_of_memory``.
        most: Number of samples in a step of one worker.
        check: Called after each step; raises the GroupBroken that the step has met.
        own_loop: Whether the script makes the forward passes.
    """
    with worker.state.attributes.rehearsal(), material.stepper.rehearsal():
        while not (yield from _tried(worker, material, log, most, check, own_loop)):
            form_alone(worker.group)


def _tried(
    worker: Worker, material: Material, log: Log, most: int, check: Callable[[], None], own_loop: bool
) -> Generator[Prepared, None, bool]:
    """Yield the steps. Return whether the memory suffices; otherwise smaller micro-batches are to be tried."""
    state, device = worker.state, worker.group.device
    largest = min(state.micro_batch or most, most, material.total or most)

    def step(*parts: int) -> Iterator[Prepared]:
        micro = [Micro(_batch(device, material, part), part / sum(parts), part) for part in parts]
        yield Prepared(Step(tuple(range(sum(parts))), Cursor()), tuple(micro))
        check()

    try:
        compiled = _compiled()
        for _ in range(_PASSES):
            yield from step(min(_SAMPLES, largest))
        if _compiled() > compiled:
            for samples in sizes(largest):
                yield from step(samples)
        if own_loop:
            yield from step(min(_SAMPLES, largest), largest)
        _evaluate(worker, material, every_size=_compiled() > compiled)
    except OutOfMemory as error:
        log.event("out_of_memory", micro_batch=state.micro_batch, reason=str(error))
        return False
    return True


def sizes(largest: int) -> Iterator[int]:
    """Yield the numbers of samples to try: 1, 2, 4, 8 and so on, and the largest one."""
    yield from itertools.takewhile(lambda size: size < largest, (2**power for power in itertools.count()))
    yield largest


def _compiled() -> int:
    """Return how many graphs torch has compiled in this process."""
    counters: Any = torch._dynamo.utils.counters
    return int(counters["stats"]["unique_graphs"])


def _batch(device: torch.device, material: Material, samples: int) -> Any:
    return _of_any_size(device, material.loader.first_readable(samples), samples)


def _evaluate(worker: Worker, material: Material, *, every_size: bool) -> None:
    """Try the score and the validation data, which are needed for the first time at the end of an epoch."""
    training = material.training
    if training.score is None or training.validation is None:
        return
    held_out: Any = training.validation
    with passes(worker, material):
        for size, batch in trials(worker, material, range(len(held_out)), most=ROUND, every_size=every_size):
            with material.stepper.enough_memory(size):
                _refuse_score(training.score(training.model, batch))


def trials(
    worker: Worker, material: Material, samples: range, *, most: int, every_size: bool | None = None
) -> Iterator[tuple[int, Any]]:
    """Yield batches of these samples of the validation data, on the device, with their sizes.

    They are one of each size, or a small one. Where the script makes the passes, ``every_size`` is None: then they are
    a small one and the largest, or one of each size if torch has compiled anything. ``most``: samples in the largest
    batch, if no step has determined that.
    """
    if not samples:
        return
    largest = min(ROUND, len(samples), worker.state.micro_batch or most)
    small = min(_SAMPLES, largest)
    tried = sorted({small, largest}) if every_size is None else [small]
    if every_size or (every_size is None and _compiled()):
        tried = list(sizes(largest))
    batches = material.loader.validation(samples[:size] for size in tried)
    for size, batch in zip(tried, batches, strict=True):
        yield size, _of_any_size(worker.group.device, batch, size)


def _refuse_score(score: Any) -> None:
    """Raise ConfigError if it is no number."""
    try:
        float(score)
    except (TypeError, ValueError, RuntimeError) as error:
        if device_failure(error):
            raise
        shape = f" of shape {tuple(score.shape)}" if isinstance(score, torch.Tensor) else ""
        raise ConfigError(
            f"the training's score returns a {type(score).__name__}{shape}: return one number, the sum over the batch"
        ) from error


def _of_any_size(device: torch.device, batch: Any, samples: int) -> Any:
    """Return the batch on the device, marked: compile for any number of samples now, not for this one first.

    A tensor is assumed to hold samples if its first dimension has this size.
    """
    mark: Any = torch._dynamo.maybe_mark_dynamic
    batch = onto(batch, device)
    for leaf in leaves(batch):
        if isinstance(leaf, torch.Tensor) and leaf.dim() and leaf.size(0) == samples:
            mark(leaf, 0)
    return batch
