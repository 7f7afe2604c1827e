"""The client's side of one parameter server: calls that wait for a server that is restarted.

server = Connection(index=0, servers=2, address="elasticdl-mnist-ps-0:2222", settings=Patience(300, log))
server.call(lambda: server.stub.GetState(pb.Nothing(), timeout=60))
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeVar

import grpc

from elasticdl.errors import ElasticDLError, InputError, Unavailable
from elasticdl.ps.errors import NoModel, PushRefused, SnapshotLost
from elasticdl.rpc import channels
from elasticdl.rpc import elasticdl_pb2 as pb
from elasticdl.rpc import elasticdl_pb2_grpc as services

T = TypeVar("T")

MODEL_SECONDS = 1800.0
"""Longest time in which a whole model must arrive. That a server is dead is noticed within seconds, by pings."""


@dataclass(frozen=True)
class Patience:
    """How long a server may be away, and what receives messages about that."""

    seconds: float
    say: Callable[[str], None]


class Connection:
    """One server, its version that this client has, and its process."""

    def __init__(self, index: int, servers: int, address: str, patience: Patience) -> None:
        self.index = index
        self.name = f"parameter server {index}"
        self.version = -1
        """Of the dense values that this client has pulled; -1: none."""
        self.process = ""
        """Of the server that they came from."""
        self._address, self._servers, self._patience = address, servers, patience
        self._channel = channels.connect(address)
        self.stub = services.ParameterServerStub(self._channel)
        self._model: Callable[[], Iterator[pb.ModelPart]] | None = None
        self._pushing = threading.Lock()

    def close(self) -> None:
        """Close the connection."""
        self._channel.close()

    def call(self, do: Callable[[], T]) -> T:
        """Return what a call returns. A server that has no model, since it was restarted, gets this client's first.

        Raises:
            PushRefused: what was sent doesn't fit.
            SnapshotLost: the snapshot is not there.
            NoModel: the server has no model, and neither has this client.
            ElasticDLError: the server was away for too long, or has failed.
        """
        while True:
            try:
                return channels.patiently(do, self.name, seconds=self._patience.seconds, say=self._patience.say)
            except grpc.RpcError as error:
                if error.code() != grpc.StatusCode.FAILED_PRECONDITION or self._model is None:
                    raise _told(self.name, error) from error
                self._again()

    def state(self) -> pb.ServerState:
        """Return the server's state; raise InputError if another server answers at its address."""
        state: pb.ServerState = self.call(lambda: self.stub.GetState(pb.Nothing(), timeout=channels.CALL_SECONDS))
        if (state.index, state.servers) != (self.index, self._servers):
            raise InputError(
                f"--ps_addrs: at {self._address}, number {self.index} of {self._servers}, is parameter server "
                f"{state.index} of {state.servers}",
                "List all servers of the job in the order of their index.",
            )
        return state

    def push_model(self, model: Callable[[], Iterator[pb.ModelPart]]) -> None:
        """Send the model, and keep what makes it for a server that is restarted without a checkpoint."""
        self.state()
        self._model = model
        with self._pushing:
            state = self.call(lambda: self.stub.PushModel(model(), timeout=MODEL_SECONDS))
        self.saw(state.process)

    def saw(self, process: str) -> None:
        """Note the process that has answered: what was pulled from an earlier process is not current any more."""
        if process != self.process:
            if self.process:
                self._patience.say(f"{self.name} was restarted; the model is pulled from it anew")
            self.process, self.version = process, -1

    def _again(self) -> None:
        model = self._model
        with self._pushing:
            if model is not None and not self.state().initialized:
                self._patience.say(
                    f"{self.name} came back without a model, as there is no checkpoint: it gets this worker's. "
                    "Its embedding rows and the optimizer's state begin anew"
                )
                self.call(lambda: self.stub.PushModel(model(), timeout=MODEL_SECONDS))


def _told(server: str, error: grpc.RpcError) -> ElasticDLError:
    """Return the error of a refused call."""
    kinds = {
        grpc.StatusCode.INVALID_ARGUMENT: PushRefused,
        grpc.StatusCode.NOT_FOUND: SnapshotLost,
        grpc.StatusCode.FAILED_PRECONDITION: NoModel,
        grpc.StatusCode.ABORTED: Unavailable,
    }
    kind = kinds.get(error.code())
    message, _, remedy = (error.details() or "").partition("\n")
    if kind is None:
        return ElasticDLError(f"{server} has failed ({error.code().name}: {message})", "See the server's log.")
    return kind(f"{server}: {message}", remedy)
