"""What is said and done at each step, and once at the end."""

from __future__ import annotations

from typing import cast

import pytest
import torch
from elasticdl.allreduce.evaluating import Evaluator
from elasticdl.allreduce.hooks import Following, Plan

from tidewater import Report

MODEL = torch.nn.Linear(1, 1)


def report(step: int, *, epoch: int = 0, rank: int = 0, loss: float = 1.0) -> Report:
    return Report(
        step=step,
        epoch=epoch,
        generation=1,
        world_size=2,
        rank=rank,
        loss=loss,
        lr=0.1,
        samples=(),
        batch_size=64,
        step_seconds=0.1,
        wait_seconds=0.02,
        useful_seconds=0.1,
    )


def followed(exported: list[int], said: list[str], last_step: int | None = None) -> Following:
    return Following(Plan(2, last_step, 2, 0), MODEL, None, exported.append, said.append)


def test_the_loss_of_the_first_step_is_told_and_then_the_mean_since_the_last_line_also_at_the_end() -> None:
    said: list[str] = []
    following = followed([], said)
    for step, loss in enumerate((1.0, 3.0, 5.0, 7.0, 9.0), 1):
        following.on_step(report(step, loss=loss, epoch=2 * (step == 5)))
    assert said == ["Loss: 1 step=1", "Loss: 3 step=2", "Loss: 6 step=4", "Loss: 9 step=5"]


def test_a_worker_that_joins_tells_the_loss_of_its_first_step() -> None:
    said: list[str] = []
    followed([], said).on_step(report(57, loss=3.0))
    assert said == ["Loss: 3 step=57"]


def test_a_step_of_others_is_counted_and_not_told() -> None:
    said: list[str] = []
    following = followed([], said)
    following.on_step(report(2, rank=-1))
    assert (said, following.state_dict()) == ([], {"step": 2, "is_over": False})


def test_the_model_is_exported_at_the_end_and_not_while_the_trainer_warms_up() -> None:
    exported: list[int] = []
    following = followed(exported, [])
    following.at_the_end(MODEL, {})
    following.on_step(report(9, epoch=1))
    following.at_the_end(MODEL, {})
    assert exported == []
    following.on_step(report(10, epoch=2))
    assert float(following.at_the_end(MODEL, {})) == 0.0
    assert exported == [10]


class Failing:
    """An evaluator that fails."""

    def finish(self) -> None:
        raise KeyError("score")


def test_the_model_is_exported_before_an_evaluation_fails() -> None:
    exported: list[int] = []
    following = Following(Plan(2, None, 2, 0), MODEL, cast(Evaluator, Failing()), exported.append, print)
    following.on_step(report(10, epoch=2))
    with pytest.raises(KeyError):
        following.at_the_end(MODEL, {})
    assert exported == [10]


def test_the_last_step_may_come_before_the_last_epoch() -> None:
    exported: list[int] = []
    following = followed(exported, [], last_step=3)
    following.on_step(report(3))
    following.at_the_end(MODEL, {})
    assert exported == [3]


def test_a_newcomer_knows_that_the_training_is_over() -> None:
    exported: list[int] = []
    one, other = followed([], []), followed(exported, [])
    one.on_step(report(10, epoch=2))
    other.load_state_dict(one.state_dict())
    other.at_the_end(MODEL, {})
    assert exported == [10]
