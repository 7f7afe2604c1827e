"""A learning rate that the script sets in its hooks holds."""

from __future__ import annotations

from typing import Any

import pytest
from torch import nn
from torch.optim import SGD, lr_scheduler

from tests.elastic.method.conftest import Trainee, batches
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


def test_a_learning_rate_that_the_hook_before_a_step_sets_is_used_and_holds(group: Group) -> None:
    rates = iter([0.2, None, None])

    def before_step(_: nn.Module) -> None:
        rate = next(rates)
        if rate is not None:
            next(trainee.state.optimizers.groups())["lr"] = rate

    trainee = Trainee(group, lambda model: {"optimizer": sgd_of(model), "before_step": before_step})
    assert trainee.train(batches(3)) == pytest.approx([0.2, 0.2, 0.2])
