"""What a worker of a rehearsal records of an evaluation, and that a Stop doesn't end the rehearsal."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.optim import SGD, lr_scheduler
from torch.utils.data import TensorDataset

from tests.elastic.method.test_checks import config
from tidewater.cli.rehearse.app import Options, command_of
from tidewater.contract.rehearsal import ORDERS, Scored, read_whole
from tidewater.elastic.errors import ConfigError
from tidewater.elastic.method.checks import check
from tidewater.elastic.rehearsal.observer import Observer
from tidewater.elastic.session.state import State, kind_of
from tidewater.elastic.training import Evaluated, Stop, Training


class Session:
    """As much of a session as the observer reads."""

    def __init__(self, training: Training) -> None:
        state = State(training, kind_of(training.model), torch.amp.GradScaler("cpu", enabled=False))
        self.worker = type("Worker", (), {"state": state})


class Script:
    """A training that is evaluated, as the observer of a rehearsal hands it to the runtime."""

    def __init__(self, folder: Path) -> None:
        (folder / ORDERS).write_text(json.dumps({"samples": 0}))
        model, self.folder = nn.Linear(1, 1), folder
        self.sgd = SGD(model.parameters(), 0.1)
        given = Training(
            model=model,
            optimizer=self.sgd,
            scheduler=lr_scheduler.ReduceLROnPlateau(self.sgd, "max"),
            dataset=TensorDataset(torch.zeros(4)),
            loss=lambda model, batch: batch,
            validation=TensorDataset(torch.zeros(30)),
            score=lambda model, batch: torch.zeros(()),
            keep_best="max",
            on_evaluation=self.evaluated,
        )
        self.config = config(*command_of([], Options()))
        self.observer = Observer(folder, self.config)
        self.training = self.observer.observed(given)
        session: Any = Session(given)
        self.observer.watch(session)

    def evaluated(self, report: Evaluated) -> None:
        self.sgd.param_groups[0]["momentum"] = report.score
        if report.score > 0.5:
            raise Stop("good enough")

    def scored(self) -> Scored:
        ((_, record),) = read_whole(self.folder, {})
        assert isinstance(record, Scored)
        return record


def test_a_script_with_a_plateau_and_keep_best_can_be_rehearsed(tmp_path: Path) -> None:
    script = Script(tmp_path)
    check(script.training, script.config)


def test_what_the_runtime_refuses_is_refused_in_a_rehearsal_too(tmp_path: Path) -> None:
    script = Script(tmp_path)
    splits: Any = {"train": TensorDataset(torch.zeros(4))}
    given = script.observer.observed(replace(script.training, dataset=splits))
    with pytest.raises(ConfigError, match="is a dict with the keys 'train'"):
        check(given, script.config)


@pytest.mark.parametrize("score", [0.25, 0.75])
def test_an_evaluation_is_recorded_with_the_state_after_it_and_a_stop_does_not_end_the_rehearsal(
    tmp_path: Path, score: float
) -> None:
    script = Script(tmp_path)
    script.training.on_evaluation(Evaluated(step=13, epoch=1, score=score))
    record = script.scored()
    assert (record.step, record.score, record.samples) == (13, score, 30)
    assert record.pieces["optimizers/0/param_groups/0/momentum"] == str(score)
    assert "draws/on_evaluation" in record.pieces
