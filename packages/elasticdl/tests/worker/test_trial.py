"""A mistake in the functions of an evaluation shows before the training, and never costs the trained model."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from elasticdl import local
from elasticdl.errors import ZooError
from elasticdl.job import JobArgs, Strategy
from elasticdl.worker import assembly
from elasticdl.worker.trial import try_metrics

from packages.elasticdl.tests.master.jobs import ZOO, write_job
from tidewater.contract import exit_codes

LATE = """
class Late(Accuracy):
    def compute(self):
        if self._count == 25:
            raise KeyError("only of all validation data")
        return super().compute()


def eval_metrics_fn():
    return {"accuracy": Late()}
"""


def job(folder: Path, metrics: str = "") -> JobArgs:
    """Return a job in this process, of a model with other metrics."""
    args = write_job(folder, distribution_strategy=Strategy.LOCAL, validation_data=str(folder / "test.csv"))
    (folder / "zoo" / "small.py").write_text(ZOO + metrics)
    return replace(args, output=str(folder / "model"))


def one(value: str) -> str:
    return f"\n\ndef eval_metrics_fn():\n    return {{'wrong': {value}}}\n"


@pytest.mark.parametrize(
    ("metrics", "said"),
    [
        pytest.param(one("lambda labels, predictions: predictions.score"), "metric wrong failed", id="update"),
        pytest.param(one("lambda labels, predictions: predictions[:1, 0]"), r"shape \(1,\) for 5 samples", id="shape"),
    ],
)
def test_a_metric_that_fails_is_named_before_the_training(tmp_path: Path, metrics: str, said: str) -> None:
    args = job(tmp_path, metrics)
    with pytest.raises(ZooError, match=rf"first minibatch of .*test.csv: .*{said}"):
        try_metrics(args, assembly.spec_of(args))
    assert local.run(args) == exit_codes.USAGE


def test_data_that_cant_be_read_and_a_division_by_zero_are_left_to_the_evaluation(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    args = job(tmp_path, one("lambda labels, predictions: 1 / 0"))
    try_metrics(args, assembly.spec_of(args))
    assert "division by zero" in caplog.text
    (tmp_path / "test.csv").unlink()
    try_metrics(args, assembly.spec_of(args))
    assert "no record can be read" in caplog.text


def test_the_metrics_are_tried_on_the_device_of_the_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(assembly, "device", lambda: torch.device("meta"))  # no values are computed there
    args = job(tmp_path)
    with pytest.raises(ZooError, match="meta"):
        try_metrics(args, assembly.spec_of(args))


def test_an_evaluation_that_fails_at_the_end_ends_the_job_after_the_model_is_stored(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    args = job(tmp_path, LATE)
    assert local.run(args) == exit_codes.FAILED
    assert "Job failed: metric accuracy failed: KeyError: 'only of all validation data'" in caplog.text
    assert (tmp_path / "model" / "model.json").exists()
