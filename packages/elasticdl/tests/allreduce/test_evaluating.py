"""An evaluation is of the model as it was when it fell due, and its errors come after the training."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
import torch
from elasticdl.allreduce.evaluating import Evaluator
from elasticdl.allreduce.records import Records
from elasticdl.data.opening import open_reader
from elasticdl.errors import ZooError
from elasticdl.worker import assembly
from elasticdl.zoo.spec import Mode

from packages.elasticdl.tests.master.jobs import VALIDATION_RECORDS, write_job


def evaluator(folder: Path, said: list[str]) -> Evaluator:
    args = write_job(folder, validation_data=str(folder / "test.csv"))
    records = Records(open_reader(args.validation_data), Mode.EVALUATION)
    return Evaluator(assembly.spec_of(args), records, 4, said.append)


def always(label: int) -> torch.nn.Module:
    """Return a model that predicts this label."""
    model = torch.nn.Linear(2, 2)
    with torch.no_grad():
        model.weight.zero_()
        model.bias.copy_(torch.eye(2)[label])
    return model


def test_all_validation_data_counts_whatever_the_minibatch(tmp_path: Path) -> None:
    said: list[str] = []
    ones = VALIDATION_RECORDS // 2
    assert evaluator(tmp_path, said).run(always(1), 7) == {"accuracy": ones / VALIDATION_RECORDS}
    assert said == [f"Evaluation metrics[step=7]: {{'accuracy': {ones / VALIDATION_RECORDS}}}"]


def test_the_model_that_was_given_is_evaluated_although_training_goes_on(tmp_path: Path) -> None:
    said: list[str] = []
    one, model = evaluator(tmp_path, said), always(1)
    one.begin(model, 5)
    model.load_state_dict(always(0).state_dict())
    one.finish()
    assert one.evaluated == (5, {"accuracy": (VALIDATION_RECORDS // 2) / VALIDATION_RECORDS})
    assert model.training


def test_evaluations_that_fall_due_during_another_one_are_one_of_the_last_model_and_the_log_says_so(
    tmp_path: Path,
) -> None:
    said: list[str] = []
    is_evaluated, may_go_on = threading.Event(), threading.Event()
    one = evaluator(tmp_path, said)

    def say(line: str) -> None:
        said.append(line.partition(":")[0])
        if "metrics" in line:
            is_evaluated.set()
            assert may_go_on.wait(60)

    one._say = say
    one.begin(always(1), 5)
    assert is_evaluated.wait(60)
    for step in (10, 15, 20):
        one.begin(always(1), step)
    may_go_on.set()
    one.finish()
    assert said == [
        "Evaluation metrics[step=5]",
        "The evaluation due at step 10 is joined with that of step 15",
        "The evaluation due at step 15 is joined with that of step 20",
        "Evaluation metrics[step=20]",
    ]


def test_an_error_of_an_evaluation_is_raised_at_the_end_of_the_training_and_no_other_one_begins(tmp_path: Path) -> None:
    said: list[str] = []
    one = evaluator(tmp_path, said)
    one.begin(torch.nn.Flatten(0), 5)
    with pytest.raises(ZooError, match="accuracy"):
        one.finish()
    one.begin(always(1), 10)
    with pytest.raises(ZooError, match="accuracy"):
        one.finish()
    assert [line.partition(":")[0] for line in said] == ["The evaluation of step 5 has failed, and no other one begins"]
