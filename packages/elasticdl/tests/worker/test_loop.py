"""What a worker does with each kind of task, and with each way in which a task may end."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from elasticdl.data.reader import Reader, Record, Shard
from elasticdl.errors import DamagedData, ElasticDLError, Unavailable
from elasticdl.job import JobArgs
from elasticdl.ps.checkpoint import Model
from elasticdl.ps.errors import SnapshotLost
from elasticdl.rpc import elasticdl_pb2 as pb
from elasticdl.worker.ending import Ending, Leaving
from elasticdl.worker.loop import Parts, Worker
from elasticdl.worker.parameters import Gradients
from elasticdl.worker.step import Step
from elasticdl.zoo.callbacks import LearningRateScheduler
from elasticdl.zoo.metrics import Accuracy, Metrics
from elasticdl.zoo.optimizers import SGD
from elasticdl.zoo.spec import Batch, Mode, ModelSpec
from torch import nn

JOB = JobArgs(job_name="loop", minibatch_size=4, log_loss_steps=2)
TRAINING = pb.Task(id=7, type=pb.TRAINING, shard="numbers", start=0, end=10)
STOP = pb.Task(type=pb.STOP)


class Numbers(Reader):
    """Records that are numbers; fails at the record `damaged`."""

    damaged: int | None = None

    def shards(self) -> list[Shard]:
        return [Shard("numbers", 0, 100)]

    def read(self, shard: Shard) -> Iterator[Record]:
        for index in range(shard.start, shard.end):
            if index == self.damaged:
                raise DamagedData(f"numbers: record {index} is damaged", "copy it again")
            yield float(index)


class Given:
    """Tasks in an order that the test says; remembers the reports."""

    def __init__(self, tasks: Sequence[pb.Task]) -> None:
        self._tasks = list(tasks)
        self.reports: list[pb.TaskReport] = []

    def task(self) -> pb.Task:
        return self._tasks.pop(0)

    def report(self, report: pb.TaskReport) -> bool:
        self.reports.append(report)
        return True


@dataclass
class Recorded:
    """Parameters that accept what the test says, and remember every call."""

    model: nn.Module
    refusals: int = 0
    version: int = 0
    pushed: list[tuple[int, float]] = field(default_factory=list)
    """Number and learning rate of each push."""
    snapshots: list[int] = field(default_factory=list)
    on_push: Callable[[int], None] = lambda minibatch: None
    lost: bool = False
    idled: int = 0

    def pull(self) -> int:
        return self.version

    def push(self, minibatch: int, gradients: Gradients, learning_rate: float) -> bool:
        self.pushed.append((minibatch, learning_rate))
        self.on_push(minibatch)
        if self.refusals:
            self.refusals -= 1
            return False
        self.version += 1
        return True

    @contextlib.contextmanager
    def snapshot(self, version: int) -> Iterator[None]:
        self.snapshots.append(version)
        if self.lost:
            raise SnapshotLost("parameter server 1 has no snapshot 5", "evaluate a newer version")
        yield

    def idle(self) -> None:
        self.idled += 1

    def whole(self) -> Model:
        return Model(self.version, {name: value.detach() for name, value in self.model.named_parameters()}, {})


class Collected:
    """Outputs that remember what was committed."""

    def __init__(self) -> None:
        self.committed: list[tuple[Shard, int]] = []
        self._shard, self._count = Shard("", 0, 0), 0

    def begin(self, shard: Shard) -> None:
        self._shard, self._count = shard, 0

    def add(self, predictions: Any) -> None:
        self._count += len(predictions)

    def commit(self) -> None:
        self.committed.append((self._shard, self._count))


def feed(records: Sequence[Record], mode: Mode, metadata: object) -> Batch:
    values = torch.tensor(records).unsqueeze(1) / 100
    return Batch(values, None if mode is Mode.PREDICTION else (values.squeeze(1) > 0.05).long())


SPEC = ModelSpec(
    model_def="test.model",
    file=Path(__file__),
    model=lambda: nn.Linear(1, 2),
    loss=lambda labels, predictions: nn.functional.cross_entropy(predictions, labels),
    optimizer=SGD(0.5),
    feed=feed,
    eval_metrics=lambda: Metrics({"accuracy": Accuracy()}),
)


@dataclass
class Scene:
    """A worker with everything that it works with."""

    tasks: Given
    parameters: Recorded
    reader: Numbers
    outputs: Collected
    ending: Ending
    said: list[str]
    worker: Worker


def scene(*tasks: pb.Task, spec: ModelSpec = SPEC, last_step: int | None = None, job: JobArgs = JOB) -> Scene:
    model, said = spec.model(), list[str]()
    given, parameters, reader, outputs, ending = Given(tasks), Recorded(model), Numbers(), Collected(), Ending()
    parts = Parts(
        tasks=given,
        parameters=parameters,
        step=Step(spec, model, torch.device("cpu")),
        last_step=last_step,
        reader=lambda kind: reader,
        outputs=outputs,
        ending=ending,
        say=said.append,
    )
    return Scene(given, parameters, reader, outputs, ending, said, Worker(job, spec, parts))


def test_every_minibatch_of_a_task_is_pushed_under_its_own_number_and_all_records_are_reported() -> None:
    one = scene(TRAINING, TRAINING, STOP)
    assert one.worker.run() == ""
    assert [number for number, _ in one.parameters.pushed] == [1, 2, 3, 4, 5, 6]
    assert [(each.task, each.records, each.error) for each in one.tasks.reports] == [(7, 10, ""), (7, 10, "")]


def test_a_gradient_that_is_refused_is_computed_again_under_the_same_number() -> None:
    one = scene(TRAINING, STOP)
    one.parameters.refusals = 2
    one.worker.run()
    assert [number for number, _ in one.parameters.pushed] == [1, 1, 1, 2, 3]


def test_the_learning_rate_follows_the_version_of_the_model() -> None:
    scheduled = replace(SPEC, callbacks=(LearningRateScheduler(lambda version: 1 / (1 + version)),))
    one = scene(TRAINING, STOP, spec=scheduled)
    one.worker.run()
    assert [rate for _, rate in one.parameters.pushed] == [1, 1 / 2, 1 / 3]


def test_training_ends_with_the_last_step_and_the_task_is_reported_with_what_was_used() -> None:
    one = scene(TRAINING, STOP, last_step=2)
    one.worker.run()
    assert [number for number, _ in one.parameters.pushed] == [1, 2]
    assert [(each.records, each.error) for each in one.tasks.reports] == [(8, "")]


def test_the_log_has_the_loss_of_the_first_minibatch_the_mean_of_every_so_many_and_of_the_rest() -> None:
    one = scene(TRAINING, TRAINING, STOP)
    one.worker.run()
    assert [line.split()[0] for line in one.said] == ["Loss:"] * 4
    assert [line.rpartition(" ")[2] for line in one.said] == ["step=0", "step=2", "step=4", "step=5"]


def test_a_worker_that_leaves_logs_the_loss_of_its_last_minibatches() -> None:
    one = scene(TRAINING, STOP, job=replace(JOB, log_loss_steps=100))
    one.parameters.on_push = lambda minibatch: one.ending.leave() if minibatch == 3 else None
    with pytest.raises(Leaving):
        one.worker.run()
    assert [line.rpartition(" ")[2] for line in one.said] == ["step=0", "step=1"]


def test_no_loss_is_logged_with_log_loss_steps_0() -> None:
    one = scene(TRAINING, STOP, job=replace(JOB, log_loss_steps=0))
    one.worker.run()
    assert one.said == []


def test_an_evaluation_is_of_its_snapshot_and_sends_states_that_combine() -> None:
    task = pb.Task(id=9, type=pb.EVALUATION, shard="numbers", start=0, end=10, model_version=5)
    one = scene(task, task, STOP)
    one.worker.run()
    assert one.parameters.snapshots == [5, 5]
    whole = SPEC.eval_metrics()
    for report in one.tasks.reports:
        (state,) = report.metric_states.values()
        whole.merge_json(state.decode())
    assert sum(report.records for report in one.tasks.reports) == 20
    assert 0 <= whole.compute()["accuracy"] <= 1


def test_predictions_are_committed_once_for_each_task() -> None:
    one = scene(pb.Task(id=9, type=pb.PREDICTION, shard="numbers", start=20, end=30), STOP)
    one.worker.run()
    assert one.outputs.committed == [(Shard("numbers", 20, 30), 10)]


def test_a_task_whose_data_is_damaged_is_reported_with_the_record_and_the_next_one_is_done() -> None:
    one = scene(TRAINING, pb.Task(id=8, type=pb.TRAINING, shard="numbers", start=10, end=14), STOP)
    one.reader.damaged = 6
    one.worker.run()
    first, second = one.tasks.reports
    assert "record 6 is damaged" in first.error
    assert (second.task, second.error) == (8, "")


def test_an_error_for_users_is_logged_without_a_traceback() -> None:
    one = scene(TRAINING, STOP)
    one.reader.damaged = 0
    one.worker.run()
    assert one.said == ["task 7 of numbers has failed: numbers: record 0 is damaged\ncopy it again"]


def test_the_traceback_of_another_error_is_logged_once_for_each_text() -> None:
    errors = iter([KeyError("user"), KeyError("user"), KeyError("item"), KeyError("user")])

    def failing(records: Sequence[Record], mode: Mode, metadata: object) -> Batch:
        raise next(errors)

    one = scene(*[TRAINING] * 4, STOP, spec=replace(SPEC, feed=failing))
    one.worker.run()
    assert [line.splitlines()[0] for line in one.said] == [
        f"task 7 of numbers has failed: KeyError: '{name}'" for name in ("user", "user", "item", "user")
    ]
    assert ["raise next(errors)" in line for line in one.said] == [True, False, True, False]


@pytest.mark.parametrize("error", [KeyError("user"), Unavailable("S3 does not answer", "try again")], ids=repr)
def test_an_error_of_the_users_functions_or_of_storage_is_the_tasks(error: Exception) -> None:
    def failing(records: Sequence[Record], mode: Mode, metadata: object) -> Batch:
        raise error

    one = scene(TRAINING, STOP, spec=replace(SPEC, feed=failing))
    one.worker.run()
    assert str(error.args[0]) in one.tasks.reports[0].error


def test_predictions_of_a_task_that_fails_are_not_committed() -> None:
    one = scene(pb.Task(id=9, type=pb.PREDICTION, shard="numbers", start=0, end=10), STOP)
    one.reader.damaged = 6
    one.worker.run()
    assert one.outputs.committed == []


def test_a_snapshot_that_a_server_has_lost_is_the_tasks_error_so_that_the_master_can_begin_anew() -> None:
    one = scene(pb.Task(id=9, type=pb.EVALUATION, shard="numbers", start=0, end=10, model_version=5), STOP)
    one.parameters.lost = True
    assert one.worker.run() == ""
    assert "no snapshot 5" in one.tasks.reports[0].error


def test_a_server_that_stays_away_ends_the_worker_and_blames_no_task() -> None:
    def away(minibatch: int) -> None:
        raise ElasticDLError("parameter server 0 has not answered for 300 s", "see its pod")

    one = scene(TRAINING, STOP)
    one.parameters.on_push = away
    with pytest.raises(ElasticDLError, match="300 s"):
        one.worker.run()
    assert one.tasks.reports == []


def test_a_worker_that_is_to_leave_finishes_its_minibatch_and_gives_the_task_back() -> None:
    one = scene(TRAINING, STOP)
    one.parameters.on_push = lambda minibatch: one.ending.leave() if minibatch == 2 else None
    with pytest.raises(Leaving):
        one.worker.run()
    assert [number for number, _ in one.parameters.pushed] == [1, 2]
    assert [(each.task, each.given_back) for each in one.tasks.reports] == [(7, True)]


def test_the_end_of_the_job_ends_a_task_and_the_master_says_why() -> None:
    one = scene(TRAINING, pb.Task(type=pb.STOP, reason="task 3 failed 4 times"))
    one.parameters.on_push = lambda minibatch: one.ending.stop()
    assert one.worker.run() == "task 3 failed 4 times"
    assert one.tasks.reports == []


def test_a_worker_that_is_to_be_replaced_ends_with_an_error() -> None:
    with pytest.raises(ElasticDLError, match="fails tasks that other workers do"):
        scene(pb.Task(type=pb.REPLACE, reason="this worker fails tasks that other workers do")).worker.run()


def test_a_worker_without_a_task_looks_after_the_servers_waits_and_asks_again() -> None:
    one = scene(pb.Task(type=pb.WAIT, wait_seconds=0.01), TRAINING, STOP)
    one.worker.run()
    assert len(one.tasks.reports) == 1
    assert one.parameters.idled == 1


def test_the_export_is_in_the_output(tmp_path: Path) -> None:
    one = scene(pb.Task(id=1 << 50, type=pb.EXPORT), STOP, job=replace(JOB, output=str(tmp_path / "model")))
    one.worker.run()
    assert (tmp_path / "model/model.json").exists()
    assert [each.error for each in one.tasks.reports] == [""]
