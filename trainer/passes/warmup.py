"""The first passes of a worker, which are its slowest, before the others know of it."""

from __future__ import annotations

import secrets
import time

from trainer.data.loader import Micro, Prepared
from trainer.data.sampler import Cursor, Step
from trainer.errors import OutOfMemory
from trainer.group.addresses import Address
from trainer.observe.log import Log
from trainer.parts import Parts

_FORM_SECONDS = 20.0
_PASSES = 2
_SAMPLES = 2
"""With one sample batch normalization would be another computation than with several."""


def warm_up(parts: Parts, log: Log) -> None:
    """Form a group of one and run two passes, so that a join costs the others as little time as possible.

    The first passes choose algorithms and compile models. A group of one needs no peer for that. Raise ConfigError if
    the memory does not suffice for one sample.
    """
    group, stepper, state = parts.group, parts.stepper, parts.state
    ready = False
    while not ready:
        address = Address("localhost", 0)
        group.form(secrets.randbits(48), 0, (address,), time.monotonic() + _FORM_SECONDS)
        samples = tuple(range(min(_SAMPLES, parts.total, state.micro_batch or _SAMPLES)))
        micro = Micro(parts.loader.batch(samples, epoch=0), weight=1.0, size=len(samples))
        warm = Prepared(Step(samples, Cursor()), (micro,))
        try:
            for _ in range(_PASSES):
                stepper.gradients(warm, knows=False)
            ready = True
        except OutOfMemory as error:
            log.event("out_of_memory", micro_batch=state.micro_batch, reason=str(error))
