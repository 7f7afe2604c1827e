"""The samples of each step: one cursor over a seeded permutation, the same for all ranks.

    cursor = Cursor(epoch=0, offset=0)
    step = plan(cursor, total=1437, batch_size=64, seed=0)
    mine = step.share(rank=1, size=3)       # indices of this rank's samples
    cursor = step.after                     # once the step is applied

A step uses the next ``batch_size`` samples of the epoch's permutation (fewer at the end of an epoch), divided among the
ranks. So every sample is used exactly once per epoch at any sequence of world sizes, also when ``batch_size`` changes
with them, and nothing is padded. The cursor is part of the training state and moves when a step is applied.

The order of up to ``MOST_IN_TABLE`` samples is a table. To make one of 50 million takes seconds, during which no other
thread of the process runs, and the worker counts as lost. So the order of more samples is a function of the position: a
Feistel network permutes the numbers of so many bits, and numbers beyond the last sample are permuted again until they
are samples (cycle walking: https://doi.org/10.1007/3-540-45760-7_9).
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Collection
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

MOST_IN_TABLE = 1 << 22
_ROUNDS = 8
_BLOCK = 1 << 13
_ONE = np.uint64(1)
_Positions = npt.NDArray[np.int64]
_Bits = npt.NDArray[np.uint64]


@dataclass(frozen=True)
class Cursor:
    """The epoch (from 0), and the number of its samples that have been used."""

    epoch: int = 0
    offset: int = 0
    stream: Any = field(default=None, compare=False)
    """If the dataset is a stream: its state there; None at the beginning of a pass. See ``stream``."""
    skipped: tuple[int, ...] = ()
    """Samples that could not be read, in ascending order. No step after this place has them."""

    def values(self) -> list[Any]:
        """Return the fields, for ``Cursor(*values)``."""
        return [self.epoch, self.offset, self.stream, self.skipped]


@dataclass(frozen=True)
class Step:
    """The samples of one step, in order, and the cursor after it."""

    samples: tuple[int, ...]
    after: Cursor
    inner: int = 0
    """Samples of an inner step, of all ranks together; 0: the step has one, with all samples. See ``method.local``."""

    def share(self, rank: int, size: int) -> tuple[int, ...]:
        """Return the samples of one rank; it may be empty if there are fewer samples than ranks."""
        shares = self.shares(rank, size)
        return shares[0] if len(shares) == 1 else tuple(itertools.chain.from_iterable(shares))

    def shares(self, rank: int, size: int) -> tuple[tuple[int, ...], ...]:
        """Return the samples of one rank in each inner step."""
        if not self.inner:
            return (self.samples[rank::size],) if self.samples else ()
        every = self.inner
        return tuple(self.samples[first : first + every][rank::size] for first in range(0, len(self.samples), every))


def plan(cursor: Cursor, *, total: int, batch_size: int, seed: int, inner: int = 0) -> Step:
    """Return the step that starts at ``cursor`` in a dataset of ``total`` samples. ``inner``: see ``Step``."""
    skipped = frozenset(cursor.skipped)
    samples: list[int] = []
    end = cursor.offset
    while not samples and end < total:  # all samples at the positions of a step may be left out
        begin, end = end, min(end + batch_size, total)
        samples = _ordered(cursor.epoch, begin, end, total, seed)
        if skipped:
            samples = [sample for sample in samples if sample not in skipped]
    after = Cursor(cursor.epoch, end, cursor.stream, cursor.skipped)
    if skipped or end >= total:
        after = without(after, skipped, total=total, seed=seed)
    return Step(tuple(samples), after, inner)


def without(cursor: Cursor, samples: Collection[int], *, total: int, seed: int) -> Cursor:
    """Return the place if these samples are left out. It is the next epoch's beginning if no other is left in this one.

    Positions in an epoch stay what they are, so the samples that were used before the place are the same.
    """
    skipped = tuple(sorted(samples))
    over = total - cursor.offset <= len(skipped) and set(
        _ordered(cursor.epoch, cursor.offset, total, total, seed)
    ) <= set(skipped)
    if over:
        return Cursor(cursor.epoch + 1, skipped=skipped)
    return cursor if skipped == cursor.skipped else replace(cursor, skipped=skipped)


def _ordered(epoch: int, begin: int, end: int, total: int, seed: int) -> list[int]:
    """Return the samples at these positions of the epoch."""
    if total <= MOST_IN_TABLE:
        chosen: list[int] = _permutation(total, seed, epoch)[begin:end].tolist()
        return chosen
    first = begin // _BLOCK
    blocks = [_block(number, total, seed, epoch) for number in range(first, -(-end // _BLOCK))]
    return np.concatenate(blocks)[begin - first * _BLOCK : end - first * _BLOCK].tolist() if blocks else []


def scattered(positions: _Positions, total: int, seed: int, epoch: int) -> _Positions:
    """Return the samples at these positions of the epoch: a permutation of ``range(total)``, without a table."""
    keys, bits = _keys(seed, epoch), max(2, (total - 1).bit_length())
    found = _permuted(positions.astype(np.uint64), keys, bits)
    while (beyond := found >= total).any():  # at most half of them, since 2 ** (bits - 1) < total
        found[beyond] = _permuted(found[beyond], keys, bits)
    return found.astype(np.int64)


@lru_cache(maxsize=4)
def _block(number: int, total: int, seed: int, epoch: int) -> _Positions:
    """Return the samples at some thousand positions, which takes hardly longer than for those of a step."""
    return scattered(np.arange(number * _BLOCK, min((number + 1) * _BLOCK, total)), total, seed, epoch)


def _permuted(values: _Bits, keys: tuple[np.uint64, ...], bits: int) -> _Bits:
    """Permute the numbers of so many bits: each round changes one half by a function of the other one."""
    low = np.uint64(bits // 2)
    high = np.uint64(bits) - low
    for key in keys:
        left, right = values >> low, values & ((_ONE << low) - _ONE)
        # The halves change places, and so do their widths.
        values = (right << high) | (left ^ (_mixed(right ^ key) & ((_ONE << high) - _ONE)))
        low, high = high, low
    return values


def _mixed(values: _Bits) -> _Bits:
    """Return 64 bits that each depend on all bits of the value: splitmix64 (https://doi.org/10.1145/2660193.2660195)."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))


@lru_cache(maxsize=2)
def _keys(seed: int, epoch: int) -> tuple[np.uint64, ...]:
    return tuple(
        np.uint64(int.from_bytes(hashlib.sha256(f"{seed}/{epoch}/{turn}".encode()).digest()[:8]))
        for turn in range(_ROUNDS)
    )


@lru_cache(maxsize=2)
def _permutation(total: int, seed: int, epoch: int) -> _Positions:
    # RandomState gives the same numbers in every version of numpy; another version may resume the job:
    # https://numpy.org/neps/nep-0019-rng-policy.html
    entropy = hashlib.sha256(f"{seed}/{epoch}".encode()).digest()
    generator = np.random.RandomState(np.random.MT19937(np.random.SeedSequence(int.from_bytes(entropy))))
    return generator.permutation(total)
