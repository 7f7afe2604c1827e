"""A learning rate that the script sets in on_step holds, and one that it sets in before_step counts for that step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from torch import nn
from torch.optim import SGD, lr_scheduler

from tests.elastic.method.conftest import Trainee, batches, prepared
from tidewater.elastic.group.group import Group


def sgd_of(model: nn.Module) -> SGD:
    return SGD(model.parameters(), lr=0.1, momentum=0.9)


@pytest.mark.parametrize("scheduled", [False, True], ids=["alone", "with-a-scheduler"])
def test_a_learning_rate_that_the_script_sets_between_steps_holds(group: Group, scheduled: bool) -> None:
    def build(model: nn.Module) -> dict[str, Any]:
        sgd = sgd_of(model)
        return {"optimizer": sgd, "scheduler": lr_scheduler.ExponentialLR(sgd, 0.7) if scheduled else ()}

    trainee = Trainee(group, build)
    decay = 0.7 if scheduled else 1.0
    assert trainee.train(batches(2)) == pytest.approx([0.1, 0.1 * decay])
    (settings,) = trainee.state.optimizers.groups()
    settings["lr"] = 0.03
    assert trainee.train(batches(2)) == pytest.approx([0.03, 0.03 * decay])
    assert trainee.train(batches(2), factor=0.5) == pytest.approx([0.015 * decay**2, 0.015 * decay**3])


def test_reduce_on_plateau_driven_from_on_step_acts(group: Group) -> None:
    trainee = Trainee(group, lambda model: {"optimizer": sgd_of(model)})
    optimizer: Any = trainee.stepper._training.optimizer
    plateau = lr_scheduler.ReduceLROnPlateau(optimizer, factor=0.1, patience=0)
    rates = []
    for _ in range(4):
        rates += trainee.train(batches(1))
        plateau.step(1.0)
    assert rates == pytest.approx([0.1, 0.1, 0.01, 0.001])


@pytest.mark.parametrize(
    ("derive", "factors", "rates"),
    [
        pytest.param(lambda lr: max(lr, 0.03), [0.1, 0.5, 1.0], [0.03, 0.05, 0.1], id="a floor under a warm-up"),
        pytest.param(lambda lr: lr * 0.9, [2.0, 2.0, 2.0], [0.18, 0.18, 0.18], id="a factor with two workers"),
    ],
)
def test_a_learning_rate_that_the_hook_before_a_step_sets_counts_for_that_step_only(
    group: Group, derive: Callable[[float], float], factors: list[float], rates: list[float]
) -> None:
    def before_step(_: nn.Module) -> None:
        for settings in trainee.state.optimizers.groups():
            settings["lr"] = derive(settings["lr"])

    trainee = Trainee(group, lambda model: {"optimizer": sgd_of(model), "before_step": before_step})
    used = [trainee.train([batch], factor)[0] for batch, factor in zip(batches(3), factors, strict=True)]
    assert used == pytest.approx(rates)
    assert [each["lr"] for each in trainee.groups()] == [0.1]


@pytest.mark.parametrize("factor", [1.0, 2.0])
def test_a_scheduler_may_be_stepped_before_another_optimizer_steps(group: Group, factor: float) -> None:
    def build(model: Any) -> dict[str, Any]:
        return {"optimizer": [SGD(model[0].parameters(), lr=0.1), SGD(model[2].parameters(), lr=0.3)]}

    trainee = Trainee(group, build)
    optimizers: Any = trainee.stepper._training.optimizer
    schedulers = [lr_scheduler.ExponentialLR(each, 0.5) for each in optimizers]
    used = []
    for batch in batches(2):
        outcome = trainee.stepper.gradients(prepared(batch))
        with trainee.stepper.applying(outcome, factor):
            for optimizer, scheduler in zip(optimizers, schedulers, strict=True):
                used.append(optimizer.param_groups[0]["lr"])
                optimizer.step()
                scheduler.step()
    assert used == pytest.approx([0.1 * factor, 0.3 * factor, 0.05 * factor, 0.15 * factor])
    assert [each["lr"] for each in trainee.groups()] == pytest.approx([0.025, 0.075])


def lowered(group: Group) -> Trainee:
    """Return a training with 0.1 and 0.3, which on_step has lowered to a tenth."""
    trainee = Trainee(group, lambda model: {"optimizer": two_groups(model, 0.1)})
    trainee.train(batches(2))
    for settings in trainee.state.optimizers.groups():
        settings["lr"] *= 0.1
    trainee.train(batches(1))
    return trainee


def two_groups(model: Any, lr: float) -> SGD:
    return SGD([{"params": model[0].parameters()}, {"params": model[2].parameters(), "lr": 0.3}], lr=lr)


@pytest.mark.parametrize(
    ("lr", "rates"),
    [
        pytest.param(0.1, [0.01, 0.03], id="the script is unchanged"),
        pytest.param(0.05, [0.05, 0.03], id="a person has changed that of one group"),
    ],
)
def test_a_learning_rate_that_on_step_has_lowered_holds_on_resume_unless_the_script_has_another_one(
    group: Group, lr: float, rates: list[float]
) -> None:
    tree = lowered(group).state.tree()
    for _ in range(2):  # also from a checkpoint of the resumed job
        again = Trainee(group, lambda model: {"optimizer": two_groups(model, lr)})
        again.state.resume(tree)
        assert [each["lr"] for each in again.groups()] == pytest.approx(rates)
        tree = again.state.tree()


def test_on_resume_a_scheduler_decides_on_the_learning_rate_and_not_what_on_step_has_set(group: Group) -> None:
    def build(model: nn.Module) -> dict[str, Any]:
        sgd = sgd_of(model)
        return {"optimizer": sgd, "scheduler": lr_scheduler.ExponentialLR(sgd, 0.7)}

    before, after = Trainee(group, build), Trainee(group, build)
    before.train(batches(2))
    for settings in before.state.optimizers.groups():
        settings["lr"] = 0.001
    after.state.resume(before.state.tree())
    assert [each["lr"] for each in after.groups()] == pytest.approx([0.1 * 0.7**2])
