"""The end of a training: tables, learning rate and limits of the zoo, the exported model, a worker lost meanwhile."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from elasticdl import local
from elasticdl.job import JobArgs, JobMode, Strategy
from elasticdl.worker import exported

from packages.elasticdl.tests.allreduce.jobs import KILLED, Job, digits
from tests.farm import Farm
from tidewater.contract import exit_codes

pytestmark = pytest.mark.e2e

ZOO = """
import os
import pathlib
import signal

import torch

from elasticdl.embedding_init import Table
from elasticdl.layers import Embedding
from elasticdl.zoo.callbacks import LearningRateScheduler, MaxSteps
from elasticdl.zoo.metrics import Accuracy
from elasticdl.zoo.optimizers import SGD

KILLS = pathlib.Path(__file__).parent / "kills"


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.items = Embedding(Table("item", 4, num_ids=10))
        self.dense = torch.nn.Linear(4, 2)

    def forward(self, ids):
        return self.dense(self.items(ids))


def loss(labels, predictions):
    return torch.nn.functional.cross_entropy(predictions, labels)


def optimizer():
    return SGD(lr=99.0)


def callbacks():
    return [LearningRateScheduler(lambda version: 0.5 if version < 5 else 0.0), MaxSteps(12)]


def feed(records, mode, metadata):
    values = torch.tensor([[int(value) for value in record] for record in records])
    return (values[:, 0], values[:, 1]) if mode != "prediction" else values[:, 0]


def count(labels, predictions):
    if KILLS.exists():
        KILLS.unlink()
        os.kill(os.getpid(), signal.SIGKILL)
    return float(len(labels))


def eval_metrics_fn():
    return {"accuracy": Accuracy(), "count": count}
"""


def job_args(folder: Path, **changes: Any) -> JobArgs:
    """Write zoo and data; return a job."""
    (folder / "zoo").mkdir()
    (folder / "zoo" / "small.py").write_text(ZOO)
    for name, count in (("train", 100), ("test", 25)):
        lines = "".join(f"{index % 10},{index % 10 % 2}\n" for index in range(count))
        (folder / f"{name}.csv").write_text(f"item,label\n{lines}")
    data = {"training_data": str(folder / "train.csv"), "validation_data": str(folder / "test.csv")}
    model = {"model_zoo": str(folder / "zoo"), "model_def": "small.Model", "minibatch_size": 10, "log_loss_steps": 100}
    return digits(folder, folder / "model", **{**data, **model, **changes})


def test_schedule_and_limit_of_the_zoo_hold_and_the_model_goes_on_elsewhere(
    farm: Farm, tmp_path: Path, etcd: str, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    args = job_args(tmp_path)
    with Job(farm, tmp_path, etcd, args) as job:
        assert job.start().wait() == exit_codes.FINISHED, job.workers[0].text()
        ((step, values),) = job.metrics()
    found = exported.read(args.output)
    assert (step, found.model.version) == (12, 12)
    assert set(found.model.tables) == {"item"}
    assert len(found.model.tables["item"].ids) == 10
    evaluated = job_args_of_evaluation(args)
    with caplog.at_level("INFO"):
        assert local.run(evaluated) == exit_codes.FINISHED
    assert f"{values}" in caplog.text + "".join(capfd.readouterr())


def job_args_of_evaluation(args: JobArgs) -> JobArgs:
    """Return the evaluation of that job's model in this process."""
    return JobArgs(
        job_name="evaluation",
        mode=JobMode.EVALUATE,
        distribution_strategy=Strategy.LOCAL,
        model_zoo=args.model_zoo,
        model_def=args.model_def,
        validation_data=args.validation_data,
        minibatch_size=args.minibatch_size,
        checkpoint_dir_for_init=args.output,
        num_ps_pods=0,
    )


def test_another_training_begins_with_an_exported_model(farm: Farm, tmp_path: Path, etcd: str) -> None:
    args = job_args(tmp_path)
    with Job(farm, tmp_path / "one", etcd, args) as job:
        assert job.start().wait() == exit_codes.FINISHED, job.workers[0].text()
    first = exported.read(args.output).model
    (tmp_path / "again").mkdir()
    again = job_args(tmp_path / "again", checkpoint_dir_for_init=args.output, num_epochs=1, max_step=1)
    (tmp_path / "again/zoo/small.py").write_text(ZOO.replace("0.5 if", "0.0 if"))
    with Job(farm, tmp_path / "two", etcd, again) as job:
        assert job.start().wait() == exit_codes.FINISHED, job.workers[0].text()
    second = exported.read(again.output).model
    assert all(torch.equal(first.dense[name], value) for name, value in second.dense.items())
    assert torch.equal(first.tables["item"].rows, second.tables["item"].rows)


def test_a_worker_that_is_lost_while_it_evaluates_at_the_end_is_replaced_by_another(
    farm: Farm, tmp_path: Path, etcd: str
) -> None:
    args = job_args(tmp_path)
    (tmp_path / "zoo" / "kills").touch()
    with Job(farm, tmp_path, etcd, args) as job:
        job.start("--min-workers", "2", "--max-workers", "2")
        job.start("--min-workers", "2", "--max-workers", "2")
        job.start("--min-workers", "2", "--max-workers", "2")
        codes = sorted(worker.wait() for worker in job.workers)
        assert codes == [KILLED, exit_codes.FINISHED, exit_codes.FINISHED], job.workers[0].account()
        assert [step for step, _ in job.metrics()] == [12]
    assert exported.read(args.output).model.version == 12


def test_a_table_of_unknown_size_ends_the_worker_as_wrong_input(farm: Farm, tmp_path: Path, etcd: str) -> None:
    args = job_args(tmp_path)
    (tmp_path / "zoo/small.py").write_text(ZOO.replace(", num_ids=10", ""))
    with Job(farm, tmp_path, etcd, args) as job:
        worker = job.start()
        assert worker.wait() == exit_codes.USAGE
        assert "'item' has no num_ids" in worker.text()
