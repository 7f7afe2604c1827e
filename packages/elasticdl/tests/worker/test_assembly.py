"""What a job uses of its model, and what it doesn't touch."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from elasticdl import local
from elasticdl.errors import InputError
from elasticdl.job import JobArgs, JobMode, Strategy
from elasticdl.worker.assembly import load_model, outputs_of, spec_of
from elasticdl.worker.predictions import Processed

from tidewater.contract import exit_codes

MODEL = """
import torch

def custom_model():
    return torch.nn.Linear(2, 2)

def feed(records, mode, metadata):
    values = torch.tensor([[float(value) for value in record] for record in records])
    return values[:, :2], values[:, 2].long()
"""
LEARNING = """
from elasticdl.zoo.metrics import Accuracy
from elasticdl.zoo.optimizers import Adam

def my_loss(labels, predictions):
    return torch.nn.functional.cross_entropy(predictions, labels)

def my_optimizer():
    return Adam(lr=0.1)
"""
METRICS = """
def my_metrics():
    return {"accuracy": Accuracy()}
"""
PROCESSOR = """
from pathlib import Path
from elasticdl.zoo.spec import PredictionOutputsProcessor

class PredictionOutputsProcessor(PredictionOutputsProcessor):
    def __init__(self):
        with Path(__file__).with_suffix(".made").open("a") as file:
            file.write("x")

    def process(self, predictions, worker_id):
        with Path(__file__).with_suffix(".got").open("a") as file:
            file.write("x" * len(predictions))
"""


def training(folder: Path, *parts: str) -> JobArgs:
    """Write a model with other names than the usual ones, and data; return a job that trains it in this process."""
    (folder / "zoo").mkdir()
    write(folder, *parts)
    (folder / "data.csv").write_text("a,b,label\n" + "".join(f"{row}.0,1.0,{row % 2}\n" for row in range(20)))
    return JobArgs(
        job_name="small",
        distribution_strategy=Strategy.LOCAL,
        model_zoo=str(folder / "zoo"),
        model_def="small.custom_model",
        loss="my_loss",
        optimizer="my_optimizer",
        training_data=str(folder / "data.csv"),
        minibatch_size=5,
        num_minibatches_per_task=2,
        output=str(folder / "model"),
    )


def write(folder: Path, *parts: str) -> None:
    (folder / "zoo" / "small.py").write_text(MODEL + "".join(parts))


def predicting(args: JobArgs) -> JobArgs:
    """Return the job that predicts with the trained model, by a command that has no flag for its other functions."""
    return JobArgs(
        job_name="small",
        distribution_strategy=Strategy.LOCAL,
        mode=JobMode.PREDICT,
        model_zoo=args.model_zoo,
        model_def=args.model_def,
        prediction_data=args.training_data,
        checkpoint_dir_for_init=args.output,
        minibatch_size=5,
    )


def test_a_model_with_other_names_is_trained_evaluated_and_used(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    args = training(tmp_path, LEARNING, METRICS)
    assert local.run(args) == exit_codes.FINISHED, caplog.text
    evaluating = replace(
        args,
        mode=JobMode.EVALUATE,
        loss="loss",
        optimizer="optimizer",
        eval_metrics_fn="my_metrics",
        validation_data=args.training_data,
        checkpoint_dir_for_init=args.output,
    )
    assert local.run(evaluating) == exit_codes.FINISHED, caplog.text
    assert "Evaluation metrics[" in caplog.text
    assert local.run(replace(predicting(args), output=str(tmp_path / "out"))) == exit_codes.FINISHED, caplog.text
    predictions = np.concatenate([np.load(part) for part in sorted((tmp_path / "out").iterdir())])
    model = load_model(args.output, args.model_zoo)
    wanted = model(torch.tensor([[float(row), 1.0] for row in range(20)])).detach().numpy()
    np.testing.assert_allclose(predictions, wanted, rtol=1e-6)


def test_a_model_without_metrics_is_trained_where_nothing_is_evaluated(tmp_path: Path) -> None:
    args = training(tmp_path, LEARNING)
    assert local.run(args) == exit_codes.FINISHED
    with pytest.raises(InputError, match="has no eval_metrics_fn"):
        spec_of(replace(args, validation_data=args.training_data))


@pytest.mark.parametrize(("output", "parts"), [("/out", (PROCESSOR,)), ("", ())], ids=["both", "neither"])
def test_predictions_go_to_one_place(tmp_path: Path, output: str, parts: tuple[str, ...]) -> None:
    args = training(tmp_path, *parts)
    with pytest.raises(InputError, match=r"--output is (/out, and the model's|missing, and the model has no) Pred"):
        spec_of(replace(predicting(args), output=output))


def test_a_processor_is_made_once_and_only_to_predict(tmp_path: Path) -> None:
    args = training(tmp_path, LEARNING, METRICS, PROCESSOR)
    made, got = tmp_path / "zoo" / "small.made", tmp_path / "zoo" / "small.got"
    evaluated = replace(args, validation_data=args.training_data, eval_metrics_fn="my_metrics")
    assert local.run(evaluated) == exit_codes.FINISHED
    spec = spec_of(predicting(args))  # as the master loads it
    assert not made.exists()
    assert local.run(predicting(args)) == exit_codes.FINISHED
    assert (made.read_text(), got.read_text()) == ("x", "x" * 20)
    assert isinstance(outputs_of(predicting(args), spec, "small-worker-0"), Processed)
