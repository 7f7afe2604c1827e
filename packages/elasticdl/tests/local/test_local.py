"""A job in one process is plain training, with the tasks, evaluations and files of any other job."""

from __future__ import annotations

import functools
import json
import logging
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from elasticdl import layers, local
from elasticdl.data.opening import open_reader
from elasticdl.job import JobMode, Strategy
from elasticdl.master import failing
from elasticdl.worker.assembly import load_model, spec_of
from elasticdl.zoo.spec import Mode

from packages.elasticdl.tests.processes import jobs
from packages.elasticdl.tests.processes.jobs import DIGITS, RECOMMENDER, ZOO
from packages.elasticdl.tests.processes.plain import metrics_of, trained
from tidewater.contract import exit_codes

job_args = functools.partial(jobs.job_args, distribution_strategy=Strategy.LOCAL)


def damaged(digits_records: Path, folder: Path) -> Path:
    """Return a copy of the training data, with damage in data-00001."""
    copy = folder / "train"
    copy.mkdir()
    for file in (digits_records / "train").glob("data-*"):
        (copy / file.name).write_bytes(file.read_bytes())
    content = bytearray((copy / "data-00001").read_bytes())
    content[len(content) // 2] ^= 0xFF
    (copy / "data-00001").write_bytes(content)
    return copy


def logged(caplog: pytest.LogCaptureFixture) -> dict[int, str]:
    """Return the metrics in the log by step."""
    found = re.findall(r"Evaluation metrics\[step=(\d+)\]: (.*)", caplog.text)
    return {int(step): text for step, text in found}


def test_the_model_equals_that_of_a_plain_loop_to_the_bit(digits_records: Path, tmp_path: Path) -> None:
    args = job_args(digits_records, output=str(tmp_path), num_epochs=2)
    assert local.run(args) == exit_codes.FINISHED
    *_, plain = trained(args)
    job = load_model(str(tmp_path), str(ZOO))
    ours, theirs = dict(job.named_parameters()), dict(plain.named_parameters())
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)


def test_digits_are_learned_and_each_evaluation_is_of_the_version_in_its_line(
    digits_records: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    args = job_args(digits_records, output=str(tmp_path), num_epochs=5, evaluation_steps=50, log_loss_steps=20)
    assert local.run(args) == exit_codes.FINISHED
    evaluations = logged(caplog)
    assert list(evaluations) == [50, 100, 115]
    accuracy = metrics_of(load_model(str(tmp_path), str(ZOO)), spec_of(args), args.validation_data)["accuracy"]
    assert accuracy > 0.93
    assert evaluations[115] == f"{{'accuracy': {accuracy:.7g}}}"
    assert len(re.findall(r"Loss: [\d.]+ step=\d+", caplog.text)) == 7
    stopped = job_args(digits_records, output=str(tmp_path / "stopped"), num_epochs=5, max_step=50)
    assert local.run(stopped) == exit_codes.FINISHED
    then = metrics_of(load_model(str(tmp_path / "stopped"), str(ZOO)), spec_of(args), args.validation_data)
    assert evaluations[50] == f"{{'accuracy': {then['accuracy']:.7g}}}"


def test_an_evaluation_is_at_once_when_it_is_due_in_the_middle_of_a_task_and_changes_nothing(
    digits_records: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    task = {"num_minibatches_per_task": 100, "max_step": 7, "log_loss_steps": 1}
    args = job_args(digits_records, output=str(tmp_path / "model"), evaluation_steps=3, **task)
    assert local.run(args) == exit_codes.FINISHED
    lines = re.findall(r"(Loss|Evaluation metrics).*step=(\d+)", caplog.text)
    loss = [("Loss", str(version)) for version in range(7)]
    due = [("Evaluation metrics", step) for step in "367"]
    assert lines == [*loss[:2], due[0], *loss[2:5], due[1], *loss[5:], due[2]]
    plain = job_args(digits_records, output=str(tmp_path / "plain"), validation_data="", **task)
    assert local.run(plain) == exit_codes.FINISHED
    one, other = (load_model(str(tmp_path / name), str(ZOO)).state_dict() for name in ("model", "plain"))
    assert all(torch.equal(one[name], other[name]) for name in one)


def test_the_end_is_told_as_in_a_masters_log_and_where_predictions_are(
    digits_records: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    model, out = str(tmp_path / "model"), str(tmp_path / "predictions")
    assert local.run(job_args(digits_records, output=model, max_step=4)) == exit_codes.FINISHED
    assert "Job done: 1 tasks, 256 records, version 4" in caplog.text
    data = str(digits_records / "test")
    args = job_args(
        digits_records, mode=JobMode.PREDICT, prediction_data=data, output=out, checkpoint_dir_for_init=model
    )
    assert local.run(args) == exit_codes.FINISHED
    with open_reader(data) as reader:
        records = sum(shard.count for shard in reader.shards())
    *_, done, place = [record.getMessage() for record in caplog.records]
    assert f", {records} records, " in done
    assert place == f"The predictions are in {out}"


def test_a_job_that_went_on_without_a_task_says_so(
    digits_records: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    copy = damaged(digits_records, tmp_path)
    args = job_args(digits_records, training_data=str(copy), max_task_retries=0)
    assert local.run(args) == exit_codes.FINISHED
    assert "The job went on without task" in caplog.text


def test_a_metric_that_fails_in_the_middle_of_a_task_is_tried_again_and_fails_the_job_after_the_training(
    digits_records: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(failing, "pause_seconds", lambda failures: 0.0)  # so that another training task may begin
    zoo = tmp_path / "zoo"
    shutil.copytree(ZOO, zoo)
    module = zoo / "mnist/mnist_functional_api.py"
    module.write_text(module.read_text() + "\n\ndef eval_metrics_fn():\n    return {'wrong': lambda *_: 1 / 0}\n")
    caplog.set_level(logging.INFO)
    task = {"num_minibatches_per_task": 6, "log_loss_steps": 1, "max_task_retries": 1, "max_step": 8}
    args = job_args(digits_records, model_zoo=str(zoo), evaluation_steps=3, task_fault_tolerance=False, **task)
    assert local.run(args) == exit_codes.FAILED
    assert re.findall(r"Loss.*step=(\d+)", caplog.text) == [str(step) for step in range(8)]
    assert not re.search(r"task 1 .*failed", caplog.text), "the training task goes on"
    assert "division by zero" in caplog.records[-1].message


def test_embedding_tables_are_exported_and_read_with_the_model(clicks_records: Path, tmp_path: Path) -> None:
    args = job_args(clicks_records, model_def=RECOMMENDER, output=str(tmp_path))
    assert local.run(args) == exit_codes.FINISHED
    model = load_model(str(tmp_path), str(ZOO))
    assert set(layers.tables(model)) == {"wide_user", "wide_item", "user", "item"}
    assert metrics_of(model, spec_of(args), args.validation_data)["auc"] > 0.65


@pytest.mark.parametrize("source", ["output", "checkpoints"])
def test_evaluate_and_predict_use_an_exported_model_or_a_checkpoint(
    clicks_records: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture, source: str
) -> None:
    caplog.set_level(logging.INFO)
    args = job_args(
        clicks_records,
        model_def=RECOMMENDER,
        output=str(tmp_path / "output"),
        checkpoint_dir=str(tmp_path / "checkpoints"),
        checkpoint_steps=50,
        max_step=50,
    )
    assert local.run(args) == exit_codes.FINISHED
    begun = {"model_def": RECOMMENDER, "checkpoint_dir_for_init": str(tmp_path / source)}
    caplog.clear()
    assert local.run(job_args(clicks_records, mode=JobMode.EVALUATE, **begun)) == exit_codes.FINISHED
    model, spec = load_model(str(tmp_path / "output"), str(ZOO)), spec_of(args)
    expected = metrics_of(model, spec, args.validation_data)
    assert logged(caplog) == {50: str({name: float(f"{value:.7g}") for name, value in expected.items()})}

    out = tmp_path / "predictions"
    predicting = job_args(
        clicks_records, mode=JobMode.PREDICT, prediction_data=args.validation_data, output=str(out), **begun
    )
    assert local.run(predicting) == exit_codes.FINISHED
    parts = [np.load(part) for part in sorted(out.iterdir())]
    with open_reader(args.validation_data) as reader, torch.no_grad():
        taken = [record for shard in reader.shards() for record in reader.read(shard)]
        wanted = model(spec.feed(taken, Mode.PREDICTION, reader.metadata).features).numpy()
    np.testing.assert_allclose(np.concatenate(parts), wanted, rtol=1e-4, atol=1e-6)


def test_a_checkpoint_of_another_model_is_refused_with_the_parameters_name(
    digits_records: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert local.run(job_args(digits_records, output=str(tmp_path), max_step=1)) == exit_codes.FINISHED
    other = job_args(digits_records, model_params="channels=8", checkpoint_dir_for_init=str(tmp_path))
    assert local.run(other) == exit_codes.USAGE
    assert "0.weight has shape" in caplog.text
    assert "parameter server" not in caplog.text


def test_a_second_job_with_the_same_folder_for_checkpoints_is_refused_and_changes_nothing(
    digits_records: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    args = job_args(digits_records, checkpoint_dir=str(tmp_path), checkpoint_steps=2, max_step=4)
    assert local.run(args) == exit_codes.FINISHED
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert before
    assert local.run(args) == exit_codes.USAGE
    assert f"--checkpoint_dir={tmp_path} has checkpoints of another run" in caplog.text
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


def test_a_task_that_cannot_be_read_fails_the_job_with_the_file_and_after_its_retries(
    digits_records: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    copy = damaged(digits_records, tmp_path)
    args = job_args(digits_records, training_data=str(copy), max_task_retries=1, task_fault_tolerance=False)
    assert local.run(args) == exit_codes.FAILED
    assert "data-00001" in caplog.records[-1].message
    assert "failed 2 times" in caplog.records[-1].message


def test_an_exported_model_says_which_function_made_it(digits_records: Path, tmp_path: Path) -> None:
    args = job_args(digits_records, model_params="channels=8", output=str(tmp_path), max_step=1)
    assert local.run(args) == exit_codes.FINISHED
    told = json.loads((tmp_path / "model.json").read_text())
    assert (told["model_def"], told["model_params"]) == (DIGITS, "channels=8")
