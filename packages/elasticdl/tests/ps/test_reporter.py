"""The master learns the newest version as soon as it can be reached; no caller waits for it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent import futures

import grpc
import pytest
from elasticdl.ps.__main__ import Reporter
from elasticdl.rpc import channels
from elasticdl.rpc import elasticdl_pb2 as pb
from elasticdl.rpc import elasticdl_pb2_grpc as services


class Master(services.MasterServicer):
    """Keeps the versions that it receives. Answers while `open` is set."""

    def __init__(self) -> None:
        self.told: list[int] = []
        self.changed = threading.Condition()
        self.asked = threading.Event()
        self.open = threading.Event()
        self.open.set()

    def ReportVersion(self, request: pb.VersionReport, context: grpc.ServicerContext) -> pb.Nothing:  # noqa: N802
        self.asked.set()
        assert self.open.wait(60)
        with self.changed:
            self.told.append(request.version)
            self.changed.notify_all()
        return pb.Nothing()

    def wait_for(self, version: int) -> None:
        with self.changed:
            assert self.changed.wait_for(lambda: version in self.told, timeout=60)


def serve(master: Master, port: int = 0) -> tuple[grpc.Server, int]:
    server = grpc.server(futures.ThreadPoolExecutor(2), options=[*channels.OPTIONS, ("grpc.so_reuseport", 0)])
    services.add_MasterServicer_to_server(master, server)
    bound = server.add_insecure_port(f"127.0.0.1:{port}")
    server.start()
    return server, bound


@pytest.fixture
def master() -> Master:
    return Master()


@pytest.fixture
def running(master: Master) -> Iterator[tuple[grpc.Server, int]]:
    server, port = serve(master)
    yield server, port
    master.open.set()
    server.stop(0).wait()


def reporter(channel: grpc.Channel, say: Callable[[str], None] = print, timeout: float = 30) -> Reporter:
    stub = services.MasterStub(channel)
    found = Reporter(lambda version: stub.ReportVersion(pb.VersionReport(version=version), timeout=timeout), say=say)
    found.start()
    return found


def test_versions_are_told_without_waiting_and_the_newest_of_several_counts(
    master: Master, running: tuple[grpc.Server, int]
) -> None:
    with channels.connect(f"127.0.0.1:{running[1]}") as channel:
        ours = reporter(channel)
        master.open.clear()
        ours.report(1)
        assert master.asked.wait(60)
        for version in (2, 4, 3):  # while the master answers
            ours.report(version)
        master.open.set()
        master.wait_for(4)
        ours.stop()
        ours.stop()
    assert master.told == [1, 4]


def test_a_master_that_was_away_is_told_when_it_is_back(master: Master, running: tuple[grpc.Server, int]) -> None:
    server, port = running
    server.stop(0).wait()
    with channels.connect(f"127.0.0.1:{port}") as channel:
        ours = reporter(channel)
        ours.report(7)
        again, _ = serve(master, port)
        master.wait_for(7)
        ours.stop()
        again.stop(0).wait()
    assert master.told == [7]


def test_a_master_that_stays_away_does_not_keep_the_server_from_ending(running: tuple[grpc.Server, int]) -> None:
    server, port = running
    server.stop(0).wait()
    said: list[str] = []
    failed = threading.Event()

    def say(text: str) -> None:
        said.append(text)
        failed.set()

    with channels.connect(f"127.0.0.1:{port}") as channel:
        ours = reporter(channel, say, timeout=5)
        ours.report(1)
        assert failed.wait(60)
        ours.stop()
    assert said == ["the master can't be told version 1 (UNAVAILABLE); updates go on"]
