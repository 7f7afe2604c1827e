"""The training state can be converted to a tree and back."""

from __future__ import annotations

import copy
from typing import Any

import numpy
import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

from tidewater.elastic.data.sampler import Cursor
from tidewater.elastic.errors import ConfigError, Diverged, RecordError
from tidewater.elastic.session.state import Position, State, kind_of, made_in, refuse_divergence
from tidewater.elastic.training import Training


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


def test_the_place_in_the_data_is_part_of_the_state() -> None:
    source, _ = trained()
    source.advance(Cursor(1, 8, {"next": 8, "order": torch.arange(3)}, skipped=(3, 17)), 3)
    target, _ = made()
    target.load(copy.deepcopy(source.tree()))
    assert target.cursor == Cursor(1, 8, skipped=(3, 17))
    assert target.cursor.stream["next"] == 8
    assert target.digest() == source.digest()
    target.cursor.stream["order"][0] += 1
    assert target.digest() != source.digest()
    assert len(target.tensors()) == len(trained()[0].tensors()), "the checksum is of model and optimizer"


def test_every_part_of_the_state_is_in_the_digest() -> None:
    def change(state: State, more: Average, part: str) -> None:
        moments = next(iter(optimizer_of(state).state.values()))
        if part == "parameters":
            next(state.model.parameters()).detach()[0, 0] += 1
        elif part == "buffers":
            state.model[1].running_var += 1  # type: ignore[index]
        elif part == "moments":
            moments["exp_avg_sq"][0] += 1
        elif part == "hyperparameters":
            optimizer_of(state).param_groups[0]["weight_decay"] += 1
        elif part == "stateful":
            more.value[0] += 1
        elif part == "scaler":
            state.scaler = torch.amp.GradScaler("cpu")
        elif part == "cursor":
            state.cursor = Cursor(0, 8)
        elif part == "history":
            state.runs = [[2, 1]]
        else:
            setattr(state, part, getattr(state, part) + 1)

    parts = ("parameters", "buffers", "moments", "hyperparameters", "stateful", "scaler", "cursor", "history")
    for part in (*parts, "step", "accuracy", "evaluated"):
        torch.manual_seed(0)
        state, more = trained()
        before = state.digest()
        assert state.digest() == before
        change(state, more, part)
        assert state.digest() != before, part


def test_the_digest_does_not_depend_on_the_order_of_keys_or_on_strides() -> None:
    source, _ = trained()
    target, more = made()
    tree = copy.deepcopy(source.tree())
    stored = tree["optimizers"][0]
    stored["state"] = dict(reversed(stored["state"].items()))
    target.load(tree)
    more.value = torch.stack([more.value, more.value], dim=1)[:, 0]
    for moments in optimizer_of(target).state.values():
        for name, value in list(moments.items()):
            if value.dim() == 2:
                moments[name] = value.t().contiguous().t()
    assert target.digest() == source.digest()


def test_the_generation_of_a_step_is_that_which_applied_it() -> None:
    runs = [[2, 1], [5, 40], [9, 41]]
    assert [made_in(runs, step, 60) for step in (1, 39, 40, 41, 60)] == [2, 2, 5, 9, 9]
    assert made_in(runs, 61, 60) == 0
    assert made_in(runs[1:], 39, 60) == 0


def test_the_history_has_each_generation_that_applied_steps_and_is_bounded() -> None:
    state, _ = made()
    for step in range(3000):
        state.advance(Cursor(0, step), generation=1 + step // 2)
    assert len(state.runs) == 1000
    assert state.runs[-1] == [1500, 2999]
    assert state.runs[0] == [501, 1001]


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


class Extra(nn.Module):
    """A layer with state that is no tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.weight, self.seen = nn.Parameter(torch.ones(1)), {"a": {1}}

    def get_extra_state(self) -> Any:
        return {"seen": self.seen, "at": numpy.arange(2)}

    def set_extra_state(self, state: Any) -> None:
        self.seen = state["seen"]


def test_extra_state_of_a_module_that_is_no_tensor_is_part_of_the_state() -> None:
    def state_of(model: nn.Module) -> State:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        training = Training(model, optimizer, TensorDataset(torch.zeros(1)), lambda model, batch: batch)
        return State(training, kind_of(model), torch.amp.GradScaler("cpu", enabled=False))

    source, target = Extra(), Extra()
    state = state_of(nn.Sequential(source))
    before = state.digest()
    source.seen["b"] = {2, 3}
    assert state.digest() != before
    again = state_of(nn.Sequential(target))
    again.load(copy.deepcopy(state.tree()))
    assert target.seen == {"a": {1}, "b": {2, 3}}
    assert again.digest() == state.digest()


def test_a_stateful_object_with_a_value_that_cannot_be_stored_is_refused_before_joining() -> None:
    model, more = nn.Linear(1, 1), Average()
    more.value = object()  # type: ignore[assignment]
    training = Training(
        model,
        torch.optim.SGD(model.parameters(), lr=0.1),
        TensorDataset(torch.zeros(1)),
        lambda model, batch: batch,
        stateful={"average": more},
    )
    with pytest.raises(ConfigError, match=r"builtins\.object at stateful\.average\.value, which can't be stored"):
        State(training, kind_of(model), torch.amp.GradScaler("cpu", enabled=False))


def test_only_parameters_that_train_and_were_finite_as_built_show_a_divergence() -> None:
    model: Any = nn.Linear(1, 1)
    model.mask = nn.Parameter(torch.tensor([0.0, -torch.inf]), requires_grad=False)
    model.transitions = nn.Parameter(torch.tensor([0.0, -torch.inf]))
    model.frozen = nn.Parameter(torch.zeros(1), requires_grad=False)
    training = Training(
        model, torch.optim.SGD([model.weight], lr=0.1), TensorDataset(torch.zeros(1)), lambda model, batch: batch
    )
    state = State(training, kind_of(model), torch.amp.GradScaler("cpu", enabled=False))
    refuse_divergence(state)
    for name in ("weight", "frozen"):
        model.requires_grad_(True)
        torch.nn.init.constant_(model.get_parameter(name), torch.nan)
        with pytest.raises(Diverged, match=f"after step 0 the parameter {name} is not a finite number"):
            refuse_divergence(state)
        torch.nn.init.zeros_(model.get_parameter(name))
    refuse_divergence(state)
