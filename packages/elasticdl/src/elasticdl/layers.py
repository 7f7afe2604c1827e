"""Embeddings with rows that may be on the parameter servers.

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.users = Embedding(Table("user", 16, num_ids=1_000_000))
            self.history = Embedding(Table("item", 16), combiner="mean", padding_id=0)

    attach(model, source)                       # a worker: rows come from the parameter servers
    loss(labels, model(features)).backward()
    for name, ids, rows in collect_gradients(model): ...

A model may hold more rows than a worker has memory for: `forward` asks for the rows of its minibatch alone. Without a
source a layer keeps the rows itself. Rows are no parameters of the module: torch's optimizers do not
see them, and a training loop takes their gradients from `collect_gradients`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple, Protocol

import torch
from torch import nn

from elasticdl.embedding_init import Table
from elasticdl.errors import InputError
from elasticdl.ps.model.rows import RowStore

COMBINERS = ("sum", "mean", "sqrtn")


class EmbeddingSource(Protocol):
    """Where the rows of tables are."""

    def pull(self, name: str, ids: torch.Tensor) -> torch.Tensor:
        """Return the rows of a table.

        Args:
            name: of the table.
            ids: int64, one-dimensional, ascending, each once.

        Returns:
            float32, (len(ids), dim). The caller does not change them.
        """
        ...


class RowGradient(NamedTuple):
    """The gradient of rows of a table."""

    name: str
    ids: torch.Tensor
    """int64, ascending, each once."""
    rows: torch.Tensor
    """float32, (len(ids), dim)."""


class LocalTables:
    """Tables in this process. A row that was not assigned has its first value. An EmbeddingSource."""

    def __init__(self, tables: Iterable[Table]) -> None:
        self._stores = {table.name: RowStore(table) for table in tables}

    def pull(self, name: str, ids: torch.Tensor) -> torch.Tensor:
        """Return rows."""
        return self._stores[name].read(ids)

    def assign(self, name: str, ids: torch.Tensor, rows: torch.Tensor) -> None:
        """Set rows of distinct ids."""
        store = self._stores[name]
        store.store(store.fetch(ids), rows.detach().to("cpu", torch.float32))

    def assigned(self, name: str) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the ids of the rows that were assigned, ascending, and these rows."""
        store = self._stores[name]
        all_rows = store.snapshot(store.width)
        ids = store.ids(all_rows).sort().values
        store.drop(all_rows)
        return ids, store.read(ids)


class Embedding(nn.Module):
    """Rows of a table by id.

    Args:
        table: the table that has the rows. Layers with the same table share it, once a source is attached.
        combiner: sum, mean or sqrtn make one vector of the ids of a bag, sqrtn the sum divided by the square root of
            their number; None: a vector for each id.
        padding_id: an id that stands for none: its vector is zero, it is not counted and has no gradient.
    """

    def __init__(self, table: Table, *, combiner: str | None = None, padding_id: int | None = None) -> None:
        super().__init__()
        if combiner is not None and combiner not in COMBINERS:
            raise InputError(
                f"embedding table {table.name!r}: unknown combiner {combiner!r}", f"known are {', '.join(COMBINERS)}"
            )
        self.table = table
        self.combiner = combiner
        self.padding_id = padding_id
        self.source: EmbeddingSource = LocalTables([table])
        self._pulled: list[tuple[torch.Tensor, torch.Tensor]] = []

    def forward(self, ids: torch.Tensor, offsets: torch.Tensor | None = None) -> torch.Tensor:
        """Return vectors of ids.

        Args:
            ids: whole numbers of any shape. With a combiner the last dimension is the bag, unless there are offsets.
            offsets: with a combiner and one-dimensional ids: where each bag begins, as torch's EmbeddingBag has it.

        Returns:
            float32: ids' shape and dim; with a combiner, without the dimension of the bag.

        Raises:
            InputError: An id is out of the table's range, or shape and combiner do not fit. It names the table.
        """
        self._check(ids, offsets)
        ids = ids.to(torch.int64)
        is_padding = torch.zeros_like(ids, dtype=torch.bool) if self.padding_id is None else ids == self.padding_id
        vectors = self._vectors(ids, is_padding)
        if self.combiner is None:
            return vectors
        count = (~is_padding).to(vectors.dtype).unsqueeze(-1)
        if offsets is None:
            return self._combined(vectors.sum(-2), count.sum(-2))
        sizes = torch.diff(offsets, append=offsets.new_tensor([len(ids)]))
        bags = torch.repeat_interleave(torch.arange(len(sizes), device=ids.device), sizes)
        summed = vectors.new_zeros(len(sizes), self.table.dim).index_add(0, bags, vectors)
        return self._combined(summed, count.new_zeros(len(sizes), 1).index_add(0, bags, count))

    def collect_gradients(self) -> list[RowGradient]:
        """Return the gradients of all rows since the last call, as one entry or none, and forget them.

        Call it after each backward pass, on failure too: the layer keeps the rows of each `forward` until then.
        """
        pulled, self._pulled = self._pulled, []
        used = [(ids, rows.grad) for ids, rows in pulled if rows.grad is not None]
        return _summed(self.table.name, used)

    def load(self, ids: torch.Tensor, rows: torch.Tensor) -> None:
        """Keep rows in the layer itself from now on, such as those of a model that is exported."""
        local = LocalTables([self.table])
        local.assign(self.table.name, ids, rows)
        self.source = local

    def get_extra_state(self) -> dict[str, torch.Tensor]:
        """Return the rows that the layer keeps itself, for `state_dict`; nothing if they are elsewhere."""
        if not isinstance(self.source, LocalTables):
            return {}
        ids, rows = self.source.assigned(self.table.name)
        return {"ids": ids, "rows": rows}

    def set_extra_state(self, state: Any) -> None:
        """Take the rows of a `state_dict`."""
        if state:
            self.load(state["ids"], state["rows"])

    def extra_repr(self) -> str:
        """Return the table, for `print(model)`."""
        return f"{self.table}, combiner={self.combiner}, padding_id={self.padding_id}"

    def _vectors(self, ids: torch.Tensor, is_padding: torch.Tensor) -> torch.Tensor:
        """Return a vector for each id; of padding, zeros."""
        unique = torch.unique(ids[~is_padding])
        rows = self.source.pull(self.table.name, unique.cpu()).to(ids.device, torch.float32)
        if rows.shape != (len(unique), self.table.dim):
            raise InputError(
                f"embedding table {self.table.name!r}: its rows came as {tuple(rows.shape)} for {len(unique)} ids of "
                f"{self.table.dim} numbers",
                "all processes of a job must have the same model; a checkpoint of another one can't be used",
            )
        rows = rows.detach()
        if torch.is_grad_enabled():
            rows.requires_grad_()
            self._pulled.append((unique, rows))
        padded = torch.cat([rows, rows.new_zeros(1, self.table.dim)])
        places = torch.where(is_padding, len(unique), torch.searchsorted(unique, ids.contiguous()))
        return nn.functional.embedding(places, padded)

    def _combined(self, summed: torch.Tensor, count: torch.Tensor) -> torch.Tensor:
        """Return what the combiner makes of the sum and the number of ids of each bag; zeros of an empty bag."""
        if self.combiner == "sum":
            return summed
        count = count.clamp(min=1)
        return summed / (count if self.combiner == "mean" else count.sqrt())

    def _check(self, ids: torch.Tensor, offsets: torch.Tensor | None) -> None:
        name = f"embedding table {self.table.name!r}"
        if ids.is_floating_point() or ids.is_complex() or ids.dtype is torch.bool:
            raise InputError(f"{name}: ids are {ids.dtype}", "convert them to whole numbers in feed()")
        if offsets is not None and (self.combiner is None or ids.ndim != 1):
            raise InputError(
                f"{name}: offsets with ids of {ids.ndim} dimensions and combiner {self.combiner}",
                "offsets need a combiner and ids of one dimension",
            )
        if offsets is not None:
            edges = [*offsets.reshape(-1).tolist(), len(ids)]
            if offsets.ndim != 1 or offsets.is_floating_point() or edges[0] != 0 or edges != sorted(edges):
                raise InputError(
                    f"{name}: its {len(ids)} ids have the offsets {offsets.tolist()}",
                    "give whole numbers in ascending order: 0 first, none above the number of ids",
                )
        if self.combiner is not None and ids.ndim == 0:
            raise InputError(f"{name}: one id, and the combiner {self.combiner}", "a combiner needs bags of ids")
        if not ids.numel():
            return
        wrong = (ids < 0) if self.table.num_ids is None else (ids < 0) | (ids >= self.table.num_ids)
        if self.padding_id is not None:
            wrong &= ids != self.padding_id
        if bool(wrong.any()):
            known = "" if self.table.num_ids is None else f", {self.table.num_ids})"
            raise InputError(
                f"{name}: id {int(ids[wrong][0])} is not in [0{known or ', …)'}", "correct the data, feed() or num_ids"
            )


def embeddings(model: nn.Module) -> Iterator[Embedding]:
    """Yield the embedding layers of a model."""
    return (module for module in model.modules() if isinstance(module, Embedding))


def tables(model: nn.Module) -> dict[str, Table]:
    """Return the tables of a model by name; raise InputError if two that differ have the same name."""
    found: dict[str, Table] = {}
    for layer in embeddings(model):
        if found.setdefault(layer.table.name, layer.table) != layer.table:
            raise InputError(
                f"two embedding tables are named {layer.table.name!r}: {layer.table} and {found[layer.table.name]}",
                "give them different names, or the same Table to share it",
            )
    return found


def attach(model: nn.Module, source: EmbeddingSource) -> None:
    """Let all embedding layers of a model take their rows from a source."""
    tables(model)
    for layer in embeddings(model):
        layer.source = source


def collect_gradients(model: nn.Module) -> list[RowGradient]:
    """Return the gradients of all tables since the last call, one entry for each table that has any."""
    found: dict[str, list[tuple[torch.Tensor, torch.Tensor]]] = {}
    for layer in embeddings(model):
        for name, ids, rows in layer.collect_gradients():
            found.setdefault(name, []).append((ids, rows))
    return [gradient for name, used in found.items() for gradient in _summed(name, used)]


def _summed(name: str, used: list[tuple[torch.Tensor, torch.Tensor]]) -> list[RowGradient]:
    """Return gradients of the same table as one, those of the same id added in the order of the list."""
    used = [(ids, rows) for ids, rows in used if len(ids)]
    if len(used) < 2:
        return [RowGradient(name, ids, rows) for ids, rows in used]
    unique, places = torch.unique(torch.cat([ids for ids, _ in used]), return_inverse=True)
    rows = torch.cat([rows for _, rows in used])
    return [RowGradient(name, unique, rows.new_zeros(len(unique), rows.shape[1]).index_add(0, places, rows))]
