"""A model that fully_shard divides has the same state as one that is whole: what is handed over, saved and loaded."""

from __future__ import annotations

import copy
from collections import OrderedDict, deque
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.utils.data import TensorDataset

from tests.elastic.alone import default_group_alone, form_alone, opened_alone
from tests.elastic.sharded.script import Averaging
from tidewater.elastic.errors import ConfigError
from tidewater.elastic.group.group import Group
from tidewater.elastic.group.reducer import Reducer
from tidewater.elastic.session.state import State, kind_of
from tidewater.elastic.sharding import is_sharded, like, local, part_of, refuse_state
from tidewater.elastic.training import Training


@pytest.fixture(scope="module", autouse=True)
def default_group() -> Iterator[None]:
    """One process that divides a model with itself."""
    yield from default_group_alone()


@pytest.fixture
def group() -> Iterator[Group]:
    yield from opened_alone()


def net(*, divided: bool, seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 2))
    if divided:
        mesh = init_device_mesh("cpu", (1,))
        for layer in model:
            if isinstance(layer, nn.Linear):
                fully_shard(layer, mesh=mesh)
        fully_shard(model, mesh=mesh)
    return model


class Average:
    """An exponential average of parameters, as scripts keep one, in containers of several kinds."""

    def __init__(self, model: nn.Module) -> None:
        self.steps = 0
        self.values = OrderedDict((name, each.detach().clone()) for name, each in model.named_parameters())
        self.first = deque([next(iter(self.values.values())).clone()], 3)

    def update(self, model: nn.Module) -> None:
        self.steps += 1
        for name, each in model.named_parameters():
            self.values[name].lerp_(each.detach(), 0.5)

    def state_dict(self) -> dict[str, Any]:
        return {"steps": self.steps, "values": self.values, "more": ([1.0], self.first)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.steps, self.values, (_, self.first) = state["steps"], state["values"], state["more"]


def averaged(*, divided: bool, seed: int, steps: int) -> tuple[State, Average]:
    """Return a state with an average in ``stateful``, and that."""
    model = net(divided=divided, seed=seed)
    average = Average(model)
    for step in range(steps):
        with torch.no_grad():
            for each in model.parameters():
                each.add_(step + 1)
        average.update(model)
    training = Training(
        model=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
        dataset=TensorDataset(torch.zeros(1)),
        loss=lambda model, batch: model(batch),
        stateful={"average": average},
    )
    return State(training, kind_of(model), torch.amp.GradScaler("cpu", enabled=False)), average


@pytest.mark.parametrize("divided", [False, True])
def test_an_average_of_the_parameters_in_stateful_is_handed_over_like_them(divided: bool) -> None:
    source, mine = averaged(divided=divided, seed=1, steps=3)
    other, theirs = averaged(divided=divided, seed=2, steps=0)
    given = source.whole()
    assert not any(map(is_sharded, given["stateful"]["average"]["values"].values()))
    other.load(copy.deepcopy(given))
    assert other.digest() == source.digest()
    assert theirs.steps == 3
    assert type(theirs.values) is OrderedDict
    assert theirs.first.maxlen == 3
    for name, each in mine.values.items():
        assert is_sharded(theirs.values[name]) == divided
        assert torch.equal(local(theirs.values[name]), local(each))
    theirs.update(other.model)


@pytest.mark.parametrize(("written", "read"), [(True, False), (False, True), (True, True)])
def test_a_checkpoint_has_the_whole_average_of_the_parameters(written: bool, read: bool) -> None:
    source, mine = averaged(divided=written, seed=1, steps=3)
    other, theirs = averaged(divided=read, seed=2, steps=0)
    other.resume(copy.deepcopy(source.saved_tree()))
    for name, each in mine.values.items():
        assert is_sharded(theirs.values[name]) == read
        assert torch.equal(local(theirs.values[name]), local(each))


def state(*, divided: bool, seed: int = 0, steps: int = 2) -> State:
    model = net(divided=divided, seed=seed)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    for _ in range(steps):
        model(torch.ones(4, 3)).square().sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    dataset = TensorDataset(torch.zeros(1))
    training = Training(model=model, optimizer=optimizer, dataset=dataset, loss=lambda model, batch: model(batch))
    return State(training, kind_of(model), torch.amp.GradScaler("cpu", enabled=False))


def values(tree: Any) -> dict[str, list[float]]:
    found = {name: value.tolist() for name, value in tree["model"].items()}
    for key, each in tree["optimizers"][0]["state"].items():
        found |= {f"{key}.{name}": value.tolist() for name, value in each.items()}
    return found


def test_what_is_handed_over_has_the_parts_of_this_process_and_no_divided_tensor() -> None:
    given = state(divided=True)
    tensors = given.tensors()
    assert len(tensors) == 4 + 4 * 3
    assert not any(map(is_sharded, tensors))
    parameter = next(given.model.parameters())
    assert given.named_tensors()["model/0.weight"].data_ptr() == local(parameter).data_ptr()
    assert given.receivers()["model.0.weight"].data_ptr() == local(parameter).data_ptr()


@pytest.mark.parametrize("divided", [False, True])
def test_a_state_of_a_divided_model_loads_from_a_peer_to_the_bit(divided: bool) -> None:
    source, other = state(divided=divided, seed=1), state(divided=divided, seed=2, steps=0)
    other.load(copy.deepcopy(source.whole()))
    assert other.digest() == source.digest()
    assert len(values(source.tree())) == 4 + 4 * 3
    assert all(is_sharded(each) == divided for each in other.model.parameters())


@pytest.mark.parametrize(("written", "read"), [(True, False), (False, True), (True, True)])
def test_a_checkpoint_is_read_divided_and_whole(written: bool, read: bool) -> None:
    source, other = state(divided=written, seed=1), state(divided=read, seed=2, steps=0)
    saved = source.saved_tree()
    assert not any(is_sharded(each) for each in saved["model"].values())
    other.resume(copy.deepcopy(saved))
    assert values(other.saved_tree()) == values(saved)
    assert other.kind == source.kind


@pytest.mark.parametrize("divided", [False, True])
def test_a_checkpoint_has_what_is_evaluated_and_what_is_trained(divided: bool) -> None:
    model = net(divided=divided)
    optimizer = Averaging(model.parameters(), lr=0.1)
    training = Training(
        model=model, optimizer=optimizer, dataset=TensorDataset(torch.ones(1)), loss=lambda *_: torch.ones(1)
    )
    state = State(training, kind_of(model), torch.amp.GradScaler("cpu", enabled=False))
    for _ in range(3):
        model(torch.ones(2, 3)).sum().backward()
        optimizer.step()
    saved = copy.deepcopy(state.saved_tree())
    trained = {name: local(each).clone() for name, each in model.named_parameters()}
    with state.evaluating():
        evaluated = {name: local(each).clone() for name, each in model.named_parameters()}
    for name in trained:
        assert not torch.equal(trained[name], evaluated[name])
        assert torch.equal(saved["training_parameters"][name], trained[name])
        assert torch.equal(saved["model"][name], evaluated[name])


def test_the_first_processes_have_the_larger_parts() -> None:
    class Mesh:
        def __init__(self, index: int) -> None:
            self.index = index

        def size(self) -> int:
            return 4

        def get_local_rank(self) -> int:
            return self.index

    class Model:
        def __init__(self, index: int) -> None:
            self.device_mesh = Mesh(index)

    rows = torch.arange(10.0).view(5, 2)
    assert [part_of(rows, Model(index)).tolist() for index in range(4)] == [
        [[0, 1], [2, 3]],
        [[4, 5], [6, 7]],
        [[8, 9]],
        [],
    ]


def test_an_optimizer_that_keeps_other_shapes_is_refused_by_name() -> None:
    model = net(divided=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    parameter = next(model.parameters())
    optimizer.state[parameter] = {"rows": torch.zeros(5)}
    with pytest.raises(ConfigError, match=r"SGD keeps a tensor rows of shape \(5,\) for the parameter 0.weight"):
        refuse_state({id(parameter): "0.weight"}, optimizer)
    optimizer.state[parameter] = {"step": torch.zeros(()), "buffer": like(torch.zeros(5, 3), parameter)}
    refuse_state({id(parameter): "0.weight"}, optimizer)


@pytest.mark.parametrize("passes", [1, 3])
def test_the_gradients_are_summed_in_memory_that_the_divided_parameters_share(group: Group, passes: int) -> None:
    form_alone(group)
    model, reference = net(divided=True), net(divided=False)
    reducer = Reducer(group, model.named_parameters())
    inputs = torch.randn(passes, 4, 3)
    for _ in range(2):
        reducer.reset(passes)
        for each in inputs[:-1]:
            model(each).square().sum().backward()
        reducer.watch()
        model(inputs[-1]).square().sum().backward()
        reducer.flush([])
        reducer.sums()
    for each in inputs:
        reference(each).square().sum().backward()
    for mine, theirs in zip(model.parameters(), reference.parameters(), strict=True):
        gradient: Any = mine.grad
        assert is_sharded(gradient)
        torch.testing.assert_close(local(gradient), theirs.grad, rtol=1e-6, atol=1e-6)


def test_a_part_does_not_keep_the_memory_of_the_whole() -> None:
    mesh = SimpleNamespace(size=lambda: 2, get_local_rank=lambda: 1)
    part = part_of(torch.arange(8.0).reshape(4, 2), SimpleNamespace(device_mesh=mesh))
    assert part.tolist() == [[4.0, 5.0], [6.0, 7.0]]
    assert part.untyped_storage().nbytes() == part.nbytes
