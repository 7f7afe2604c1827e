"""The model that a worker pushes: the first one counts, later ones must be the same model."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch

from elasticdl.embedding_init import Table
from elasticdl.ps.errors import PushRefused
from elasticdl.ps.messages import table_from
from elasticdl.ps.model.dense import fits
from elasticdl.ps.model.part import Contents, Part
from elasticdl.rpc import elasticdl_pb2 as pb
from elasticdl.rpc.tensors import decode
from elasticdl.zoo.optimizers import Optimizer


@dataclass(frozen=True)
class Pushed:
    """What a worker pushes."""

    dense: dict[str, torch.Tensor]
    buffers: dict[str, torch.Tensor]
    tables: dict[str, Table]
    optimizer: Optimizer
    version: int
    """0: as it is made; otherwise of a model that was trained, for a server that has lost its part."""

    @staticmethod
    def of(parts: Iterable[pb.ModelPart]) -> Pushed:
        """Return the model of a stream of messages; raise PushRefused if a parameter can't be optimized."""
        tensors, buffers, tables, optimizer = dict[str, torch.Tensor](), set[str](), dict[str, Table](), ""
        version = 0
        for part in parts:
            tensors.update({name: decode(value) for name, value in part.dense.items()})
            buffers.update(part.buffers)
            tables.update({info.name: table_from(info) for info in part.tables})
            optimizer = part.optimizer or optimizer
            version = max(version, part.version)
        for name, value in tensors.items():
            if name not in buffers and not value.is_floating_point():
                raise PushRefused(f"{name} has type {value.dtype}, which has no gradient", "Push it among the buffers.")
        return Pushed(
            {name: value for name, value in tensors.items() if name not in buffers},
            {name: value for name, value in tensors.items() if name in buffers},
            tables,
            Optimizer.from_json(optimizer),
            version,
        )


def contents_of(pushed: Pushed) -> Contents:
    """Return what a server begins with, by a worker's model."""
    return Contents(pushed.dense, pushed.tables, pushed.optimizer, pushed.buffers, version=pushed.version)


def checked_against(pushed: Pushed, part: Part) -> None:
    """Raise PushRefused, with the name of what differs, if a model isn't the one that the server holds."""
    held = {**part.dense.parameters, **part.dense.buffers}
    tensors = {**pushed.dense, **pushed.buffers}
    for name, value in tensors.items():
        fits(name, value, held.get(name))
    missing = sorted(set(held) - set(tensors))
    if missing:
        raise PushRefused(
            f"the parameter server holds {', '.join(missing[:5])}, and the model that was pushed doesn't",
            "All workers of a job must run the same model; a checkpoint must be of this model, too.",
        )
    if pushed.tables != part.tables:
        raise PushRefused(
            f"the embedding tables differ: the parameter server has {list(part.tables.values())}, "
            f"and {list(pushed.tables.values())} were pushed",
            "All workers of a job must run the same model.",
        )
    if pushed.optimizer != part.optimizer:
        raise PushRefused(
            f"the optimizers differ: the parameter server has {part.optimizer}, and {pushed.optimizer} was pushed",
            "To go on from a checkpoint with another optimizer, submit a new job with --checkpoint_dir_for_init.",
        )
