"""The training state can be converted to a tree and back."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

from trainer.errors import RecordError
from trainer.state import Position, State, kind_of
from trainer.training import Training


class Average:
    """Additional state that a script defines."""

    def __init__(self) -> None:
        self.value = torch.zeros(3)

    def state_dict(self) -> dict[str, Any]:
        return {"value": self.value}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.value = state["value"]


def made(width: int = 4) -> tuple[State, Average]:
    model = nn.Sequential(nn.Linear(3, width), nn.BatchNorm1d(width))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    more = Average()
    training = Training(
        model=model,
        optimizer=optimizer,
        dataset=TensorDataset(torch.zeros(1)),
        loss=lambda model, batch: batch,
        stateful={"average": more},
    )
    return State(training, kind_of(model, seed=0), torch.amp.GradScaler("cpu", enabled=False)), more


def optimizer_of(state: State) -> torch.optim.Optimizer:
    return state.optimizers._optimizers[0]


def trained() -> tuple[State, Average]:
    state, more = made()
    state.model(torch.randn(8, 3)).sum().backward()
    optimizer_of(state).step()
    state.step, state.applied_in, state.present, state.accuracy, state.evaluated = 7, 3, True, 0.5, 2
    more.value += 1
    return state, more


def test_loading_a_tree_makes_another_process_equal_bit_for_bit() -> None:
    source, _ = trained()
    target, more = made()
    target.load(copy.deepcopy(source.tree()))
    assert target.digest() == source.digest()
    assert target.position("") == source.position("") == Position(1, 3, 8, 1, evaluated=2)
    assert (target.accuracy, target.evaluated) == (0.5, 2)
    assert more.value.tolist() == [1, 1, 1]
    moments = [value["exp_avg"] for value in optimizer_of(target).state_dict()["state"].values()]
    assert all(
        torch.equal(mine, theirs["exp_avg"])
        for mine, theirs in zip(moments, optimizer_of(source).state_dict()["state"].values(), strict=True)
    )


def test_all_keys_of_the_tree_are_strings() -> None:
    def keys(value: Any) -> list[Any]:
        if isinstance(value, dict):
            return [*value, *(key for child in value.values() for key in keys(child))]
        return [key for child in value for key in keys(child)] if isinstance(value, list) else []

    assert all(isinstance(key, str) for key in keys(trained()[0].tree()))


def test_the_state_of_another_model_is_refused_and_changes_nothing() -> None:
    source, _ = trained()
    target, _ = made(width=5)
    before = target.digest()
    with pytest.raises(RecordError, match="another kind of training"):
        target.load(source.tree())
    assert target.digest() == before
    assert not target.present


def test_a_state_of_another_version_is_refused() -> None:
    source, _ = trained()
    with pytest.raises(RecordError, match="version 99"):
        made()[0].load({**source.tree(), "version": 99})


def test_a_process_without_the_jobs_state_has_the_lowest_priority() -> None:
    assert made()[0].position("") == Position(0, 0, 0, 0, 0)


def test_a_state_left_behind_is_marked_until_it_is_replaced() -> None:
    state, _ = trained()
    state.stale = True
    assert state.position("") == Position(1, 3, 8, 0, evaluated=2)
    state.load(copy.deepcopy(trained()[0].tree()))
    assert state.position("") == Position(1, 3, 8, 1, evaluated=2)
