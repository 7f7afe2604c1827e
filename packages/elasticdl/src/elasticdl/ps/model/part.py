"""What one server holds of the model: dense parameters, tables, versions, snapshots. Safe for threads.

    part = Part(Contents(dense, tables, Adam()), Policy(grads_to_wait=2))
    part.push(gradient)                  # (accepted, version)
    part.view()                          # dense values and version, without waiting for an update

One lock orders everything that changes the model. Readers don't take it: dense values are replaced as a whole at the
end of an update, and each table has a lock of its own, which is held only while rows are copied.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import torch

from elasticdl.embedding_init import Table
from elasticdl.ps.errors import PushRefused, SnapshotLost
from elasticdl.ps.model.deduplication import Counted
from elasticdl.ps.model.dense import Dense, Encoded, finite
from elasticdl.ps.model.gradients import Gradient, Rows, mean
from elasticdl.ps.model.policy import Policy
from elasticdl.ps.model.row_updates import columns, updated
from elasticdl.ps.model.rows import Fetched, RowSnapshot, RowStore
from elasticdl.ps.placement import coalesced
from elasticdl.zoo.optimizers import Optimizer

MAX_SNAPSHOTS = 8
"""When one more is taken, the oldest is dropped: one that a master has forgotten must not fill the memory."""


@dataclass(frozen=True)
class StoredTable:
    """A table of a checkpoint, as far as it is on this server."""

    table: Table
    ids: torch.Tensor
    rows: torch.Tensor
    """(n, width): values, then the optimizer's state."""
    steps: int = 0


@dataclass(frozen=True)
class Contents:
    """What a server begins with: a model of a worker, or its part of a checkpoint."""

    dense: Mapping[str, torch.Tensor]
    tables: Mapping[str, Table]
    optimizer: Optimizer
    buffers: Mapping[str, torch.Tensor] = field(default_factory=dict)
    dense_state: Mapping[tuple[str, str], torch.Tensor] = field(default_factory=dict)
    stored: Mapping[str, StoredTable] = field(default_factory=dict)
    version: int = 0
    counted: str = "[]"
    """JSON of Counted."""


@dataclass(frozen=True)
class View:
    """Dense values at one version, and the tables' rows at it if it is a snapshot."""

    version: int
    dense: Encoded
    rows: Mapping[str, RowSnapshot]


@dataclass(frozen=True)
class Frozen:
    """Everything at one moment, for a checkpoint or an export."""

    view: View
    dense_state: Mapping[tuple[str, str], torch.Tensor]
    steps: Mapping[str, int]
    counted: str


class Part:
    """One server's part of the model."""

    def __init__(self, contents: Contents, policy: Policy) -> None:
        self.optimizer = contents.optimizer
        self.stores = {name: RowStore(table, columns(self.optimizer)) for name, table in contents.tables.items()}
        self.dense = Dense(contents.dense, contents.buffers, self.optimizer)
        self._policy = policy
        self._changing = threading.Lock()
        self._counted = Counted.from_json(contents.counted)
        self._waiting: list[Gradient] = []
        self._steps = dict.fromkeys(self.stores, 0)
        self._snapshots: OrderedDict[int, View] = OrderedDict()
        self.dense.load_state(contents.dense_state)
        for name, stored in contents.stored.items():
            self._restore(name, stored)
        self._view = View(contents.version, self.dense.published, {})

    @property
    def tables(self) -> dict[str, Table]:
        """The tables by name."""
        return {name: store.table for name, store in self.stores.items()}

    def view(self, snapshot: int = 0) -> View:
        """Return the values after the last finished update, or of a snapshot; raise SnapshotLost."""
        if not snapshot:
            return self._view
        found = self._snapshots.get(snapshot)
        if found is None:
            raise SnapshotLost(
                f"there is no snapshot of version {snapshot} on this parameter server",
                "It was restarted, or has taken newer ones: evaluate a newer version.",
            )
        return found

    def rows(self, table: str, ids: torch.Tensor, view: View) -> torch.Tensor:
        """Return values of rows in the order of the ids, which may repeat; raise PushRefused for a wrong id."""
        store = self._store(table)
        self._check_ids(store.table, ids)
        return store.read(ids, view.rows.get(table))

    def push(self, gradient: Gradient) -> tuple[bool, int]:
        """Use a gradient. Return whether it is accepted, and the version; raise PushRefused if it doesn't fit.

        One that was counted before is accepted and changes nothing.
        """
        gradient = self._checked(gradient)
        with self._changing:
            if self._counted.has(gradient.minibatch):
                return True, self._view.version
            if not self._policy.accepts(self._view.version - gradient.version):
                return False, self._view.version
            self._counted.add(gradient.minibatch)
            self._waiting.append(gradient)
            if len(self._waiting) >= self._policy.waits_for:
                self._apply()
            return True, self._view.version

    def flush(self) -> int:
        """Apply gradients that are waiting for more; return the version."""
        with self._changing:
            if self._waiting:
                self._apply()
            return self._view.version

    def take_snapshot(self, number: int) -> None:
        """Keep the values as they are now under a number. It is safe to call this twice."""
        with self._changing:
            if number not in self._snapshots:
                self._snapshots[number] = self._rows_kept(lambda store: store.table.dim)
            dropped = [self._snapshots.popitem(last=False)[1] for _ in range(len(self._snapshots) - MAX_SNAPSHOTS)]
        for each in dropped:
            self._forget(each)

    def drop_snapshot(self, number: int) -> None:
        """Forget a snapshot. It is safe to call this twice."""
        with self._changing:
            dropped = self._snapshots.pop(number, None)
        if dropped:
            self._forget(dropped)

    @contextmanager
    def frozen(self) -> Iterator[Frozen]:
        """Yield everything as it is now, with the optimizer's state; updates go on meanwhile."""
        with self._changing:
            view = self._rows_kept(lambda store: store.width)
            waiting = frozenset(each.minibatch for each in self._waiting)
            frozen = Frozen(view, self.dense.state(), dict(self._steps), self._counted.to_json(waiting))
        try:
            yield frozen
        finally:
            self._forget(view)

    def _rows_kept(self, width: Callable[[RowStore], int]) -> View:
        rows = {name: store.snapshot(width(store)) for name, store in self.stores.items()}
        return View(self._view.version, self._view.dense, rows)

    def _forget(self, view: View) -> None:
        for name, rows in view.rows.items():
            self.stores[name].drop(rows)

    def _apply(self) -> None:
        gradient = mean(self._waiting)
        self._waiting = []
        age = self._view.version - gradient.version
        lr = self._policy.learning_rate(self.optimizer.lr if gradient.lr is None else gradient.lr, age)
        for name, (ids, values) in gradient.rows.items():
            self._steps[name] += 1
            if len(ids):
                fetched = self.stores[name].fetch(ids)
                rows = updated(self.optimizer, fetched.rows, values, self._steps[name], lr)
                self.stores[name].store(fetched, rows)
        self.dense.step(gradient.dense, gradient.buffers, lr)
        self._view = View(self._view.version + 1, self.dense.published, {})

    def _checked(self, gradient: Gradient) -> Gradient:
        self.dense.check(gradient.dense, gradient.buffers)
        rows = {name: self._checked_rows(name, *each) for name, each in gradient.rows.items()}
        if gradient.lr is not None and not 0 <= gradient.lr < float("inf"):
            raise PushRefused(f"the learning rate that was pushed is {gradient.lr}", "Push one of 0 or more.")
        return replace(gradient, rows=rows)

    def _checked_rows(self, name: str, ids: torch.Tensor, values: torch.Tensor) -> Rows:
        table = self._store(name).table
        self._check_ids(table, ids)
        if values.shape[1:] != (table.dim,) or values.dtype != torch.float32:
            raise PushRefused(
                f"rows of embedding table {name!r} have {table.dim} numbers (torch.float32) on the parameter server, "
                f"and shape {list(values.shape)} ({values.dtype}) in what was pushed",
                "All workers of a job must run the same model.",
            )
        finite(f"embedding table {name!r}", values)
        return coalesced(ids, values)

    def _check_ids(self, table: Table, ids: torch.Tensor) -> None:
        end = table.num_ids
        wrong = ids[(ids < 0) | (ids >= end)] if end is not None else ids[ids < 0]
        if len(wrong):
            allowed = f"ids are in [0, {end})" if end is not None else "ids are not negative"
            raise PushRefused(f"embedding table {table.name!r} has no row {int(wrong[0])}", f"Its {allowed}.")

    def _store(self, table: str) -> RowStore:
        store = self.stores.get(table)
        if store is None:
            known = ", ".join(self.stores) or "none"
            raise PushRefused(f"the parameter server doesn't know the embedding table {table!r}", f"It has: {known}.")
        return store

    def _restore(self, name: str, stored: StoredTable) -> None:
        absent = torch.full((len(stored.ids),), -1, dtype=torch.int64)
        self.stores[name].store(Fetched(stored.ids, absent, stored.rows), stored.rows)
        self._steps[name] = stored.steps
