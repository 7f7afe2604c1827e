"""The optimizer that a script sees is the inner one, but for the moment of the update."""

from __future__ import annotations

import torch
from elasticdl.api import FixedBatchOptimizer
from torch.optim.lr_scheduler import StepLR


def made() -> tuple[torch.nn.Linear, torch.optim.SGD, FixedBatchOptimizer]:
    model = torch.nn.Linear(2, 1)
    inner = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    return model, inner, FixedBatchOptimizer(inner)


def test_with_a_controller_a_step_changes_nothing_by_itself() -> None:
    model, _, optimizer = made()
    called: list[int] = []
    optimizer.on_step = lambda: called.append(1)
    before = model.weight.clone()
    torch.autograd.backward(model(torch.ones(1, 2)).sum())
    optimizer.step()
    assert called == [1]
    assert torch.equal(before, model.weight)


def test_without_a_controller_it_is_the_inner_optimizer() -> None:
    model, inner, optimizer = made()
    before = model.weight.clone()
    torch.autograd.backward(model(torch.ones(1, 2)).sum())
    optimizer.step()
    assert not torch.equal(before, model.weight)
    assert optimizer.state_dict() == inner.state_dict()
    optimizer.zero_grad()
    assert model.weight.grad is None


def test_a_loaded_state_is_that_of_both() -> None:
    _, inner, optimizer = made()
    state = optimizer.state_dict()
    state["param_groups"][0]["lr"] = 0.5
    optimizer.load_state_dict(state)
    assert inner.param_groups[0]["lr"] == optimizer.param_groups[0]["lr"] == 0.5


def test_a_scheduler_takes_it_for_an_optimizer() -> None:
    _, inner, optimizer = made()
    optimizer.on_step = lambda: None
    scheduler = StepLR(optimizer, step_size=1, gamma=0.5)
    optimizer.step()
    scheduler.step()
    assert inner.param_groups[0]["lr"] == 0.05
