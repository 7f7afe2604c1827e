"""Calls wait for a peer that is restarted, and no longer than the given seconds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent import futures

import grpc
import pytest
from elasticdl.errors import ElasticDLError
from elasticdl.rpc import channels
from elasticdl.rpc import elasticdl_pb2 as pb
from elasticdl.rpc import elasticdl_pb2_grpc as services


class Master(services.MasterServicer):
    """Knows one job; refuses every task."""

    def GetJob(self, request: pb.JobRequest, context: grpc.ServicerContext) -> pb.Job:  # noqa: N802 # the protocol's
        return pb.Job(name="digits")

    def GetTask(self, request: pb.GetTaskRequest, context: grpc.ServicerContext) -> pb.Task:  # noqa: N802
        context.abort(grpc.StatusCode.INVALID_ARGUMENT, "no such worker")


def serve(port: int = 0) -> tuple[grpc.Server, int]:
    """Start a master."""
    server = grpc.server(futures.ThreadPoolExecutor(4), options=[*channels.OPTIONS, ("grpc.so_reuseport", 0)])
    services.add_MasterServicer_to_server(Master(), server)
    bound = server.add_insecure_port(f"127.0.0.1:{port}")
    server.start()
    return server, bound


@pytest.fixture
def master() -> Iterator[tuple[grpc.Server, int]]:
    server, port = serve()
    yield server, port
    server.stop(0).wait()


def ask(port: int) -> tuple[grpc.Channel, Callable[[], pb.Job]]:
    """Return a connection and a call."""
    channel = channels.connect(f"127.0.0.1:{port}")
    stub = services.MasterStub(channel)
    return channel, lambda: stub.GetJob(pb.JobRequest(), timeout=60)


def test_a_call_waits_for_a_peer_that_comes_back(master: tuple[grpc.Server, int]) -> None:
    server, port = master
    channel, call = ask(port)
    said: list[str] = []
    with channel:
        assert channels.patiently(call, "the master", seconds=60, say=said.append).name == "digits"
        server.stop(0).wait()
        again: list[grpc.Server] = []

        def restart(text: str) -> None:
            said.append(text)
            if not again:
                again.append(serve(port)[0])

        try:
            assert channels.patiently(call, "the master", seconds=60, say=restart).name == "digits"
        finally:
            again[0].stop(0).wait()
    assert [text.split(";")[0] for text in said] == ["the master can't be reached", "the master is back"]


def test_a_peer_that_stays_away_is_named() -> None:
    server, port = serve()
    server.stop(0).wait()
    channel, call = ask(port)
    with channel, pytest.raises(ElasticDLError, match="the master has not answered for 0 s"):
        channels.patiently(call, "the master", seconds=0, say=lambda text: None)


def test_a_refusal_is_not_repeated(master: tuple[grpc.Server, int]) -> None:
    _, port = master
    with channels.connect(f"127.0.0.1:{port}") as channel:
        stub, calls = services.MasterStub(channel), [0]

        def call() -> pb.Task:
            calls[0] += 1
            task: pb.Task = stub.GetTask(pb.GetTaskRequest(), timeout=60)
            return task

        with pytest.raises(grpc.RpcError, match="no such worker"):
            channels.patiently(call, "the master", seconds=60, say=lambda text: None)
    assert calls == [1]


def test_peers_are_reached_without_the_proxy_of_the_environment(
    monkeypatch: pytest.MonkeyPatch, master: tuple[grpc.Server, int]
) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    with channels.connect(f"127.0.0.1:{master[1]}") as channel:
        assert services.MasterStub(channel).GetJob(pb.JobRequest(), timeout=20).name == "digits"
