"""Held-out data for the tests of validations, and what they count of it.

``Samples`` take long to read, so that a test can act in the middle of a validation. ``Keys`` show whether each of them
is in a result exactly once: their mean does so for a score, and ``go_through`` gives a validation a sum for each.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.utils.data import Dataset

if TYPE_CHECKING:
    from tests.elastic.workers import Worker

HELD_OUT = 300
"""Keys: several rounds of a validation. In the last round some ranks have no sample."""
_SEED = 20261121


class Samples(Dataset[torch.Tensor]):
    """Samples that are their index. Each takes ``seconds`` to read."""

    def __init__(self, count: int, seconds: float = 0.0) -> None:
        self._count, self._seconds = count, seconds

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int) -> torch.Tensor:
        time.sleep(self._seconds)
        return torch.tensor([float(index)])


def scored(*workers: Worker, warm_ups: int = 1) -> list[int]:
    """Return the sizes of the batches that the workers have evaluated, without this number of them in each warm-up."""
    lines = [[line for line in worker.lines() if "scored" in line] for worker in workers]
    return [int(line["scored"]) for of_worker in lines for line in of_worker[warm_ups:]]


class Keys(Dataset[tuple[int, int]]):
    """Random numbers, each with its index. Their sum shows whether one of them is missing or was added twice."""

    def __init__(self) -> None:
        generator = torch.Generator().manual_seed(_SEED)
        self._keys: list[int] = torch.randint(1, 2**40, (HELD_OUT,), generator=generator).tolist()

    def __len__(self) -> int:
        return HELD_OUT

    def __getitem__(self, index: int) -> tuple[int, int]:
        return self._keys[index], index

    def mean(self) -> float:
        """Return the correct result of every evaluation."""
        return sum(self._keys) / HELD_OUT


def go_through(validation: Any, model: nn.Module, features: int, before: Callable[[list[int]], None]) -> None:
    """Go through a validation over ``Keys``, with the outputs of the model, and a sum for each sample.

    Call ``before`` with the samples of each batch. The model gets ``features`` numbers for each.
    """
    for (_, samples), add in validation:
        here = samples.tolist()
        before(here)
        outputs = model(torch.outer(samples, torch.arange(1, features + 1)).float().sin())
        add(outputs=outputs.double().sum(), **{str(each): each in here for each in range(HELD_OUT)})


def times(totals: Mapping[str, float]) -> str:
    """Return how often each sample is in these totals, as one digit for each; 9: nine times or more."""
    return "".join(str(min(int(totals[str(each)]), 9)) for each in range(HELD_OUT))
