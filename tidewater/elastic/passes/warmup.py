"""The first passes of a worker, which are its slowest, before the others know of it.

    warm_up(parts, log, most=config.step_size(1))

They choose algorithms, show the reducer how many gradients to expect, and compile what the script compiles. A compiled
function is compiled again for inputs of another kind, which takes seconds to minutes. The number of samples in a
micro-batch depends on the number of workers, and is smaller at the end of an epoch. torch can compile for any number at
once, but sets conditions that depend on the model (not one sample, at least 16 samples). So where anything is compiled,
all powers of two up to the largest number are tried, in training and in evaluation.
"""

from __future__ import annotations

import itertools
import secrets
import time
from collections.abc import Iterator
from typing import Any

import torch
from torch.utils import _pytree as pytree

from tidewater.elastic.data.loader import Micro, Prepared
from tidewater.elastic.data.sampler import Cursor, Step
from tidewater.elastic.errors import OutOfMemory
from tidewater.elastic.evaluation import ROUND
from tidewater.elastic.group.addresses import Address
from tidewater.elastic.observe.log import Log
from tidewater.elastic.parts import Parts
from tidewater.elastic.passes.device import onto
from tidewater.elastic.passes.memory import enough_memory

_FORM_SECONDS = 20.0
_PASSES = 2
"""The reducer begins sums during a backward pass only if it has seen one before."""
_SAMPLES = 2
"""With one sample batch normalization would be another computation than with several."""


def warm_up(parts: Parts, log: Log, *, most: int) -> None:
    """Form a group of one and make passes, so that a join costs the others as little time as possible.

    ``most`` is the number of samples in a step of one worker. Raise ConfigError if the memory does not suffice for one
    sample, or if a gradient can't be summed.
    """
    group, state = parts.group, parts.state
    ready = False
    while not ready:
        address = Address("localhost", 0)
        group.form(secrets.randbits(48), 0, (address,), time.monotonic() + _FORM_SECONDS)
        largest = min(state.micro_batch or most, most, parts.total or most)
        try:
            compiled = _compiled()
            for _ in range(_PASSES):
                _train(parts, min(_SAMPLES, largest))
            if _compiled() > compiled:
                for samples in sizes(largest):
                    _train(parts, samples)
                _evaluate(parts)
            ready = True
        except OutOfMemory as error:
            log.event("out_of_memory", micro_batch=state.micro_batch, reason=str(error))


def sizes(largest: int) -> Iterator[int]:
    """Yield the numbers of samples to try: 1, 2, 4, 8 and so on, and the largest one."""
    yield from itertools.takewhile(lambda size: size < largest, (2**power for power in itertools.count()))
    yield largest


def _compiled() -> int:
    """Return how many graphs torch has compiled in this process."""
    counters: Any = torch._dynamo.utils.counters
    return int(counters["stats"]["unique_graphs"])


def _train(parts: Parts, samples: int) -> None:
    batch = _of_any_size(parts, parts.loader.batch(range(samples), epoch=0), samples)
    step = Prepared(Step(tuple(range(samples)), Cursor()), (Micro(batch, weight=1.0, size=samples),))
    parts.stepper.gradients(step, knows=False)


def _evaluate(parts: Parts) -> None:
    training = parts.training
    if training.score is None or training.validation is None:
        return
    held_out: Any = training.validation
    largest = min(ROUND, len(held_out), parts.state.micro_batch or ROUND)
    tried = [range(samples) for samples in sizes(largest)]
    training.model.eval()
    try:
        for part, batch in zip(tried, parts.loader.validation(tried), strict=True):
            enough = enough_memory(parts.state, parts.group, samples=len(part))
            with enough, torch.no_grad(), parts.stepper.precision():
                training.score(training.model, _of_any_size(parts, batch, len(part)))
    finally:
        training.model.train()


def _of_any_size(parts: Parts, batch: Any, samples: int) -> Any:
    """Return the batch on the device, marked: compile for any number of samples now, not for this one first.

    Tensors whose first dimension has this number are taken for those of the samples.
    """
    mark: Any = torch._dynamo.maybe_mark_dynamic
    batch = onto(batch, parts.group.device)
    for leaf in pytree.tree_leaves(batch):
        if isinstance(leaf, torch.Tensor) and leaf.dim() and leaf.size(0) == samples:
            mark(leaf, 0)
    return batch
