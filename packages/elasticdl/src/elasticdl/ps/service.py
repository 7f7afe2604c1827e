"""The gRPC service of one parameter server.

    service = ParameterServer(Identity(index=0, servers=2), settings, changed=reporter.report)
    server = serve(service, "0.0.0.0:2222")

A call that doesn't fit ends with INVALID_ARGUMENT, one on a server without a model with FAILED_PRECONDITION, one for a
snapshot that is not there with NOT_FOUND. Each says what and why.
"""

from __future__ import annotations

import secrets
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent import futures
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import grpc
import torch

from elasticdl.embedding_init import Table
from elasticdl.errors import ElasticDLError, Unavailable
from elasticdl.ps import messages
from elasticdl.ps.checkpoint import Found, load_values, save_part
from elasticdl.ps.errors import NoModel, PushRefused, SnapshotLost
from elasticdl.ps.messages import table_from
from elasticdl.ps.model.dense import fits
from elasticdl.ps.model.part import Contents, Part, View
from elasticdl.ps.model.policy import Policy
from elasticdl.rpc import channels
from elasticdl.rpc import elasticdl_pb2 as pb
from elasticdl.rpc import elasticdl_pb2_grpc as services
from elasticdl.rpc.tensors import decode, encode
from elasticdl.zoo.optimizers import Optimizer

THREADS = 64
"""Calls at a time. Pushes that wait for an update hold a thread each; pulls need one, too."""
ROWS_OF_A_PART = 65536
_LOST = sys.maxsize
"""Version of a gradient by values that this server, which was restarted, never had: newer than any of its own."""


@dataclass(frozen=True)
class Identity:
    """Which server this is."""

    index: int
    servers: int
    process: str = field(default_factory=lambda: secrets.token_hex(8))
    """Another one after a restart."""


class ParameterServer(services.ParameterServerServicer):
    """Answers the calls of workers and master."""

    def __init__(
        self,
        identity: Identity,
        policy: Policy,
        *,
        restored: Contents | None = None,
        init_from: Found | None = None,
        changed: Callable[[int], None] = lambda version: None,
        say: Callable[[str], None] = print,
    ) -> None:
        """Take what the server begins with.

        Args:
            identity: Which server this is.
            policy: What it does with gradients.
            restored: Its part of the checkpoint that it goes on from.
            init_from: A checkpoint of another job. Its values and version replace those of the first model.
            changed: Is called with each new version; must return at once.
            say: Receives messages for the user.
        """
        self._identity, self._policy = identity, policy
        self._init_from, self._changed, self._say = init_from, changed, say
        self._beginning = threading.Lock()
        self._part = Part(restored, policy) if restored else None

    def GetState(self, request: pb.Nothing, context: grpc.ServicerContext) -> pb.ServerState:  # noqa: N802 # the protocol's
        """Return who this is and which version it has."""
        return self._state()

    def PushModel(  # noqa: N802
        self, request_iterator: Iterable[pb.ModelPart], context: grpc.ServicerContext
    ) -> pb.ServerState:
        """Take the first model that comes; check later ones against it."""
        with _told(context):
            pushed = Pushed.of(request_iterator)
            with self._beginning:
                if self._part is None:
                    self._part = Part(self._initial(pushed), self._policy)
                    self._say(f"the model is here: {len(pushed.dense)} dense parameters, {len(pushed.tables)} tables")
                    self._changed(self._part.view().version)
                else:
                    checked_against(pushed, self._part)
            return self._state()

    def Pull(self, request: pb.PullRequest, context: grpc.ServicerContext) -> Iterator[pb.ModelPart]:  # noqa: N802
        """Send dense values, unless the worker has them."""
        with _told(context):
            part = self._there()
            view = part.view(request.snapshot)
            known = request.process == self._identity.process and request.newer_than >= view.version
            yield self._part_of(pb.ModelPart(), view)
            if request.snapshot or not known:
                for message in messages.in_parts(view.dense, part.dense.buffers):
                    yield self._part_of(message, view)

    def PullRows(self, request: pb.PullRowsRequest, context: grpc.ServicerContext) -> pb.PullRowsReply:  # noqa: N802
        """Send rows in the order of their ids."""
        with _told(context):
            part = self._there()
            view = part.view(request.snapshot)
            reply = pb.PullRowsReply(version=view.version, process=self._identity.process)
            for wanted in request.wanted:
                values = part.rows(wanted.table, messages.ids_from(wanted), view)
                reply.rows.append(pb.Rows(table=wanted.table, values=encode(values)))
            return reply

    def PushGradients(self, request: pb.Gradients, context: grpc.ServicerContext) -> pb.GradientsReply:  # noqa: N802
        """Use a minibatch's gradients, once."""
        with _told(context):
            part = self._there()
            before = part.view().version
            gradient = messages.gradient_from(request)
            if request.server not in ("", self._identity.process):
                gradient = replace(gradient, version=_LOST)
            accepted, version = part.push(gradient)
            if version > before:
                self._changed(version)
            return pb.GradientsReply(accepted=accepted, version=version, process=self._identity.process)

    def Flush(self, request: pb.Nothing, context: grpc.ServicerContext) -> pb.ServerState:  # noqa: N802
        """Apply what is waiting for more gradients."""
        if self._part is not None:
            self._changed(self._part.flush())
        return self._state()

    def TakeSnapshot(self, request: pb.SnapshotRequest, context: grpc.ServicerContext) -> pb.ServerState:  # noqa: N802
        """Keep the values as they are now."""
        with _told(context):
            self._there().take_snapshot(request.snapshot)
            return self._state()

    def DropSnapshot(self, request: pb.SnapshotRequest, context: grpc.ServicerContext) -> pb.Nothing:  # noqa: N802
        """Forget a snapshot."""
        if self._part is not None:
            self._part.drop_snapshot(request.snapshot)
        return pb.Nothing()

    def Save(self, request: pb.SaveRequest, context: grpc.ServicerContext) -> pb.SavedPart:  # noqa: N802
        """Write this server's part of a checkpoint. Updates go on meanwhile."""
        with _told(context):
            part = self._there()
            with part.frozen() as frozen:
                place = (self._identity.index, self._identity.servers)
                saved = save_part(request.directory, request.version, place, part, frozen)
            return pb.SavedPart(file=saved.file, size=saved.size, sha256=saved.sha256, version=frozen.view.version)

    def PullAll(self, request: pb.PullRequest, context: grpc.ServicerContext) -> Iterator[pb.ModelPart]:  # noqa: N802
        """Send everything, rows included."""
        with _told(context):
            part = self._there()
            with part.frozen() as frozen:
                yield from self._everything(part, frozen.view)

    def _everything(self, part: Part, view: View) -> Iterator[pb.ModelPart]:
        head = pb.ModelPart(optimizer=part.optimizer.to_json())
        head.tables.extend(messages.table_message(table) for table in part.tables.values())
        yield self._part_of(head, view)
        for message in messages.in_parts(view.dense, part.dense.buffers):
            yield self._part_of(message, view)
        for name, snapshot in view.rows.items():
            store = part.stores[name]
            ids = store.ids(snapshot)
            for start in range(0, len(ids), ROWS_OF_A_PART):
                end = min(start + ROWS_OF_A_PART, len(ids))
                values = store.slice(snapshot, start, end)[:, : store.table.dim]
                rows = messages.rows_message(name, ids[start:end], values)
                yield self._part_of(pb.ModelPart(rows=[rows]), view)

    def _part_of(self, message: pb.ModelPart, view: View) -> pb.ModelPart:
        message.version, message.process = view.version, self._identity.process
        return message

    def _initial(self, pushed: Pushed) -> Contents:
        contents = contents_of(pushed)
        if self._init_from is None:
            return contents
        loaded = load_values(self._init_from, (self._identity.index, self._identity.servers), contents)
        if pushed.version:  # this server has lost its part, and the worker's dense values were trained since
            self._say(f"rows are those of {self._init_from.address}, dense values the worker's")
            return replace(loaded, dense=contents.dense, buffers=contents.buffers)
        self._say(f"values are those of {self._init_from.address}")
        return replace(loaded, version=self._init_from.version)

    def _there(self) -> Part:
        if self._part is None:
            raise NoModel(f"parameter server {self._identity.index} has no model yet", "A worker pushes it.")
        return self._part

    def _state(self) -> pb.ServerState:
        part = self._part
        return pb.ServerState(
            initialized=part is not None,
            version=part.view().version if part else 0,
            process=self._identity.process,
            index=self._identity.index,
            servers=self._identity.servers,
        )


def serve(service: ParameterServer, address: str) -> tuple[grpc.Server, int]:
    """Start a server. Return it and its port, which the system chooses for port 0.

    Raises:
        ElasticDLError: the port is taken.
    """
    server = grpc.server(futures.ThreadPoolExecutor(THREADS), options=[*channels.OPTIONS, ("grpc.so_reuseport", 0)])
    services.add_ParameterServerServicer_to_server(service, server)
    try:
        port = server.add_insecure_port(address)
    except RuntimeError as error:
        raise Unavailable(f"parameter server can't listen on {address}: {error}", "Choose another --port.") from error
    server.start()
    return server, port


@contextmanager
def _told(context: grpc.ServicerContext) -> Iterator[None]:
    """End the call with a status that tells the client what is wrong."""
    try:
        yield
    except NoModel as error:
        context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(error))
    except SnapshotLost as error:
        context.abort(grpc.StatusCode.NOT_FOUND, str(error))
    except Unavailable as error:
        context.abort(grpc.StatusCode.ABORTED, str(error))
    except ElasticDLError as error:
        context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
    except OSError as error:
        context.abort(grpc.StatusCode.ABORTED, f"{error}; see --checkpoint_dir and the volume's free space")


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
