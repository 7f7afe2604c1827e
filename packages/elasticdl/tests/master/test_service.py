"""The protocol with workers, over real connections: who lives, who has which task, when the job has ended."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import grpc
import pytest
from elasticdl.errors import ElasticDLError
from elasticdl.job import JobArgs
from elasticdl.master.coordinator import Coordinator
from elasticdl.master.program import Place, run
from elasticdl.master.resume import prepared, resumed
from elasticdl.master.service import MasterService, serve
from elasticdl.master.store import EtcdStateStore, Fenced, Key, MemoryStore, StateStore
from elasticdl.master.tasks import transitions
from elasticdl.master.tasks.state import JobState
from elasticdl.rpc import elasticdl_pb2 as pb

from packages.elasticdl.tests.master.jobs import PlainWorker, metrics, worker, write_job
from tests.elastic.workers import free_port
from tidewater.elastic.etcd.client import EtcdStore

PATIENCE_SECONDS = 60


class Served:
    """A master's service in this process."""

    def __init__(self, args: JobArgs, store: StateStore) -> None:
        job = prepared(args, servers=0)
        state, plans = resumed(store.take_over(), job)
        self.coordinator = Coordinator(job.setup, plans, store, state)
        self.service = MasterService(self.coordinator, args, None)
        self.address = f"127.0.0.1:{free_port()}"
        self.server = serve(self.service, self.address, workers=4)

    def wait_until(self, condition: Callable[[], bool]) -> None:
        """Return once something is so; raise AssertionError if it takes too long."""
        with self.coordinator._changed:
            assert self.coordinator._changed.wait_for(condition, PATIENCE_SECONDS)


@contextmanager
def served(args: JobArgs, store: StateStore | None = None) -> Iterator[Served]:
    one = Served(args, store or MemoryStore())
    try:
        yield one
    finally:
        one.server.stop(0).wait()


@pytest.fixture
def args(tmp_path: Path) -> JobArgs:
    return write_job(tmp_path)


def test_a_task_says_which_records_it_has(args: JobArgs) -> None:
    with served(args) as master, worker(master.address, "worker-0") as one:
        task = one.next_task()
        assert (task.id, task.type, task.shard) == (1, pb.TRAINING, args.training_data)
        assert (task.end - task.start, task.start % 10, task.epoch) == (10, 0, 0)
        assert list(task.indices) == []


def test_a_worker_that_does_not_attend_gets_no_task(args: JobArgs) -> None:
    with served(args) as master:
        stranger = PlainWorker(master.address, "worker-0")
        assert stranger.task().type == pb.WAIT
        assert master.coordinator.state.work.cursor == 1
        stranger.close()


def test_the_task_of_a_worker_whose_connection_breaks_is_given_to_another(args: JobArgs) -> None:
    with served(args) as master, worker(master.address, "worker-1") as other:
        with worker(master.address, "worker-0") as one:
            lost = one.next_task()
        master.wait_until(lambda: master.coordinator.state.work.returned == (lost.id,))
        assert other.next_task() == lost


def test_a_worker_that_leaves_gives_its_task_back_and_gets_none(args: JobArgs) -> None:
    with served(args) as master, worker(master.address, "worker-0") as one:
        task = one.next_task()
        one.leave()
        master.wait_until(lambda: bool(master.coordinator._leaving))
        assert one.report(task.id, given_back=True)
        assert one.task().type == pb.WAIT
        assert master.coordinator.state.work.returned == (task.id,)
        assert master.coordinator.state.work.failures == {}


def test_a_worker_that_lost_its_stream_keeps_its_task_by_naming_it(args: JobArgs) -> None:
    with served(args) as master, worker(master.address, "worker-0") as one:
        task = one.next_task()
        one.lose_the_stream()
        master.wait_until(lambda: master.coordinator.state.work.returned == (task.id,))
        one.holding = [task.id]
        one.attend()
        master.wait_until(lambda: task.id in master.coordinator.state.work.doing)
        assert one.report(task.id, records=10)


def test_a_job_that_fails_tells_every_worker_why(tmp_path: Path) -> None:
    args = write_job(tmp_path, max_task_retries=0, task_fault_tolerance=False)
    place, codes = Place(f"127.0.0.1:{free_port()}", "master"), list[int]()
    thread = threading.Thread(target=lambda: codes.append(run(args, place, None)))
    thread.start()
    with worker(place.address, "worker-0") as one, worker(place.address, "worker-1") as other:
        assert one.report(one.next_task().id, error="ZooError: loss returned a text")
        for each in (one, other):
            stop = each.next_task()
            assert stop.type == pb.STOP
            assert "loss returned a text" in stop.reason
    thread.join(PATIENCE_SECONDS)
    assert codes == [1]


def test_metrics_that_can_not_be_used_are_a_failure_of_the_task(tmp_path: Path) -> None:
    args = write_job(tmp_path, validation_data=str(tmp_path / "test.csv"), evaluation_steps=5)
    with served(args) as master, worker(master.address, "worker-0") as one:
        one.stub.ReportVersion(pb.VersionReport(server=0, version=5))
        master.coordinator.apply(lambda state, rules: transitions.snapshot_taken(state, rules, 5, ()))
        task = one.next_task()
        assert (task.type, task.model_version) == (pb.EVALUATION, 5)
        assert one.report(task.id, records=10, metric_states={"metrics": b'{"other": {}}'})
        evaluation = master.coordinator.state.evaluation
        assert evaluation is not None
        assert evaluation.queue.failures == {task.id: (one.process,)}
        assert one.next_task() == task
        assert one.report(task.id, records=10, metric_states=metrics(9, 10))
        assert evaluation.queue.first == task.id


def test_versions_of_other_servers_say_nothing(args: JobArgs) -> None:
    with served(args) as master, worker(master.address, "worker-0") as one:
        one.stub.ReportVersion(pb.VersionReport(server=1, version=70))
        one.stub.ReportVersion(pb.VersionReport(server=0, version=7))
        assert master.coordinator.state.version == 7


def script_job(tmp_path: Path, **changes: object) -> JobArgs:
    return write_job(tmp_path, job_command="python train.py", model_zoo="", model_def="", **changes)


def test_a_script_learns_how_many_records_there_are(tmp_path: Path) -> None:
    with served(script_job(tmp_path, num_epochs=2)) as master, worker(master.address, "worker-0") as one:
        job = one.stub.GetJob(pb.JobRequest())
        assert (job.name, job.epochs, job.records, job.minibatch_size, job.tasks) == ("small", 2, 100, 5, 20)


def test_a_script_may_bring_its_own_number_of_records(tmp_path: Path) -> None:
    with served(script_job(tmp_path, training_data="")) as master, worker(master.address, "worker-0") as one:
        assert one.stub.GetJob(pb.JobRequest()).records == 0
        assert one.task().type == pb.WAIT
        request = pb.JobRequest(records=45, epochs=2, minibatch_size=4, shuffle_records=True)
        assert one.stub.GetJob(request).tasks == 2 * 6
        assert one.stub.GetJob(request).tasks == 2 * 6
        task = one.next_task()
        assert (task.shard, len(task.indices)) == ("", task.end - task.start)
        with pytest.raises(grpc.RpcError) as refused:
            one.stub.GetJob(pb.JobRequest(records=46))
        assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert "records=46" in (refused.value.details() or "")


def test_only_the_newest_generation_of_a_scripts_workers_says_what_its_model_has_seen(tmp_path: Path) -> None:
    with served(script_job(tmp_path)) as master, worker(master.address, "worker-0") as one:
        assert one.report(one.next_task().id, records=10, version=3)
        one.stub.GetJob(pb.JobRequest(version=3, generation=2))
        for generation, done in ((1, 1), (2, 0)):
            job = one.stub.GetJob(pb.JobRequest(version=0, generation=generation))
            assert (job.generation, job.version, job.ended) == (2, 3 * done, done)


def test_what_a_script_has_said_survives_the_master(tmp_path: Path, etcd: str) -> None:
    args = script_job(tmp_path, training_data="", job_name="survives")
    first, second = (EtcdStateStore(EtcdStore((etcd,)), Key("survives", "0", process)) for process in "ab")
    with served(args, first) as master, worker(master.address, "worker-0") as one:
        one.stub.GetJob(pb.JobRequest(records=30))
        task = one.next_task()
        assert one.report(task.id, records=10)
    with served(args, second) as master, worker(master.address, "worker-0") as one:
        assert one.stub.GetJob(pb.JobRequest()).records == 30
        assert one.next_task().id == task.id + 1


def test_a_fenced_master_hands_out_nothing_and_ends(args: JobArgs, etcd: str) -> None:
    def store(process: str) -> EtcdStateStore:
        return EtcdStateStore(EtcdStore((etcd,)), Key("fenced", "0", process))

    with ExitStack() as stack:
        old = stack.enter_context(served(args, store("old")))
        one = stack.enter_context(worker(old.address, "worker-0"))
        task = one.next_task()
        new = stack.enter_context(served(args, store("new")))
        for call in (lambda: one.task([task.id]), lambda: one.report(task.id, records=10)):
            with pytest.raises(grpc.RpcError) as refused:
                call()
            assert refused.value.code() is grpc.StatusCode.UNAVAILABLE
        with pytest.raises(Fenced):
            old.coordinator.next_action()
        assert list(new.coordinator.state.work.doing) == [task.id]
        record = store("reader").take_over()
        assert record is not None
        assert JobState.from_fields(record).work.done == 0


def test_an_address_that_is_taken_is_an_error(args: JobArgs) -> None:
    with served(args) as master, pytest.raises(ElasticDLError, match=f"can't listen on {master.address}"):
        serve(master.service, master.address, workers=1)
