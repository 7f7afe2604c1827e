"""The rows of an embedding table on one server: one growing tensor, an index of ids, and snapshots by copy on write.

    store = RowStore(Table("user", 16), columns=(("exp_avg", 0.0), ("exp_avg_sq", 0.0)))
    found = store.fetch(ids)                    # rows with the optimizer's state; those that are new, as they begin
    store.store(found, changed)
    before = store.snapshot(store.table.dim)
    store.read(ids, before)                     # as they were then

A row is stored when its first gradient arrives. Until then, its value follows from the table's seed and the id, so
that reading costs no memory: evaluation doesn't fill the table.

Threads: any number may read, one at a time may change rows (`fetch` and `store`). Readers wait only while rows are
copied, not while they are computed.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from elasticdl.embedding_init import Table, initial_rows
from elasticdl.ps.errors import SnapshotLost

_SMALLEST = 256
Ids = npt.NDArray[np.int64]

_FACTOR = np.uint64(0x9E3779B97F4A7C15)
"""2**64 / the golden ratio: Knuth's multiplicative hashing, The Art of Computer Programming, volume 3, 6.4."""
_SMALLEST_BITS = 10
_FREE = -1


@dataclass(frozen=True)
class Fetched:
    """Rows that are about to be changed."""

    ids: torch.Tensor
    """Distinct."""
    positions: torch.Tensor
    """-1 for those that are not stored yet."""
    rows: torch.Tensor
    """(n, width): values, then the optimizer's state."""


class RowSnapshot:
    """What the rows were at one moment. Holds only those that have been changed since."""

    def __init__(self, count: int, width: int) -> None:
        self.count = count
        """Rows that were stored then."""
        self.width = width
        """Columns that it covers."""
        self._kept_at = torch.full((count,), -1, dtype=torch.int64)
        self._kept = torch.empty(0, width)
        self._used = 0

    def keep(self, positions: torch.Tensor, values: torch.Tensor) -> None:
        """Copy the rows that are about to be changed, unless they were changed before."""
        positions = positions[(positions >= 0) & (positions < self.count)]
        positions = positions[self._kept_at[positions] < 0]
        end = self._used + len(positions)
        if end > len(self._kept):
            larger = torch.empty(min(self.count, max(end, 2 * len(self._kept), _SMALLEST)), self.width)
            larger[: self._used] = self._kept[: self._used]
            self._kept = larger
        self._kept[self._used : end] = values[:, : self.width][positions]
        self._kept_at[positions] = torch.arange(self._used, end)
        self._used = end

    def read(self, positions: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
        """Return rows that were stored then."""
        rows = values[:, : self.width][positions]
        kept_at = self._kept_at[positions]
        changed = kept_at >= 0
        rows[changed] = self._kept[kept_at[changed]]
        return rows


class RowStore:
    """The rows of one table on one server, each followed by the optimizer's state."""

    def __init__(self, table: Table, columns: Sequence[tuple[str, float]] = ()) -> None:
        self.table = table
        self.columns = tuple(columns)
        """Name and first value of each part of the optimizer's state; each is as wide as the row."""
        self.width = table.dim * (1 + len(self.columns))
        self._index = IdIndex()
        self._values = torch.empty(0, self.width)
        self._snapshots: list[RowSnapshot] = []
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._index)

    def read(self, ids: torch.Tensor, snapshot: RowSnapshot | None = None) -> torch.Tensor:
        """Return the values of rows, (len(ids), dim), in the order of the ids, which may repeat."""
        dim = self.table.dim
        with self._lock:
            self._check(snapshot)
            positions = torch.from_numpy(self._index.find(ids.numpy()))
            absent = positions < 0 if snapshot is None else (positions < 0) | (positions >= snapshot.count)
            if absent.all():
                rows = torch.empty(len(ids), dim)
            elif snapshot is None:
                rows = self._values[:, :dim][positions.clamp(min=0)]
            else:
                rows = snapshot.read(positions.masked_fill(absent, 0), self._values)[:, :dim]
        if absent.any():
            rows[absent] = initial_rows(self.table, ids[absent])
        return rows

    def fetch(self, ids: torch.Tensor) -> Fetched:
        """Return rows that are to be changed; the ids must be distinct."""
        positions = torch.from_numpy(self._index.find(ids.numpy()))
        absent = positions < 0
        rows = torch.empty(len(ids), self.width)
        rows[~absent] = self._values[positions[~absent]]
        if absent.any():
            rows[absent] = self._new(ids[absent])
        return Fetched(ids, positions, rows)

    def store(self, fetched: Fetched, rows: torch.Tensor) -> None:
        """Store what was fetched and has been changed."""
        absent = fetched.positions < 0
        with self._lock:
            positions = fetched.positions.clone()
            positions[absent] = torch.arange(len(self), len(self) + int(absent.sum()))
            self._reserve(len(self) + int(absent.sum()))
            for snapshot in self._snapshots:
                snapshot.keep(fetched.positions, self._values)
            self._values[positions] = rows
            self._index.add(fetched.ids[absent].numpy())

    def snapshot(self, width: int) -> RowSnapshot:
        """Return a snapshot of the first columns; `drop` it when it is not needed any more."""
        with self._lock:
            self._snapshots.append(RowSnapshot(len(self), width))
            return self._snapshots[-1]

    def drop(self, snapshot: RowSnapshot) -> None:
        """Forget a snapshot. It is safe to call this twice."""
        with self._lock:
            self._snapshots = [each for each in self._snapshots if each is not snapshot]

    def ids(self, snapshot: RowSnapshot) -> torch.Tensor:
        """Return the ids of all rows that were stored then, in the order of `slice`."""
        with self._lock:
            self._check(snapshot)
            return torch.from_numpy(np.copy(self._index.ids[: snapshot.count]))

    def slice(self, snapshot: RowSnapshot, start: int, end: int) -> torch.Tensor:
        """Return rows [start, end) of a snapshot with the columns that it covers."""
        with self._lock:
            self._check(snapshot)
            return snapshot.read(torch.arange(start, end), self._values)

    def _check(self, snapshot: RowSnapshot | None) -> None:
        """Raise SnapshotLost for one that was dropped: rows that were changed since are not kept for it."""
        if snapshot is not None and snapshot not in self._snapshots:
            raise SnapshotLost(
                f"a snapshot of table {self.table.name!r} was dropped while it was read", "Read it again."
            )

    def _new(self, ids: torch.Tensor) -> torch.Tensor:
        state = [torch.full((len(ids), self.table.dim), first) for _, first in self.columns]
        return torch.cat([initial_rows(self.table, ids), *state], dim=1)

    def _reserve(self, count: int) -> None:
        if count > len(self._values):
            larger = torch.empty(max(count, len(self._values) * 3 // 2, _SMALLEST), self.width)
            larger[: len(self)] = self._values[: len(self)]
            self._values = larger


class IdIndex:
    """Positions 0, 1, 2, … of ids in the order in which they were added.

    A dict of Python ints takes more than 100 bytes for an id. This takes 24 to 40: a hash table with linear probing,
    which numpy searches for all ids at once.
    """

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
