"""Between the protocol's messages and what the code works with."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import numpy as np
import torch

from elasticdl.embedding_init import Table
from elasticdl.ps.errors import PushRefused
from elasticdl.ps.model.deduplication import Minibatch
from elasticdl.ps.model.gradients import Gradient, Rows
from elasticdl.rpc import elasticdl_pb2 as pb
from elasticdl.rpc.tensors import decode, encode

PART_BYTES = 64 << 20
"""A stream's message holds about this much: gRPC keeps whole messages in memory, and protobuf has a limit of 2 GiB."""


def gradient_from(message: pb.Gradients) -> Gradient:
    """Return the gradient of a message."""
    return Gradient(
        Minibatch(message.worker, message.process, message.minibatch),
        message.version,
        {name: decode(value) for name, value in message.dense.items()},
        {rows.table: rows_from(rows) for rows in message.rows},
        {name: decode(value) for name, value in message.buffers.items()},
        message.learning_rate if message.HasField("learning_rate") else None,
    )


def gradient_message(gradient: Gradient) -> pb.Gradients:
    """Return the message of a gradient."""
    return pb.Gradients(
        worker=gradient.minibatch.worker,
        process=gradient.minibatch.process,
        minibatch=gradient.minibatch.number,
        version=gradient.version,
        dense={name: encode(value) for name, value in gradient.dense.items()},
        rows=[rows_message(table, ids, values) for table, (ids, values) in gradient.rows.items()],
        buffers={name: encode(value) for name, value in gradient.buffers.items()},
        learning_rate=gradient.lr,
    )


def rows_message(table: str, ids: torch.Tensor, values: torch.Tensor | None = None) -> pb.Rows:
    """Return the message of rows, or of a wish for them."""
    message = pb.Rows(table=table, ids=ids.tolist())
    if values is not None:
        message.values.CopyFrom(encode(values))
    return message


def ids_from(message: pb.Rows) -> torch.Tensor:
    """Return the ids of a message."""
    return torch.from_numpy(np.fromiter(message.ids, np.int64, len(message.ids)))


def rows_from(message: pb.Rows) -> Rows:
    """Return ids and values of a message; raise PushRefused if they are not as many."""
    ids, values = ids_from(message), decode(message.values)
    if values.dim() != 2 or len(values) != len(ids):
        raise PushRefused(
            f"{len(ids)} ids of embedding table {message.table!r} came with values of shape {list(values.shape)}",
            "Give one row for each id.",
        )
    return ids, values


def table_message(table: Table) -> pb.TableInfo:
    """Return the message of a table."""
    return pb.TableInfo(
        name=table.name,
        dim=table.dim,
        initializer=table.initializer,
        dtype="float32",
        seed=table.seed,
        num_ids=table.num_ids or 0,
    )


def table_from(message: pb.TableInfo) -> Table:
    """Return the table of a message."""
    return Table(message.name, message.dim, message.initializer, message.seed, message.num_ids or None)


def in_parts(dense: Mapping[str, pb.Tensor], buffers: Iterable[str] = ()) -> Iterator[pb.ModelPart]:
    """Yield messages of about PART_BYTES with all tensors."""
    kept = set(buffers)
    part, size = pb.ModelPart(), 0
    for name, tensor in dense.items():
        if size and size + len(tensor.data) > PART_BYTES:
            yield part
            part, size = pb.ModelPart(), 0
        part.dense[name].CopyFrom(tensor)
        size += len(tensor.data)
        if name in kept:
            part.buffers.append(name)
    if part.dense:
        yield part
