"""A model that is trained over parameter servers equals one that torch trains, to the bit."""

from __future__ import annotations

import pytest
import torch
from elasticdl.embedding_init import Table, initial_rows
from elasticdl.ps.model.policy import Policy
from elasticdl.zoo.optimizers import SGD, Adagrad, Adam, Optimizer
from torch import nn
from torch.nn.functional import cross_entropy

from packages.elasticdl.tests.ps.running import client, servers

STEPS = 20
IDS = 40

DENSE = [
    pytest.param(SGD(lr=0.1), id="sgd"),
    pytest.param(SGD(lr=0.1, momentum=0.9), id="momentum"),
    pytest.param(SGD(lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.01), id="nesterov-with-decay"),
    pytest.param(SGD(lr=0.1, momentum=0.9, dampening=0.5), id="dampening"),
    pytest.param(Adagrad(lr=0.1, lr_decay=0.01, initial_accumulator_value=0.1), id="adagrad"),
    pytest.param(Adam(lr=0.01), id="adam"),
    pytest.param(Adam(lr=0.01, amsgrad=True, weight_decay=0.01), id="amsgrad-with-decay"),
]
SPARSE = [
    pytest.param(SGD(lr=0.1), lambda p: torch.optim.SGD(p, lr=0.1), id="sgd"),
    pytest.param(
        Adagrad(lr=0.1, lr_decay=0.01, initial_accumulator_value=0.1),
        lambda p: torch.optim.Adagrad(p, lr=0.1, lr_decay=0.01, initial_accumulator_value=0.1),
        id="adagrad",
    ),
    pytest.param(Adam(lr=0.01), lambda p: torch.optim.SparseAdam(p, lr=0.01), id="adam"),
]


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(7, 33), nn.ReLU(), nn.Linear(33, 19, bias=False), nn.LayerNorm(19), nn.Linear(19, 5))


def batches() -> list[tuple[torch.Tensor, torch.Tensor]]:
    generator = torch.Generator().manual_seed(1)
    return [
        (torch.randn(16, 7, generator=generator), torch.randint(5, (16,), generator=generator)) for _ in range(STEPS)
    ]


def gradients(model: nn.Module, features: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
    model.zero_grad()
    cross_entropy(model(features), labels).backward()  # type: ignore[no-untyped-call]
    return {name: value.grad for name, value in model.named_parameters() if value.grad is not None}


@pytest.mark.parametrize("optimizer", DENSE)
def test_dense_parameters_equal_those_of_torch(optimizer: Optimizer) -> None:
    alone, worker = network(), network()
    own = optimizer.torch(alone.parameters())
    with servers(3) as addresses, client(addresses) as ps:
        ps.init_model(dict(worker.named_parameters()), [], optimizer)
        for number, batch in enumerate(batches()):
            gradients(alone, *batch)
            own.step()
            worker.load_state_dict(ps.pull_dense(), strict=False)
            assert all(ps.push_gradients(number, gradients(worker, *batch)))
        trained = ps.pull_dense(everything=True)
    for name, value in alone.named_parameters():
        assert torch.equal(trained[name], value), name


def test_a_parameter_without_a_gradient_is_left_out_as_torch_does() -> None:
    first, second = nn.Parameter(torch.ones(3)), nn.Parameter(torch.ones(3))
    optimizer = Adam(lr=0.1)
    own = optimizer.torch([first, second])
    with servers(2) as addresses, client(addresses) as ps:
        ps.init_model({"a": torch.ones(3), "b": torch.ones(3)}, [], optimizer)
        for number in range(6):
            pushed = {"a": torch.full((3,), 0.5)} | ({"b": torch.full((3,), 0.25)} if number % 2 else {})
            first.grad, second.grad = pushed["a"].clone(), pushed.get("b")
            own.step()
            ps.push_gradients(number, pushed)
        trained = ps.pull_dense()
    assert torch.equal(trained["a"], first)
    assert torch.equal(trained["b"], second)


def test_a_learning_rate_that_is_pushed_is_that_of_torch_for_this_step() -> None:
    parameter = nn.Parameter(torch.ones(3))
    own = Adam(lr=0.1).torch([parameter])
    with servers(1) as addresses, client(addresses) as ps:
        ps.init_model({"a": torch.ones(3)}, [], Adam(lr=0.1))
        for number, lr in enumerate([None, 0.3, 0.0, 0.7]):  # None: the optimizer's own
            parameter.grad = torch.full((3,), 0.5)
            own.param_groups[0]["lr"] = 0.1 if lr is None else lr
            own.step()
            ps.push_gradients(number, {"a": torch.full((3,), 0.5)}, lr=lr)
        assert torch.equal(ps.pull_dense()["a"], parameter)


@pytest.mark.parametrize(("count", "dim"), [(1, 17), (3, 1), (3, 3), (3, 16), (3, 17)])
@pytest.mark.parametrize(("optimizer", "torchs"), SPARSE)
def test_rows_equal_those_of_torchs_sparse_embedding(optimizer: Optimizer, torchs, count: int, dim: int) -> None:  # type: ignore[no-untyped-def]
    table = Table("item", dim, seed=3)
    embedding = nn.Embedding(IDS, dim, sparse=True, _weight=initial_rows(table, torch.arange(IDS)))
    own = torchs(list(embedding.parameters()))
    generator = torch.Generator().manual_seed(2)
    with servers(count) as addresses, client(addresses) as ps:
        ps.init_model({}, [table], optimizer)
        for number in range(STEPS):
            ids = torch.randint(IDS // 2, (24,), generator=generator)  # half of the rows are never touched
            target = torch.randn(24, dim, generator=generator)
            own.zero_grad()
            ((embedding(ids) - target) ** 2).sum().backward()
            assert embedding.weight.grad is not None
            embedding.weight.grad = embedding.weight.grad.coalesce()  # SGD doesn't by itself, and adds one by one
            own.step()
            rows = ps.pull_rows("item", ids).requires_grad_()
            ((rows - target) ** 2).sum().backward()  # type: ignore[no-untyped-call]
            assert rows.grad is not None
            ps.push_gradients(number, {}, {"item": (ids, rows.grad)})
        assert torch.equal(ps.pull_rows("item", torch.arange(IDS)), embedding.weight)


@pytest.mark.parametrize(
    "optimizer",
    [
        pytest.param(SGD(lr=0.1, momentum=0.9), id="momentum"),
        pytest.param(SGD(lr=0.1, momentum=0.9, dampening=0.5), id="dampening"),
        pytest.param(SGD(lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.01), id="nesterov-with-decay"),
    ],
)
def test_momentum_of_a_row_is_that_of_a_parameter_which_is_left_out_when_untouched(optimizer: SGD) -> None:
    table = Table("item", 5, seed=3)
    parameters = [nn.Parameter(row) for row in initial_rows(table, torch.arange(IDS))]
    own = optimizer.torch(parameters)
    generator = torch.Generator().manual_seed(2)
    with servers(2) as addresses, client(addresses) as ps:
        ps.init_model({}, [table], optimizer)
        for number in range(STEPS):
            ids = torch.randperm(IDS, generator=generator)[:8]
            pushed = torch.randn(8, 5, generator=generator)
            own.zero_grad()
            for each, gradient in zip(ids.tolist(), pushed, strict=True):
                parameters[each].grad = gradient
            own.step()
            ps.push_gradients(number, {}, {"item": (ids, pushed)})
        assert torch.equal(ps.pull_rows("item", torch.arange(IDS)), torch.stack([each.data for each in parameters]))


def test_the_mean_of_two_workers_gradients_is_the_step_of_their_mean() -> None:
    alone = network()
    optimizer = Adam(lr=0.01)
    own = optimizer.torch(alone.parameters())
    initial = {name: value.detach().clone() for name, value in alone.named_parameters()}
    policy = Policy(grads_to_wait=2)
    with servers(2, policy) as addresses, client(addresses, "a") as first, client(addresses, "b") as second:
        first.init_model(initial, [], optimizer)
        for number, (features, labels) in enumerate(batches()):
            parts = [gradients(alone, features[:8], labels[:8]), gradients(alone, features[8:], labels[8:])]
            own.zero_grad()
            for name, value in alone.named_parameters():
                value.grad = (parts[0][name] + parts[1][name]) / 2
            own.step()
            for ps in (first, second):
                ps.pull_dense()
            for ps, pushed in zip((second, first), reversed(parts), strict=True):  # the order doesn't matter
                assert all(ps.push_gradients(number, pushed))
        trained = first.pull_dense(everything=True)
    for name, value in alone.named_parameters():
        assert torch.equal(trained[name], value), name
