"""The model of a job in one process: what one parameter server holds, without the server.

The same optimizers change the same numbers in the same order as with one server and one worker, so a job with
`--distribution_strategy=Local` is what others are compared with.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

import torch

from elasticdl import layers
from elasticdl.ps.checkpoint import Model, TableRows
from elasticdl.ps.model.deduplication import Minibatch
from elasticdl.ps.model.gradients import Gradient
from elasticdl.ps.model.part import Contents, Part
from elasticdl.ps.model.policy import Policy
from elasticdl.rpc.tensors import decode
from elasticdl.worker.parameters import Gradients
from elasticdl.worker.step import buffers
from elasticdl.zoo.optimizers import Optimizer


class Here:
    """The model, in this process."""

    def __init__(self, model: torch.nn.Module, part: Part, advanced: Callable[[int], None]) -> None:
        """Hold a model.

        Args:
            model: into which values are pulled.
            part: what holds them.
            advanced: is called with each new version.
        """
        self.part = part
        self._advanced = advanced
        self._targets = {**dict(model.named_parameters()), **_buffers(model)}
        self._rows = Rows(part)
        layers.attach(model, self._rows)

    def pull(self) -> int:
        """See `Parameters`."""
        return self._load(0)

    def push(self, minibatch: int, gradients: Gradients, learning_rate: float) -> bool:
        """See `Parameters`. There is no other worker, so no gradient is too old."""
        before = self.part.view().version
        rows = {each.name: (each.ids.cpu(), each.rows.cpu()) for each in gradients.rows}
        number = Minibatch("local", "local", minibatch)
        gradient = Gradient(number, before, gradients.dense, rows, gradients.buffers, learning_rate)
        accepted, version = self.part.push(gradient)
        if version > before:
            self._advanced(version)
        return accepted

    @contextlib.contextmanager
    def snapshot(self, version: int) -> Iterator[None]:
        """See `Parameters`."""
        self._load(version)
        try:
            yield
        finally:
            self._rows.snapshot = 0

    def idle(self) -> None:
        """See `Parameters`. Nothing can be lost here."""

    def whole(self) -> Model:
        """See `Parameters`."""
        view = self.part.view()
        tables = {}
        with self.part.frozen() as frozen:
            for name, store in self.part.stores.items():
                rows = frozen.view.rows[name]
                values = store.slice(rows, 0, rows.count)[:, : store.table.dim]
                tables[name] = TableRows.ordered(store.table, store.ids(rows), values)
        return Model(view.version, {name: decode(value) for name, value in view.dense.items()}, tables)

    def _load(self, snapshot: int) -> int:
        view = self.part.view(snapshot)
        self._rows.snapshot = snapshot
        with torch.no_grad():
            for name, value in view.dense.items():
                self._targets[name].copy_(decode(value))
        return view.version


class Rows:
    """The rows of the tables: an `EmbeddingSource` of the module's layers."""

    def __init__(self, part: Part) -> None:
        self._part = part
        self.snapshot = 0
        """The snapshot that rows are read from; 0: the current values."""

    def pull(self, name: str, ids: torch.Tensor) -> torch.Tensor:
        """See `EmbeddingSource`."""
        return self._part.rows(name, ids, self._part.view(self.snapshot))


def held(model: torch.nn.Module, optimizer: Optimizer) -> Contents:
    """Return a model's present values as a parameter server begins with them."""
    dense = {name: value.detach().cpu().clone() for name, value in model.named_parameters()}
    kept = {name: value.clone() for name, value in buffers(model).items()}
    return Contents(dense, layers.tables(model), optimizer, kept)


def opened(contents: Contents) -> Part:
    """Return what holds a model for one worker: each gradient is applied at once."""
    return Part(contents, Policy())


def _buffers(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    saved = model.state_dict().keys()
    return {name: buffer for name, buffer in model.named_buffers() if name in saved}
