"""ReduceLROnPlateau as a training's scheduler: stepped with the score of each evaluation, on all workers alike."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
from torch import nn
from torch.optim import SGD, lr_scheduler
from torch.utils.data import TensorDataset

from tests.elastic.buffers.together import all_at_once, ranks
from tests.elastic.method.test_checks import config, training
from tidewater.elastic.config import Config
from tidewater.elastic.data.sampler import Cursor
from tidewater.elastic.errors import ConfigError
from tidewater.elastic.group.group import Group
from tidewater.elastic.method.checks import check
from tidewater.elastic.method.optimizers import Optimizers
from tidewater.elastic.observe.log import Log
from tidewater.elastic.session.evaluation import Evaluation, Seat
from tidewater.elastic.session.reports import Reports
from tidewater.elastic.session.session import Session
from tidewater.elastic.session.state import State, kind_of
from tidewater.elastic.training import Training

HELD_OUT = TensorDataset(torch.zeros(4))


class Worker:
    """One rank, with a training that is evaluated on four samples."""

    def __init__(self, group: Group, *, lr: float = 0.1, mode: Any = "max", patience: int = 0) -> None:
        self.group, model, self.score = group, nn.Linear(1, 1), 0.0
        for parameter in model.parameters():
            nn.init.ones_(parameter)
        self.sgd = SGD(model.parameters(), lr=lr)
        plateau = lr_scheduler.ReduceLROnPlateau(self.sgd, mode, factor=0.1, patience=patience)
        self.training = Training(
            model=model,
            optimizer=self.sgd,
            scheduler=plateau,
            dataset=TensorDataset(torch.zeros(1)),
            loss=lambda model, batch: model(batch).mean(),
            validation=HELD_OUT,
            score=lambda model, batch: torch.tensor(self.score * len(batch)),
        )
        self.state = State(self.training, kind_of(model), torch.amp.GradScaler("cpu", enabled=False))
        self.state.present = True
        worker: Any = SimpleNamespace(
            state=self.state,
            group=group,
            training=self.training,
            metrics=SimpleNamespace(evaluated=lambda seconds: None),
        )
        nothing = SimpleNamespace(
            evaluating=torch.no_grad, precision=torch.no_grad, enough_memory=lambda samples: torch.no_grad()
        )
        loader = SimpleNamespace(validation=lambda parts: iter([torch.zeros(len(part), 1) for part in parts]))
        material: Any = SimpleNamespace(training=self.training, stepper=nothing, loader=loader)
        never, session = (lambda: False), SimpleNamespace(worker=worker, log=Log("a"), check=lambda: None)
        session.knows = session.is_overdue = never
        session.together, session.over_processes, session.decided = lambda call: call(), list, lambda value: value
        self.evaluation = Evaluation(cast("Session", session), material)
        unused: Any = None
        self.reports = Reports(unused, worker, Log("a"))

    def evaluate(self, score: float) -> float:
        """Make a step, and evaluate with this score. Return the learning rate."""
        self.state.advance(Cursor(self.state.step + 1, 0), generation=1)
        self.score = score
        self.evaluation.begin(Seat(self.group.rank, self.group.size))
        self.evaluation.measure()
        assert self.evaluation.finish()
        return self.lr

    @property
    def lr(self) -> float:
        return float(self.sgd.param_groups[0]["lr"])


def alone(**more: Any) -> Worker:
    return Worker(ranks(1)[1][0], **more)


@pytest.mark.parametrize(
    ("mode", "scores"), [("max", [0.5, 0.6, 0.6, 0.7, 0.1]), ("min", [0.5, 0.4, 0.4, 0.3, 0.9])], ids=["max", "min"]
)
def test_all_ranks_step_it_with_the_score_of_each_evaluation(mode: str, scores: list[float]) -> None:
    workers = [Worker(group, mode=mode) for group in ranks(2)[1]]
    for score, rate in zip(scores, [0.1, 0.1, 0.01, 0.01, 0.001], strict=True):
        assert all_at_once(lambda rank: workers[rank].evaluate(score), 2) == pytest.approx([rate, rate])  # noqa: B023
    assert workers[0].state.digest() == workers[1].state.digest()


def test_steps_of_the_optimizer_do_not_step_it() -> None:
    worker = alone()
    worker.evaluate(0.5)
    for _ in range(3):
        assert worker.state.optimizers.step(1.0) == pytest.approx(0.1)
    assert worker.evaluate(0.6) == pytest.approx(0.1)


def test_its_state_arrives_at_a_newcomer_and_continues_on_resume() -> None:
    before = alone(patience=1)
    for score in (0.5, 0.4, 0.3, 0.4):
        before.evaluate(score)
    assert before.lr == pytest.approx(0.01)
    joined, resumed = alone(patience=1), alone(patience=1)
    joined.state.load(before.state.tree())
    resumed.state.resume(before.state.tree())
    assert resumed.state.tree()["schedulers"] == before.state.tree()["schedulers"]
    for each in (before, joined, resumed):
        assert each.evaluate(0.4) == pytest.approx(0.001)
    assert len({each.state.digest() for each in (before, joined)}) == 1


def test_on_resume_what_a_person_has_changed_takes_effect() -> None:
    before = alone()
    before.evaluate(0.5)
    before.evaluate(0.4)
    patient, other, turned = alone(patience=1), alone(lr=0.05), alone(mode="min")
    for each in (patient, other, turned):
        each.state.resume(before.state.tree())
    assert [patient.evaluate(0.4), patient.evaluate(0.4)] == pytest.approx([0.01, 0.001])
    assert other.lr == pytest.approx(0.05)
    assert turned.evaluate(0.9) == pytest.approx(0.01), "the best of max is not one of min"


def test_a_rank_that_missed_the_end_of_an_evaluation_gets_the_learning_rate() -> None:
    a, b = alone(), alone()
    for each in (a, b):
        each.evaluate(0.5)
    a.evaluate(0.4)
    b.state.advance(Cursor(2, 0), generation=1)
    b.reports.adopt(a.state.tree(), b.state.load)
    assert b.lr == pytest.approx(0.01)
    assert b.state.digest() == a.state.digest()


def test_a_rank_that_repeats_an_evaluation_with_the_others_is_not_one_ahead() -> None:
    """It was left behind after it had evaluated; the state of the others counts, and they have not."""
    a, b = alone(), alone()
    for each in (a, b):
        each.evaluate(0.5)
    a.state.advance(Cursor(2, 0), generation=1)
    b.evaluate(0.4)
    b.reports.adopt(a.state.tree(), b.state.load)
    assert b.lr == a.lr == pytest.approx(0.1)


def made(scheduler: bool = False, **more: Any) -> Training:
    model = nn.Linear(1, 1)
    sgd = SGD(model.parameters(), 0.1)
    plateau = lr_scheduler.ReduceLROnPlateau(sgd)
    schedulers = [plateau, lr_scheduler.LinearLR(sgd)] if scheduler else plateau
    return Training(model, sgd, HELD_OUT, lambda model, batch: batch, scheduler=schedulers, **more)


@pytest.mark.parametrize(
    ("given", "named"),
    [
        pytest.param({}, "nothing is evaluated: give validation and score; or step it", id="no-score"),
        pytest.param({"score": max}, "nothing is evaluated: give validation and score; or step it", id="no-validation"),
        pytest.param(
            {"score": max, "validation": HELD_OUT, "scheduler": True},
            "ReduceLROnPlateau and a LinearLR for one optimizer.* use schedule for a warm-up",
            id="another-scheduler",
        ),
    ],
)
def test_what_can_not_work_is_refused_with_the_remedy(given: dict[str, Any], named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        Optimizers(made(**given), torch.amp.GradScaler("cpu", enabled=False))


def test_a_warm_up_by_schedule_is_accepted_with_it() -> None:
    Optimizers(
        made(score=max, validation=HELD_OUT, schedule=lambda done: 0.5), torch.amp.GradScaler("cpu", enabled=False)
    )


def test_it_is_refused_without_evaluations_during_training() -> None:
    given = made(score=max, validation=HELD_OUT)
    with pytest.raises(ConfigError, match=r"ReduceLROnPlateau.*--evaluate-every is 0.* give --evaluate-every 1"):
        check(given, config())
    found: Config = config("--evaluate-every", "1")
    check(given, found)
    check(training(HELD_OUT), config())
