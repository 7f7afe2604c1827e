"""Embedding tables as ordinary parameters, since each worker of AllreduceStrategy holds the whole model.

    hold_tables(model)             # each layers.Embedding of the model is now a HeldEmbedding
    whole(model, version=120)      # dense parameters and tables apart, as the model is exported

All rows exist from the beginning, with the values that they would have on the parameter servers. An optimizer treats
them as torch's own does with dense gradients: with momentum or Adam, rows that a minibatch does not touch change too.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import nn

from elasticdl import layers
from elasticdl.embedding_init import Table
from elasticdl.errors import InputError
from elasticdl.job import Strategy
from elasticdl.layers import Embedding
from elasticdl.ps.checkpoint import Model, TableRows
from elasticdl.worker.step import buffers


class HeldEmbedding(Embedding):
    """An embedding that keeps its rows in a parameter. Layers with the same table share it."""

    def __init__(self, layer: Embedding, weight: nn.Parameter) -> None:
        super().__init__(layer.table, combiner=layer.combiner, padding_id=layer.padding_id)
        self.weight = weight

    # The rows are in the parameter: torch then leaves the extra state out of state_dict.
    get_extra_state = nn.Module.get_extra_state
    set_extra_state = nn.Module.set_extra_state

    def _vectors(self, ids: torch.Tensor, is_padding: torch.Tensor) -> torch.Tensor:
        vectors = nn.functional.embedding(ids.masked_fill(is_padding, 0), self.weight)
        return vectors.masked_fill(is_padding.unsqueeze(-1), 0.0)


def hold_tables(model: nn.Module) -> nn.Module:
    """Return the model with its embedding tables as parameters; it is another object if it is such a layer itself.

    Raise InputError, which names the table, if the number of its rows is not known.
    """
    weights: dict[str, nn.Parameter] = {}
    found = layers.tables(model)
    for table in found.values():
        if table.num_ids is None:
            raise InputError(
                f"embedding table {table.name!r} has no num_ids, and {Strategy.ALLREDUCE} keeps all rows in a worker",
                f"Say how many there are, Table({table.name!r}, {table.dim}, num_ids=…), or train with "
                f"--distribution_strategy={Strategy.PARAMETER_SERVER}.",
            )
    replaced: dict[int, HeldEmbedding] = {}
    for layer in list(layers.embeddings(model)):
        table = layer.table
        if table.name not in weights:
            rows = layer.source.pull(table.name, torch.arange(_rows(table)))
            weights[table.name] = nn.Parameter(rows.to(torch.float32))
        replaced[id(layer)] = HeldEmbedding(layer, weights[table.name])
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if id(child) in replaced:
                setattr(parent, name, replaced[id(child)])
    return replaced.get(id(model), model)


def whole(model: nn.Module, version: int) -> Model:
    """Return copies of the model's values on the CPU: its dense parameters and buffers by name, and its tables."""
    held = {id(layer.weight) for layer in _held(model)}
    dense = {name: value.detach().cpu().clone() for name, value in model.named_parameters() if id(value) not in held}
    kept = {name: value.clone() for name, value in buffers(model).items()}
    tables = {
        layer.table.name: TableRows(layer.table, torch.arange(_rows(layer.table)), layer.weight.detach().cpu().clone())
        for layer in _held(model)
    }
    return Model(version, {**dense, **kept}, tables)


def _held(model: nn.Module) -> Iterator[HeldEmbedding]:
    return (layer for layer in model.modules() if isinstance(layer, HeldEmbedding))


def _rows(table: Table) -> int:
    assert table.num_ids is not None
    return table.num_ids
