"""What happens when a worker's memory doesn't suffice for a step.

    with EnoughMemory(state, group, samples=32):
        ...                                     # raises OutOfMemory; the next attempt is made with 16 samples

All workers use the same maximum size of a forward pass, ``State.micro_batch``. A worker that runs out of memory
halves it and gives up the group. So no worker applies the step, and all learn the new size from each other when the
group is formed again (see ``handover``).
"""

from __future__ import annotations

import traceback
from collections.abc import Callable

import torch

from tidewater.elastic.errors import ConfigError, OutOfMemory
from tidewater.elastic.group.group import Group
from tidewater.elastic.machine_errors import ran_out_of_memory
from tidewater.elastic.session.state import State


class EnoughMemory:
    """A context that halves the micro-batch and raises OutOfMemory if so many samples at once don't fit in memory.

    ``release`` frees what the caller holds. Raises ConfigError if the memory does not even suffice for one sample.
    """

    def __init__(self, state: State, group: Group, *, samples: int, release: Callable[[], None] = lambda: None) -> None:
        self._state, self._group, self._samples, self._release = state, group, samples, release

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, at: object) -> None:
        if isinstance(error, RuntimeError) and ran_out_of_memory(error):
            self._give_up(error)

    def _give_up(self, error: RuntimeError) -> None:
        state, group, samples, brief = self._state, self._group, self._samples, str(error).splitlines()[0]
        # The frames of the error refer to the activations.
        traceback.clear_frames(error.__traceback__)
        self._release()
        if group.device.type == "cuda":
            torch.cuda.empty_cache()
        if samples == 1:
            raise ConfigError(
                f"one sample does not fit in the memory of this worker: take a smaller model or a larger GPU ({brief})"
            ) from None
        state.micro_batch = samples // 2
        group.interrupt(f"out of memory with {samples} samples in a forward pass, the next have {state.micro_batch}")
        raise OutOfMemory(f"{samples} samples do not fit in the memory of this worker ({brief})") from None


class EnoughForTheOptimizer:
    """A context that raises ConfigError if the optimizer can't allocate memory.

    The step may be half applied and smaller micro-batches would not help, so this worker must end. Its peers have
    applied the step.
    """

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, at: object) -> None:
        if isinstance(error, RuntimeError) and ran_out_of_memory(error):
            raise ConfigError(
                "the optimizer's step does not fit in the memory of this worker: take an optimizer with less state "
                f"(or foreach=False), a smaller model or a larger GPU ({str(error).splitlines()[0]})"
            ) from error
