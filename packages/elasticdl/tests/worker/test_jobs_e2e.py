"""Jobs of real processes: evaluations of one version, workers that leave, a finished model that is used."""

from __future__ import annotations

import dataclasses
import functools
import signal
from pathlib import Path

import numpy as np
import pytest
import torch
from elasticdl.data.opening import open_reader
from elasticdl.job import JobMode
from elasticdl.worker.assembly import load_model, spec_of
from elasticdl.zoo.spec import Mode

from packages.elasticdl.tests.processes import jobs
from packages.elasticdl.tests.processes.jobs import RECOMMENDER, ZOO, Job
from packages.elasticdl.tests.processes.plain import metrics_of, trained
from tests.farm import Farm
from tidewater.contract import exit_codes

pytestmark = pytest.mark.e2e

job_args = functools.partial(jobs.job_args, use_async=True)


def test_an_evaluation_during_training_is_of_exactly_the_version_in_its_line(
    farm: Farm, etcd: str, digits_records: Path, tmp_path: Path
) -> None:
    """With one worker and one server a job makes the same models as plain training, which measures every one here."""
    args = job_args(digits_records, num_epochs=2, evaluation_steps=7)
    spec = spec_of(args)
    measured = [metrics_of(model, spec, args.validation_data)["accuracy"] for model in trained(args)]
    with Job(farm, tmp_path, etcd, args) as job:
        job.start(workers=1)
        assert job.finish() == exit_codes.FINISHED, job.told()
        evaluations = job.metrics()
    assert len(evaluations) >= 3
    assert len(set(measured)) > 10, "the versions must be different enough to be told apart"
    expected = [measured[each.step - 1] for each in evaluations]
    assert [each.values["accuracy"] for each in evaluations] == pytest.approx(expected, abs=1e-6)


def test_a_worker_that_gets_sigterm_gives_its_task_back_and_exits_as_one_that_left(
    farm: Farm, etcd: str, digits_records: Path, tmp_path: Path
) -> None:
    args = job_args(digits_records, num_epochs=8, log_loss_steps=1)
    with Job(farm, tmp_path, etcd, args) as job:
        job.start(workers=2)
        leaving = next(iter(job.workers.values()))
        job.wait_for(lambda: "Loss:" in leaving.text())
        leaving.signal(signal.SIGTERM)
        assert leaving.wait() == exit_codes.LEFT, leaving.text()
        assert "given its task back" in leaving.text()
        job.start_worker()
        assert job.finish() == exit_codes.FINISHED, job.told()
        assert job.done()[:2] == (48, 8 * 1448)
        assert "is gone; its tasks" not in job.log(), "nothing was left for the master to notice"


def test_a_finished_model_is_evaluated_and_predicts_on_servers(
    farm: Farm, etcd: str, clicks_records: Path, tmp_path: Path
) -> None:
    args = job_args(clicks_records, model_def=RECOMMENDER, num_ps_pods=2, output=str(tmp_path / "model"))
    with Job(farm, tmp_path / "train", etcd, args) as job:
        job.start(workers=2)
        assert job.finish() == exit_codes.FINISHED, job.told()
        trained = job.metrics()[-1].values
    begun = dataclasses.replace(args, checkpoint_dir_for_init=str(tmp_path / "model"), output="", num_ps_pods=1)
    with Job(farm, tmp_path / "evaluate", etcd, dataclasses.replace(begun, mode=JobMode.EVALUATE)) as job:
        job.start(workers=2)
        assert job.finish() == exit_codes.FINISHED, job.told()
        (evaluated,) = job.metrics()
        assert evaluated.values == trained
    out = tmp_path / "predictions"
    predicting = dataclasses.replace(
        begun, mode=JobMode.PREDICT, prediction_data=args.validation_data, validation_data="", output=str(out)
    )
    with Job(farm, tmp_path / "predict", etcd, predicting) as job:
        job.start(workers=2)
        assert job.finish() == exit_codes.FINISHED, job.told()
    predictions = np.concatenate([np.load(part) for part in sorted(out.iterdir())])
    model, spec = load_model(args.output, args.model_zoo), spec_of(args)
    with open_reader(args.validation_data) as reader, torch.no_grad():
        taken = [record for shard in reader.shards() for record in reader.read(shard)]
        wanted = model(spec.feed(taken, Mode.PREDICTION, reader.metadata).features).numpy()
    np.testing.assert_allclose(predictions, wanted, rtol=1e-4, atol=1e-6)


def test_a_job_that_fails_tells_its_workers_why(farm: Farm, etcd: str, digits_records: Path, tmp_path: Path) -> None:
    zoo = tmp_path / "zoo"
    (zoo / "mnist").mkdir(parents=True)
    source = (ZOO / "mnist/mnist_functional_api.py").read_text()
    broken = source.replace("images = torch.stack", "raise KeyError('pixels')\n    images = torch.stack")
    assert broken != source
    (zoo / "mnist/mnist_functional_api.py").write_text(broken)
    # With validation data the worker would find the mistake before it asks for a task.
    fails = {"validation_data": "", "max_task_retries": 1, "task_fault_tolerance": False}
    args = job_args(digits_records, model_zoo=str(zoo), **fails)
    with Job(farm, tmp_path / "job", etcd, args) as job:
        job.start(workers=1)
        assert job.finish() == exit_codes.FAILED, job.told()
        (worker,) = job.workers.values()
        assert worker.poll() == exit_codes.FAILED
        for log in (job.log(), worker.text()):
            assert "failed 2 times" in log
            assert "feed() in" in log
            assert "pixels" in log
