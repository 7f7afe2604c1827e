"""A model that is spread over parameter servers, as a worker or the master sees it.

    with PsClient(["mnist-ps-0:2222", "mnist-ps-1:2222"], worker="mnist-worker-0") as servers:
        servers.init_model(dict(model.named_parameters()), tables, Adam())
        values = servers.pull_dense()                        # those that are newer than what was pulled before
        rows = servers.pull_rows("user", ids)
        accepted = servers.push_gradients(17, gradients, {"user": (ids, row_gradients)})
        if not all(accepted): ...                            # pull, compute, and push number 17 again

All servers are called at the same time. A server that is away is waited for. One that comes back from a checkpoint has
lost what was pushed since; one that comes back without a model gets this client's.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Self, TypeVar

import torch

from elasticdl.embedding_init import Table
from elasticdl.errors import InputError
from elasticdl.ps import messages
from elasticdl.ps.checkpoint import Model, TableRows
from elasticdl.ps.connection import MODEL_SECONDS, Connection, Patience
from elasticdl.ps.errors import PushRefused
from elasticdl.ps.model.deduplication import Minibatch
from elasticdl.ps.model.gradients import Gradient, Rows
from elasticdl.ps.placement import coalesced, server_of, split
from elasticdl.rpc import elasticdl_pb2 as pb
from elasticdl.rpc.channels import CALL_SECONDS
from elasticdl.rpc.tensors import decode, encode
from elasticdl.zoo.optimizers import Optimizer

T = TypeVar("T")
Tensors = Mapping[str, torch.Tensor]

MAX_BYTES = (1 << 31) - (1 << 20)
"""Of one dense parameter, and of a minibatch's gradients for one server: a protobuf message can't exceed 2 GiB."""


class PsClient:
    """All parameter servers of a job. May be used by several threads; a minibatch by one."""

    def __init__(
        self,
        addresses: Sequence[str],
        *,
        worker: str = "",
        process: str = "",
        patience_seconds: float = 300.0,
        say: Callable[[str], None] = print,
    ) -> None:
        """Prepare connections; nothing is sent yet.

        Args:
            addresses: `host:port` of each server, in the order of their index.
            worker: name of this worker.
            process: id of this process; an empty one is drawn.
            patience_seconds: for how long a server may be away.
            say: receives messages for the user.
        """
        if not addresses:
            raise InputError("--ps_addrs is empty", "Give host:port of each parameter server, separated by commas.")
        self._worker, self._process = worker, process or secrets.token_hex(8)
        patience = Patience(patience_seconds, say)
        self._servers = [Connection(index, len(addresses), each, patience) for index, each in enumerate(addresses)]
        # Two for each server: rows may be pulled while gradients are pushed.
        self._threads = ThreadPoolExecutor(2 * len(addresses), thread_name_prefix="ps-client")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections. It is safe to call this twice."""
        for server in self._servers:
            server.close()
        self._threads.shutdown()

    @property
    def version(self) -> int:
        """Version of server 0 that was pulled last; -1 before the first."""
        return self._servers[0].version

    def init_model(
        self, dense: Tensors, tables: Iterable[Table], optimizer: Optimizer, buffers: Tensors | None = None
    ) -> None:
        """Send the model. The first one that a server gets counts; others are checked against it.

        The mappings are kept: a server that comes back without a model gets the values that these tensors have then,
        and goes on from the version that this client has pulled last.

        Args:
            dense: parameters by name.
            tables: embedding tables. Their rows are on the servers only.
            optimizer: for all of them.
            buffers: tensors by name that no optimizer changes.

        Raises:
            PushRefused: the servers have another model; says which parameter differs and both shapes.
            InputError: a parameter is too large for one message.
        """
        buffers = buffers or {}
        self._check_size({**dense, **buffers})
        described = [messages.table_message(table) for table in tables]

        def model(index: int) -> Iterator[pb.ModelPart]:
            version = max(0, self._servers[index].version)
            yield pb.ModelPart(tables=described, optimizer=optimizer.to_json(), version=version)
            mine = {**self._mine(dense, index), **self._mine(buffers, index)}
            yield from messages.in_parts({name: encode(value) for name, value in mine.items()}, buffers)

        self._at_all(lambda server: server.push_model(lambda: model(server.index)))

    def pull_dense(self, *, snapshot: int = 0, everything: bool = False) -> dict[str, torch.Tensor]:
        """Return dense parameters and buffers by name.

        Args:
            snapshot: the snapshot to read, as a whole; 0: the newest values.
            everything: whether servers without a newer version send theirs, too.

        Raises:
            SnapshotLost: a server doesn't have the snapshot.
        """
        return _merged(self._at_all(lambda server: self._pull(server, snapshot, everything)))

    def pull_rows(self, table: str, ids: torch.Tensor, *, snapshot: int = 0) -> torch.Tensor:
        """Return rows, float32 (len(ids), dim).

        Args:
            table: its name.
            ids: int64, (n,), in any order; may repeat.
            snapshot: the snapshot to read; 0: the newest values.
        """
        unique, inverse = torch.unique(ids, return_inverse=True)
        positions = split(unique, len(self._servers))

        def pull(server: Connection) -> torch.Tensor | None:
            wanted = messages.rows_message(table, unique[positions[server.index]])
            if (
                not wanted.ids and server.index
            ):  # server 0 answers for an empty wish: how wide a row is, or no such table
                return None
            request = pb.PullRowsRequest(wanted=[wanted], snapshot=snapshot)
            return decode(server.call(lambda: server.stub.PullRows(request, timeout=CALL_SECONDS)).rows[0].values)

        pulled = self._at_all(pull)
        rows = torch.empty(len(unique), next(each.shape[1] for each in pulled if each is not None))
        for where, values in zip(positions, pulled, strict=True):
            if values is not None:
                rows[where] = values
        return rows[inverse]

    def push_gradients(
        self,
        minibatch: int,
        dense: Tensors,
        rows: Mapping[str, Rows] | None = None,
        *,
        lr: float | None = None,
        buffers: Tensors | None = None,
    ) -> tuple[bool, ...]:
        """Push a minibatch's gradients. Return, for each server, whether it accepts them.

        If one doesn't, they are too old: pull, compute them anew and push them under the same number. Servers that
        have accepted the number ignore it.

        Args:
            minibatch: ascending number; each is counted once.
            dense: gradients by parameter. A parameter without a gradient is left out.
            rows: ids and gradients of rows by table; ids may repeat.
            lr: learning rate; None: the optimizer's own.
            buffers: new values of buffers.

        Raises:
            PushRefused: something doesn't fit, or isn't finite; says which parameter.
        """
        pushed = self._split(rows or {})

        def push(server: Connection) -> bool:
            gradient = Gradient(
                Minibatch(self._worker, self._process, minibatch),
                max(0, server.version),
                self._mine(dense, server.index),
                pushed[server.index],
                self._mine(buffers or {}, server.index),
                lr,
            )
            message = messages.gradient_message(gradient)
            message.server = server.process
            reply = server.call(lambda: server.stub.PushGradients(message, timeout=CALL_SECONDS))
            server.saw(reply.process)
            return bool(reply.accepted)

        return tuple(self._at_all(push))

    def pull_model(self) -> Model:
        """Return the whole model, embedding tables included: for the export."""
        request = pb.PullRequest(newer_than=-1)
        streams = self._at_all(
            lambda server: server.call(lambda: list(server.stub.PullAll(request, timeout=MODEL_SECONDS)))
        )
        parts = [part for stream in streams for part in stream]
        tables = {info.name: messages.table_from(info) for part in parts for info in part.tables}
        rows = {
            name: [messages.rows_from(each) for part in parts for each in part.rows if each.table == name]
            for name in tables
        }
        return Model(
            max(part.version for part in streams[0]),
            {name: decode(value) for part in parts for name, value in part.dense.items()},
            {name: _joined(table, rows[name]) for name, table in tables.items()},
        )

    def _pull(self, server: Connection, snapshot: int, everything: bool) -> dict[str, torch.Tensor]:
        def pull() -> list[pb.ModelPart]:
            newer_than = -1 if everything else server.version
            request = pb.PullRequest(newer_than=newer_than, snapshot=snapshot, process=server.process)
            return list(server.stub.Pull(request, timeout=MODEL_SECONDS))

        parts = server.call(pull)
        server.saw(parts[0].process)
        if not snapshot:
            server.version = parts[0].version
        return {name: decode(value) for part in parts for name, value in part.dense.items()}

    def _mine(self, tensors: Tensors, index: int) -> dict[str, torch.Tensor]:
        return {name: value for name, value in tensors.items() if server_of(name, len(self._servers)) == index}

    def _check_size(self, tensors: Tensors) -> None:
        """Raise InputError if a parameter, or all gradients of a server, don't fit into one message."""
        sizes = {name: value.numel() * value.element_size() for name, value in tensors.items()}
        for name, size in sizes.items():
            if size > MAX_BYTES:
                raise InputError(
                    f"{name} has shape {list(tensors[name].shape)}, more than 2 GiB",
                    "Use elasticdl.layers.Embedding for large tables; split other parameters.",
                )
        for server in self._servers:
            total = sum(sizes[name] for name in self._mine(tensors, server.index))
            if total > MAX_BYTES:
                raise InputError(
                    f"the dense parameters of {server.name} take {total / 2**30:.1f} GiB, and a minibatch's gradients "
                    "of a server must fit into one message of 2 GiB",
                    "Use more servers: --num_ps_pods.",
                )

    def _split(self, rows: Mapping[str, Rows]) -> list[dict[str, Rows]]:
        """Return each server's rows. A server without rows of a table gets none, so that it counts the step, too."""
        found: list[dict[str, Rows]] = [{} for _ in self._servers]
        for table, (ids, values) in rows.items():
            if values.dim() != 2 or len(values) != len(ids):
                raise PushRefused(
                    f"{len(ids)} ids of embedding table {table!r} came with values of shape {list(values.shape)}",
                    "Give one row for each id.",
                )
            unique, summed = coalesced(ids, values.detach())
            for index, positions in enumerate(split(unique, len(self._servers))):
                found[index][table] = (unique[positions], summed[positions])
        return found

    def _at_all(self, do: Callable[[Connection], T]) -> list[T]:
        """Return what each server gives; raise the first error once all have answered."""
        if len(self._servers) == 1:
            return [do(self._servers[0])]
        asked = [self._threads.submit(do, server) for server in self._servers]
        errors = [error for each in asked if (error := each.exception())]
        if errors:
            raise errors[0]
        return [each.result() for each in asked]


def _merged(tensors: Iterable[Tensors]) -> dict[str, torch.Tensor]:
    return {name: value for each in tensors for name, value in each.items()}


def _joined(table: Table, rows: Sequence[Rows]) -> TableRows:
    ids = torch.cat([torch.empty(0, dtype=torch.int64), *(ids for ids, _ in rows)])
    return TableRows.ordered(table, ids, torch.cat([torch.empty(0, table.dim), *(values for _, values in rows)]))
