"""The gradients of a minibatch are those of torch, and nothing of it stays in the model."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from elasticdl.embedding_init import Table
from elasticdl.errors import ZooError
from elasticdl.layers import Embedding, LocalTables, attach
from elasticdl.worker.step import Step, moved
from elasticdl.zoo.metrics import Accuracy, Metrics
from elasticdl.zoo.optimizers import SGD
from elasticdl.zoo.spec import Batch, ModelSpec
from torch import nn

CPU = torch.device("cpu")


def spec(loss: Callable[[Any, Any], torch.Tensor]) -> ModelSpec:
    return ModelSpec(
        model_def="test.model",
        file=Path(__file__),
        model=lambda: nn.Linear(3, 2),
        loss=loss,
        optimizer=SGD(0.1),
        feed=lambda records, mode, metadata: Batch(records, None),
        eval_metrics=lambda: Metrics({"accuracy": Accuracy()}),
    )


def mean_square(labels: torch.Tensor, predictions: torch.Tensor) -> torch.Tensor:
    return ((predictions - labels) ** 2).mean()


class WithEverything(nn.Module):
    """A normalization with running means, an embedding, and a parameter that the loss does not depend on."""

    def __init__(self) -> None:
        super().__init__()
        self.users = Embedding(Table("user", 3))
        self.norm = nn.BatchNorm1d(3)
        self.out = nn.Linear(3, 1)
        self.unused = nn.Parameter(torch.zeros(5))
        self.register_buffer("scratch", torch.zeros(1), persistent=False)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.out(self.norm(self.users(ids)))
        return result


def test_gradients_equal_those_of_torch() -> None:
    torch.manual_seed(1)
    model, features, labels = nn.Linear(3, 2), torch.randn(8, 3), torch.randn(8, 2)
    loss, gradients = Step(spec(mean_square), model, CPU).gradients(Batch(features, labels))
    expected = mean_square(labels, model(features))
    assert loss == expected.item()
    wanted = torch.autograd.grad(expected, list(model.parameters()))
    assert [torch.equal(gradients.dense[name], each) for name, each in zip(("weight", "bias"), wanted, strict=True)]


def test_gradients_of_one_minibatch_do_not_add_to_those_of_the_next() -> None:
    model, batch = nn.Linear(3, 2), Batch(torch.randn(8, 3), torch.randn(8, 2))
    step = Step(spec(mean_square), model, CPU)
    first = step.gradients(batch)[1].dense["weight"].clone()
    assert torch.equal(step.gradients(batch)[1].dense["weight"], first)


def test_rows_and_buffers_are_given_and_unused_parameters_left_out() -> None:
    model = WithEverything()
    attach(model, LocalTables([Table("user", 3)]))
    before = model.norm.running_mean.clone()  # type: ignore[union-attr] # BatchNorm1d has it
    _, gradients = Step(spec(mean_square), model, CPU).gradients(Batch(torch.tensor([5, 9, 5, 2]), torch.ones(4, 1)))
    (rows,) = gradients.rows
    assert rows.name == "user"
    assert rows.ids.tolist() == [2, 5, 9]
    assert "unused" not in gradients.dense
    assert set(gradients.buffers) == {"norm.running_mean", "norm.running_var", "norm.num_batches_tracked"}
    assert not torch.equal(gradients.buffers["norm.running_mean"], before)


def test_an_evaluation_changes_neither_running_means_nor_gradients() -> None:
    model = WithEverything()
    before = {name: value.clone() for name, value in model.state_dict().items() if isinstance(value, torch.Tensor)}
    Step(spec(mean_square), model, CPU).predictions(Batch(torch.tensor([5, 9]), None))
    assert all(torch.equal(model.state_dict()[name], value) for name, value in before.items())
    assert model.users.collect_gradients() == []


def test_a_loss_that_is_not_a_number_is_an_error_and_forgets_the_rows() -> None:
    model = WithEverything()
    step = Step(spec(lambda labels, predictions: predictions.mean() * float("nan")), model, CPU)
    with pytest.raises(ZooError, match="the loss is nan"):
        step.gradients(Batch(torch.tensor([5, 9]), torch.ones(2, 1)))
    assert model.users.collect_gradients() == []


def test_tensors_are_moved_wherever_they_are() -> None:
    given = {"a": torch.ones(1), "b": [torch.zeros(2), (torch.ones(3), "text")]}
    there = moved(given, torch.device("meta"))
    assert there["a"].is_meta
    assert there["b"][0].is_meta
    assert there["b"][1][0].is_meta
    assert there["b"][1][1] == "text"
