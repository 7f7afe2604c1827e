"""An index from ids to positions, in two flat arrays.

index = IdIndex()
index.add(np.array([7, 1 << 40]))      # positions 0 and 1
index.find(np.array([1 << 40, 8]))     # [1, -1]

A dict of Python ints takes more than 100 bytes for an id. This takes 24 to 40: a hash table with linear probing, which
numpy searches for all ids at once.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Ids = npt.NDArray[np.int64]

_FACTOR = np.uint64(0x9E3779B97F4A7C15)
"""2**64 / the golden ratio: Knuth's multiplicative hashing, The Art of Computer Programming, volume 3, 6.4."""
_SMALLEST_BITS = 10
_FREE = -1


class IdIndex:
    """Positions 0, 1, 2, … of ids in the order in which they were added."""

    def __init__(self) -> None:
        self._bits = _SMALLEST_BITS
        self._table: Ids = np.full(1 << self._bits, _FREE, np.int64)
        self._ids: Ids = np.empty(1 << (_SMALLEST_BITS - 1), np.int64)
        self._count = 0

    def __len__(self) -> int:
        return self._count

    @property
    def ids(self) -> Ids:
        """The ids, by position."""
        return self._ids[: self._count]

    def find(self, ids: Ids) -> Ids:
        """Return the positions of ids; -1 for those that were not added."""
        found = np.full(len(ids), _FREE, np.int64)
        asking, at = np.arange(len(ids)), self._home(ids)
        while len(asking):
            there = self._table[at]
            hit = (there != _FREE) & (self._ids[there] == ids[asking])
            found[asking[hit]] = there[hit]
            on = (there != _FREE) & ~hit
            asking, at = asking[on], (at[on] + 1) & (len(self._table) - 1)
        return found

    def add(self, ids: Ids) -> None:
        """Give the next positions to ids. They must be distinct and must not have been added."""
        positions = np.arange(self._count, self._count + len(ids))
        self._count += len(ids)
        if self._count > len(self._ids):
            while self._count > 1 << (self._bits - 1):
                self._bits += 1
            larger = np.empty(1 << (self._bits - 1), np.int64)
            larger[: positions[0]] = self._ids[: positions[0]]
            self._ids = larger
            self._table = np.full(1 << self._bits, _FREE, np.int64)
            positions = np.arange(self._count)  # all have another home in the larger table
            self._ids[self._count - len(ids) : self._count] = ids
        else:
            self._ids[positions] = ids
        self._place(positions)

    def _place(self, positions: Ids) -> None:
        at = self._home(self._ids[positions])
        while len(positions):
            free = self._table[at] == _FREE
            self._table[at[free]] = positions[free]
            # Of several that were written to the same place, the last one stays. The others go on to the next place.
            on = self._table[at] != positions
            positions, at = positions[on], (at[on] + 1) & (len(self._table) - 1)

    def _home(self, ids: Ids) -> Ids:
        return ((ids.astype(np.uint64) * _FACTOR) >> np.uint64(64 - self._bits)).astype(np.int64)
