"""The samples of each step: one cursor over a seeded permutation, the same for all ranks.

    cursor = Cursor(epoch=0, offset=0)
    step = plan(cursor, total=1437, batch_size=64, seed=0)
    mine = step.share(rank=1, size=3)       # indices of this rank's samples
    cursor = step.after                     # once the step is applied

A step uses the next ``batch_size`` samples of the epoch's permutation (fewer at the end of an epoch), divided among the
ranks. So every sample is used exactly once per epoch at any sequence of world sizes, also when ``batch_size`` changes
with them, and nothing is padded. The cursor is part of the training state and moves when a step is applied.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True)
class Cursor:
    """The epoch (from 0), and the number of its samples that have been used."""

    epoch: int = 0
    offset: int = 0
    stream: Any = field(default=None, compare=False)
    """If the dataset is a stream: its state there; None at the beginning of a pass. See ``stream``."""


@dataclass(frozen=True)
class Step:
    """The samples of one step, in order, and the cursor after it."""

    samples: tuple[int, ...]
    after: Cursor

    def share(self, rank: int, size: int) -> tuple[int, ...]:
        """Return the samples of one rank; it may be empty if there are fewer samples than ranks."""
        return self.samples[rank::size]


def plan(cursor: Cursor, *, total: int, batch_size: int, seed: int) -> Step:
    """Return the step that starts at ``cursor`` in a dataset of ``total`` samples."""
    end = min(cursor.offset + batch_size, total)
    samples = tuple(_permutation(total, seed, cursor.epoch)[cursor.offset : end].tolist())
    after = Cursor(cursor.epoch, end) if end < total else Cursor(cursor.epoch + 1, 0)
    return Step(samples, after)


@lru_cache(maxsize=2)
def _permutation(total: int, seed: int, epoch: int) -> npt.NDArray[np.int64]:
    # RandomState gives the same numbers in every version of numpy; another version may resume the job:
    # https://numpy.org/neps/nep-0019-rng-policy.html
    entropy = hashlib.sha256(f"{seed}/{epoch}".encode()).digest()
    generator = np.random.RandomState(np.random.MT19937(np.random.SeedSequence(int.from_bytes(entropy))))
    return generator.permutation(total)
