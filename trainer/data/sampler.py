"""Which samples a step consumes: one cursor over a seeded permutation, the same for all ranks.

    cursor = Cursor(epoch=0, offset=0)
    step = plan(cursor, total=1437, batch_size=64, seed=0)
    mine = step.share(rank=1, size=3)       # sample ids of this rank
    cursor = step.after                     # once the step is applied

A step consumes the next ``batch_size`` samples of the epoch's permutation (fewer at the end of an epoch); the ranks
share them out. So every sample is used exactly once per epoch at any sequence of world sizes, also when ``batch_size``
changes with them, and nothing is padded. The cursor is part of the training state: it moves when a step is applied.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True)
class Cursor:
    """How many samples of which epoch (from 0) have been consumed."""

    epoch: int = 0
    offset: int = 0


@dataclass(frozen=True)
class Step:
    """The samples of one step, in order, and where the cursor stands after it."""

    samples: tuple[int, ...]
    after: Cursor

    def share(self, rank: int, size: int) -> tuple[int, ...]:
        """Sample ids of one rank; may be empty when there are fewer samples than ranks."""
        return self.samples[rank::size]


def plan(cursor: Cursor, *, total: int, batch_size: int, seed: int) -> Step:
    """The step that starts at ``cursor`` in a dataset of ``total`` samples."""
    end = min(cursor.offset + batch_size, total)
    samples = tuple(_permutation(total, seed, cursor.epoch)[cursor.offset : end].tolist())
    after = Cursor(cursor.epoch, end) if end < total else Cursor(cursor.epoch + 1, 0)
    return Step(samples, after)


@lru_cache(maxsize=2)
def _permutation(total: int, seed: int, epoch: int) -> npt.NDArray[np.int64]:
    # Of numpy's generators the one that gives the same numbers in every version, since a job may be resumed by another:
    # https://numpy.org/neps/nep-0019-rng-policy.html
    entropy = hashlib.sha256(f"{seed}/{epoch}".encode()).digest()
    generator = np.random.RandomState(np.random.MT19937(np.random.SeedSequence(int.from_bytes(entropy))))
    return generator.permutation(total)
