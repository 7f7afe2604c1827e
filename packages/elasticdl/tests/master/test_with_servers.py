"""Master and parameter servers: evaluation on one snapshot, whole checkpoints, the flush at the end."""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
import torch
from elasticdl.errors import ElasticDLError, InputError
from elasticdl.job import JobArgs, Strategy
from elasticdl.master.program import Place, run
from elasticdl.master.servers import Servers
from elasticdl.ps import checkpoint
from elasticdl.ps.client import PsClient
from elasticdl.ps.model.policy import Policy
from elasticdl.ps.placement import server_of
from elasticdl.rpc import elasticdl_pb2 as pb
from elasticdl.zoo.optimizers import SGD

from packages.elasticdl.tests.master.jobs import PlainWorker, metrics, worker, write_job
from packages.elasticdl.tests.ps.running import Process, client, servers
from tests.elastic.workers import free_port

PATIENCE_SECONDS = 60
MODEL = {name: torch.zeros(2) for name in ("weight", "bias", "scale", "shift")}  # on both of two servers


def step(ps: PsClient, number: int) -> None:
    """Change the whole model by one update."""
    assert all(ps.push_gradients(number, {name: torch.ones(2) for name in MODEL}, {}))


@contextmanager
def running(args: JobArgs, addresses: list[str]) -> Iterator[tuple[str, list[int]]]:
    """Run a master; yield its address, and the list that gets its exit code."""
    place, codes = Place(f"127.0.0.1:{free_port()}", "master", tuple(addresses)), list[int]()
    thread = threading.Thread(target=lambda: codes.append(run(args, place, None)))
    thread.start()
    yield place.address, codes
    thread.join(PATIENCE_SECONDS)
    assert not thread.is_alive()


@contextmanager
def training(args: JobArgs, policy: Policy | None = None) -> Iterator[Observer]:
    """Run two servers with the model and a master; yield a worker, and check that the job succeeds afterwards."""
    with servers(2, policy) as addresses, client(addresses) as ps, running(args, addresses) as (address, codes):
        ps.init_model(MODEL, [], SGD(lr=1.0))
        with worker(address, "worker-0") as one:
            yield Observer(one, ps)
    assert codes == [0]


class Observer:
    """Versions as server 0 reports them, and the model that evaluation tasks see."""

    def __init__(self, one: PlainWorker, ps: PsClient) -> None:
        self.one, self.ps = one, ps
        self.seen: list[tuple[int, dict[str, float]]] = []
        self.minibatch = 0

    def train(self, task: pb.Task) -> None:
        """Make one update, and say so."""
        self.minibatch += 1
        step(self.ps, self.minibatch)
        self.one.stub.ReportVersion(pb.VersionReport(server=0, version=self.minibatch), timeout=60)

    def evaluate(self, task: pb.Task) -> None:
        """Look at every parameter of the snapshot."""
        values = self.ps.pull_dense(snapshot=task.model_version, everything=True)
        self.seen.append((task.model_version, {name: float(value[0]) for name, value in values.items()}))

    def work(self) -> None:
        """Do the whole job."""
        while (task := self.one.next_task()).type != pb.STOP:
            if task.type == pb.TRAINING:
                self.train(task)
            elif task.type == pb.EVALUATION:
                self.evaluate(task)
            states = metrics(1, task.end - task.start) if task.type == pb.EVALUATION else {}
            assert self.one.report(task.id, records=task.end - task.start, metric_states=states)


def job(tmp_path: Path, **changes: object) -> JobArgs:
    strategy = {"distribution_strategy": Strategy.PARAMETER_SERVER, "num_ps_pods": 2}
    data = {"validation_data": str(tmp_path / "test.csv"), "relaunch_timeout_worker": 60.0}
    return write_job(tmp_path, **{**strategy, **data, **changes})


def test_every_evaluation_sees_one_model_that_is_dropped_then_and_the_log_says_its_step(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    args = job(tmp_path, evaluation_steps=4)
    with training(args) as observer:
        observer.work()
        for snapshot, _ in observer.seen:
            with pytest.raises((grpc.RpcError, ElasticDLError)):
                observer.ps.pull_dense(snapshot=snapshot, everything=True)
    # Due at 4 and 8, and of the final model: three tasks each, all on the same values. Training goes on until a server
    # has the snapshot, so that it may be of a later version; the log names that of server 0.
    models = dict(observer.seen)
    assert observer.seen == [pair for pair in models.items() for _ in range(3)]
    held = next(name for name in MODEL if server_of(name, 2) == 0)
    steps = [int(-values[held]) for values in models.values()]
    assert steps == sorted(set(steps))
    assert steps[0] >= 4
    assert steps[-1] == 10
    lines = [record.getMessage() for record in caplog.records if "Evaluation metrics" in record.getMessage()]
    assert lines == [f"Evaluation metrics[step={step}]: {{'accuracy': 0.12}}" for step in steps]


def test_checkpoints_are_whole_and_only_the_newest_are_kept(tmp_path: Path) -> None:
    folder = tmp_path / "checkpoints"
    checkpoint.commit(str(folder), 1, [], run="small/0")  # of a master of the same run, which this one follows
    args = job(tmp_path, validation_data="", checkpoint_steps=2, checkpoint_dir=str(folder), keep_checkpoint_max=2)
    with training(args) as observer:
        observer.work()
    found = checkpoint.newest(str(folder), run="small/0")
    assert found is not None
    assert found.version == 10
    assert len(found.parts) == 2
    assert len(list(folder.iterdir())) <= 2
    model = checkpoint.load_model(str(folder))
    assert {name: value.tolist() for name, value in model.dense.items()} == {name: [-10.0, -10.0] for name in MODEL}


def test_a_folder_with_checkpoints_of_another_run_ends_the_master_before_anything_is_trained(tmp_path: Path) -> None:
    checkpoint.commit(str(tmp_path), 20, [], run="small/1")
    args = job(tmp_path, checkpoint_steps=2, checkpoint_dir=str(tmp_path))
    place = Place("127.0.0.1:0", "master", ("ps-0:1", "ps-1:1"))
    with pytest.raises(InputError, match=r"has checkpoints of another run: .*000020 is of small/1"):
        run(args, place, None)


def test_a_part_that_a_server_wrote_into_its_own_container_fails_the_save(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def in_container(directory: str, *others: Any) -> checkpoint.Saved:
        return checkpoint.save_part(f"{tmp_path}/container{directory}", *others)

    monkeypatch.setattr("elasticdl.ps.service.save_part", in_container)
    folder = str(tmp_path / "checkpoints")
    with servers(1) as addresses, client(addresses) as ps, Servers(tuple(addresses), patience_seconds=60) as one:
        ps.init_model(MODEL, [], SGD(lr=1.0))
        with pytest.raises(ElasticDLError, match=f"{folder}/version-000000000001 has no part-00000-of-00001"):
            one.save(folder, 1, run="small/0")
    assert checkpoint.newest(folder) is None


def test_gradients_that_wait_for_more_are_applied_before_the_end(tmp_path: Path) -> None:
    args = job(tmp_path, grads_to_wait=4)
    with training(args, Policy(grads_to_wait=4)) as observer:
        step(observer.ps, 100)  # one of four: nothing happens yet
        assert observer.ps.pull_dense(everything=True)["weight"].tolist() == [0.0, 0.0]
        observer.train = lambda task: None  # type: ignore[method-assign]
        observer.work()
    assert all(set(values.values()) == {-1.0} for _, values in observer.seen)


def test_a_failure_of_a_task_while_all_servers_have_the_snapshot_is_its_own(tmp_path: Path) -> None:
    with training(job(tmp_path)) as observer:
        one = observer.one
        task = evaluation_task(one)
        assert one.report(task.id, error="ValueError: a bad record")
        assert one.next_task() == task
        assert one.report(task.id, records=10, metric_states=metrics(1, 10))
        observer.work()


def evaluation_task(one: PlainWorker) -> pb.Task:
    """Do tasks until there is one of an evaluation."""
    while (task := one.next_task()).type != pb.EVALUATION:
        assert one.report(task.id, records=10)
    return task


@pytest.mark.e2e
def test_an_evaluation_begins_anew_if_a_server_was_restarted(tmp_path: Path) -> None:
    args = job(tmp_path)
    with Process(0, 2, args) as first, ExitStack() as stack:
        second = stack.enter_context(Process(1, 2, args))
        addresses = [first.address, second.address]
        with client(addresses) as ps, running(args, addresses) as (address, codes):
            ps.init_model(MODEL, [], SGD(lr=1.0))
            with worker(address, "worker-0") as one:
                task = evaluation_task(one)
                second.end(signal.SIGKILL)
                stack.enter_context(Process(1, 2, args, port=second.port))
                ps.init_model(MODEL, [], SGD(lr=1.0))
                with pytest.raises((grpc.RpcError, ElasticDLError)) as lost:
                    ps.pull_dense(snapshot=task.model_version, everything=True)
                assert not one.report(task.id, error=str(lost.value))
                again = one.next_task()
                assert again.type == pb.EVALUATION
                assert again.model_version > task.model_version
                observer = Observer(one, ps)
                observer.evaluate(again)
                assert one.report(again.id, records=10, metric_states=metrics(1, 10))
                observer.work()
        assert codes == [0]
    assert len(observer.seen) == 3


def test_servers_that_do_not_answer_have_no_processes() -> None:
    with Servers((f"127.0.0.1:{free_port()}",), patience_seconds=1) as absent:
        assert absent.processes() is None


def test_a_server_that_stays_without_a_model_is_not_waited_for_forever() -> None:
    with (
        servers(2) as addresses,
        Servers(tuple(addresses), patience_seconds=1) as both,
        pytest.raises(ElasticDLError, match="parameter server 0, 1 has had no model for 1 s"),
    ):
        both.wait_for_model()


def test_a_server_that_refuses_is_named() -> None:
    with (
        servers(2) as addresses,
        Servers(tuple(addresses), patience_seconds=1) as both,
        pytest.raises(ElasticDLError, match="parameter server 0 refuses TakeSnapshot"),
    ):
        both.take_snapshot(1)
