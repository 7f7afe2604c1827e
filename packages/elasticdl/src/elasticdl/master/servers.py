"""What the master asks of all parameter servers at once; one that is being restarted is waited for.

with Servers(("mnist-ps-0:2222", "mnist-ps-1:2222"), patience_seconds=300) as servers:
    snapshot = servers.take_snapshot(200)
    servers.save("/data/checkpoints", 200, run="mnist/7f3a")
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Self, TypeVar

import grpc

from elasticdl.errors import ElasticDLError
from elasticdl.ps import checkpoint
from elasticdl.rpc import channels
from elasticdl.rpc import elasticdl_pb2 as pb
from elasticdl.rpc.elasticdl_pb2_grpc import ParameterServerStub

T = TypeVar("T")

log = logging.getLogger(__name__)

QUICK_SECONDS = 5.0
"""For a question to which no answer is an answer, too."""
SAVE_SECONDS = 600.0
"""Longest time for which one server may write its part of a checkpoint."""
POLL_SECONDS = 0.2


@dataclass(frozen=True)
class Taken:
    """A snapshot that all servers have."""

    step: int
    """Version of server 0."""
    processes: tuple[str, ...]
    """Of the servers; one that is restarted is another process, without the snapshot."""


class Servers:
    """All parameter servers of a job, which may be none."""

    def __init__(self, addresses: tuple[str, ...], patience_seconds: float) -> None:
        self._patience_seconds = patience_seconds
        self._channels = [channels.connect(address) for address in addresses]
        self._stubs = [ParameterServerStub(channel) for channel in self._channels]
        self._threads = ThreadPoolExecutor(max(1, len(addresses)), thread_name_prefix="server")
        self._closed = threading.Event()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Give up what is under way. It is safe to call this twice."""
        self._closed.set()
        self._threads.shutdown(wait=False, cancel_futures=True)
        for channel in self._channels:
            channel.close()

    def processes(self) -> tuple[str, ...] | None:
        """Return the servers' processes; None if one doesn't answer at once."""
        try:
            states = [stub.GetState(pb.Nothing(), timeout=QUICK_SECONDS) for stub in self._stubs]
        except grpc.RpcError:
            return None
        return tuple(state.process for state in states)

    def wait_for_model(self) -> None:
        """Return once every server has a model: it comes from a checkpoint, or from a worker that has work.

        Raises:
            ElasticDLError: a server stays without one: workers without a task don't notice that it lost its model.
        """
        deadline = time.monotonic() + self._patience_seconds
        while not self._closed.is_set():
            states = self._all("GetState", pb.Nothing())
            empty = [str(index) for index, state in enumerate(states) if not state.initialized]
            if not empty:
                return
            if time.monotonic() >= deadline:
                raise ElasticDLError(
                    f"parameter server {', '.join(empty)} has had no model for {self._patience_seconds:.0f} s",
                    "If it was restarted, give --checkpoint_dir and --checkpoint_steps, so that it finds its model.",
                )
            self._closed.wait(POLL_SECONDS)

    def take_snapshot(self, snapshot: int) -> Taken:
        """Let every server keep its present model, under a number.

        Training goes on meanwhile. So the version may be some updates later than the one at which the evaluation was
        due, and each server's part is whole, but parts may differ by the updates that were under way.
        """
        # A server that has one by this number keeps it, so that it would be older than those of the others.
        self.drop_snapshot(snapshot)
        states = self._all("TakeSnapshot", pb.SnapshotRequest(snapshot=snapshot))
        return Taken(states[0].version, tuple(state.process for state in states))

    def drop_snapshot(self, snapshot: int) -> None:
        """Let every server forget a snapshot, which it may not have."""
        self._all("DropSnapshot", pb.SnapshotRequest(snapshot=snapshot))

    def flush(self) -> int:
        """Let every server apply the gradients that wait for more; return the version of server 0."""
        states = self._all("Flush", pb.Nothing())
        return int(states[0].version)

    def save(self, directory: str, version: int, run: str) -> None:
        """Write a checkpoint, which counts once all parts are there.

        Raises:
            ElasticDLError: a server can't write its part, or has written it where the master doesn't find it.
        """
        request = pb.SaveRequest(directory=directory, version=version)
        parts = self._all("Save", request, seconds=SAVE_SECONDS)
        saved = [checkpoint.Saved(part.file, part.size, part.sha256) for part in parts]
        checkpoint.check_written(directory, version, saved)
        checkpoint.commit(directory, version, saved, run=run)

    def _all(self, method: str, request: Any, *, seconds: float = channels.CALL_SECONDS) -> list[Any]:
        """Return the answers of all servers, in their order.

        Raises:
            ElasticDLError: a server refuses, or stays away.
        """

        def ask(index: int) -> Any:
            call: Callable[..., Any] = getattr(self._stubs[index], method)
            name, deadline = f"parameter server {index}", time.monotonic() + self._patience_seconds
            try:
                return channels.patiently(
                    lambda: self._with_model(lambda: call(request, timeout=seconds), deadline),
                    name,
                    seconds=self._patience_seconds,
                    say=log.warning,
                )
            except grpc.RpcError as error:
                raise ElasticDLError(
                    f"{name} refuses {method}: {error.details()}", "See its log: `kubectl logs` of its pod."
                ) from error

        return list(self._threads.map(ask, range(len(self._stubs))))

    def _with_model(self, call: Callable[[], T], deadline: float) -> T:
        """Return what a call returns; repeat it while the server has no model.

        A server that was restarted without a checkpoint gets a model from a worker in a moment.
        """
        while True:
            try:
                return call()
            except grpc.RpcError as error:
                if error.code() is not grpc.StatusCode.FAILED_PRECONDITION or time.monotonic() >= deadline:
                    raise
                if self._closed.wait(POLL_SECONDS):
                    raise
