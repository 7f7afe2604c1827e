"""A worker attends, takes tasks and reports them, also with a master that is restarted. Real gRPC on loopback."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from concurrent import futures

import grpc
import pytest
from elasticdl.errors import ElasticDLError
from elasticdl.rpc import channels
from elasticdl.rpc import elasticdl_pb2 as pb
from elasticdl.rpc.elasticdl_pb2_grpc import MasterServicer, add_MasterServicer_to_server
from elasticdl.worker.ending import Ending, Leaving, Stopped
from elasticdl.worker.master import Identity, Master

from tests.elastic.workers import PATIENCE_SECONDS, free_port

ME = Identity("elasticdl-mnist-worker-0", "a1b2")


class Remembering(MasterServicer):
    """A master that remembers what it receives, and can be stopped and started again at the same port."""

    def __init__(self) -> None:
        self.port = free_port()
        self.presences: queue.Queue[pb.Presence] = queue.Queue()
        self.ended: queue.Queue[str] = queue.Queue()
        self.reports: list[pb.TaskReport] = []
        self.notices: queue.Queue[pb.Notice | None] = queue.Queue()
        self.tasks: list[pb.Task] = []
        self._server: grpc.Server | None = None

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def start(self) -> None:
        self._server = grpc.server(futures.ThreadPoolExecutor(8), options=channels.OPTIONS)
        add_MasterServicer_to_server(self, self._server)
        assert self._server.add_insecure_port(self.address)
        self._server.start()

    def stop(self) -> None:
        if self._server is not None:
            self.notices.put(None)
            self._server.stop(0).wait()
            self._server = None

    def presence(self) -> pb.Presence:
        return self.presences.get(timeout=PATIENCE_SECONDS)

    def Attend(self, request_iterator: Iterator[pb.Presence], context: grpc.ServicerContext) -> Iterator[pb.Notice]:  # noqa: N802 # the protocol's
        def listen() -> None:
            try:
                for presence in request_iterator:
                    self.presences.put(presence)
            except grpc.RpcError:
                return
            self.ended.put("by the worker")
            self.notices.put(None)

        threading.Thread(target=listen, daemon=True).start()
        yield from iter(self.notices.get, None)

    def GetTask(self, request: pb.GetTaskRequest, context: grpc.ServicerContext) -> pb.Task:  # noqa: N802
        return self.tasks.pop(0) if self.tasks else pb.Task(type=pb.WAIT, wait_seconds=0.1)

    def ReportTask(self, request: pb.TaskReport, context: grpc.ServicerContext) -> pb.TaskReply:  # noqa: N802
        self.reports.append(request)
        return pb.TaskReply(counted=len(self.reports) == 1)


@pytest.fixture
def remembering() -> Iterator[Remembering]:
    master = Remembering()
    yield master
    master.stop()


def connected(master: Remembering, ending: Ending, said: list[str] | None = None, seconds: float = 60.0) -> Master:
    return Master(master.address, ME, ending, (said if said is not None else []).append, seconds)


def test_a_worker_says_who_it_is_and_ends_the_stream_when_it_goes(remembering: Remembering) -> None:
    remembering.start()
    with connected(remembering, Ending()):
        first = remembering.presence()
    assert (first.worker, first.process, list(first.tasks), first.leaving) == (ME.worker, ME.process, [], False)
    assert remembering.ended.get(timeout=PATIENCE_SECONDS) == "by the worker"


def test_a_task_is_reported_in_the_workers_name_and_the_answer_is_passed_on(remembering: Remembering) -> None:
    remembering.tasks = [pb.Task(id=7, type=pb.TRAINING, shard="a", start=0, end=64)]
    remembering.start()
    with connected(remembering, Ending()) as master:
        task = master.task()
        assert (task.id, task.shard, task.end) == (7, "a", 64)
        assert master.report(pb.TaskReport(task=7, records=64))
        assert not master.report(pb.TaskReport(task=7, records=64))
    assert {(each.worker, each.process, each.records) for each in remembering.reports} == {(ME.worker, ME.process, 64)}


def test_a_master_that_is_restarted_is_waited_for_and_told_which_task_is_held(remembering: Remembering) -> None:
    remembering.tasks = [pb.Task(id=7, type=pb.TRAINING)]
    said: list[str] = []
    remembering.start()
    with connected(remembering, Ending(), said) as master:
        remembering.presence()
        master.task()
        remembering.stop()
        remembering.notices = queue.Queue()
        threading.Timer(0.3, remembering.start).start()
        assert master.report(pb.TaskReport(task=7))
        again = remembering.presence()
        assert again.process == ME.process
        assert list(again.tasks) in ([7], [])  # the report may be first
    assert said == ["the master can't be reached; waiting for it", "the master is back"]


def test_a_worker_that_gets_sigterm_does_not_wait_for_a_master_that_is_away(remembering: Remembering) -> None:
    ending = Ending()
    ending.leave()
    with connected(remembering, ending) as master, pytest.raises(Leaving):
        master.report(pb.TaskReport(task=7, given_back=True))


def test_a_master_that_stays_away_is_an_error_that_names_the_remedy(remembering: Remembering) -> None:
    with connected(remembering, Ending(), seconds=0.2) as master, pytest.raises(ElasticDLError, match="kubectl"):
        master.task()


def test_a_worker_says_that_it_leaves(remembering: Remembering) -> None:
    remembering.start()
    with connected(remembering, Ending()) as master:
        assert not remembering.presence().leaving
        master.leave()
        assert remembering.presence().leaving


def test_the_end_of_the_job_ends_the_workers_waits(remembering: Remembering) -> None:
    remembering.start()
    ending = Ending()
    with connected(remembering, ending):
        remembering.presence()
        remembering.notices.put(pb.Notice(stop=True))
        with pytest.raises(Stopped):
            ending.wait(PATIENCE_SECONDS)
    assert not ending.leaving
