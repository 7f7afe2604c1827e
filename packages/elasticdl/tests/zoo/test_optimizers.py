"""A description is torch's optimizer in one process, and the same description after its travel."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest
import torch
from elasticdl.errors import ZooError
from elasticdl.zoo.optimizers import SGD, Adagrad, Adam, Optimizer

DESCRIPTIONS = [
    SGD(),
    SGD(lr=0.1, momentum=0.9, dampening=0.1, weight_decay=0.01),
    SGD(lr=0.1, momentum=0.9, nesterov=True),
    Adagrad(lr=0.1, lr_decay=0.01, initial_accumulator_value=0.1),
    Adam(),
    Adam(lr=0.1, beta1=0.8, beta2=0.9, eps=1e-6, weight_decay=0.1, amsgrad=True),
]
IDS = [f"{each.kind}-{number}" for number, each in enumerate(DESCRIPTIONS)]


@pytest.mark.parametrize("description", DESCRIPTIONS, ids=IDS)
def test_a_description_travels_unchanged(description: Optimizer) -> None:
    assert Optimizer.from_json(description.to_json()) == description


@pytest.mark.parametrize("description", DESCRIPTIONS, ids=IDS)
def test_every_field_reaches_torch(description: Optimizer) -> None:
    made = description.torch([torch.nn.Parameter(torch.zeros(1))])
    assert type(made).__name__ == description.kind
    fields = dataclasses.asdict(description)
    if isinstance(description, Adam):
        fields["betas"] = (fields.pop("beta1"), fields.pop("beta2"))
    assert {name: made.param_groups[0][name] for name in fields} == fields


@pytest.mark.parametrize("kind", [SGD, Adagrad, Adam])
def test_the_defaults_are_those_of_torch(kind: Any) -> None:
    made = kind().torch([torch.nn.Parameter(torch.zeros(1))])
    theirs = getattr(torch.optim, kind.kind)([torch.nn.Parameter(torch.zeros(1))])
    assert {**made.param_groups[0], "params": None} == {**theirs.param_groups[0], "params": None}


def test_the_learning_rate_can_be_replaced() -> None:
    assert SGD(lr=0.1, momentum=0.9).with_lr(0.2) == SGD(lr=0.2, momentum=0.9)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: SGD(lr=-1), "SGD: lr is -1"),
        (lambda: SGD(lr=float("nan")), "SGD: lr is nan"),
        (lambda: SGD(lr="0.1"), "SGD: lr is '0.1'"),  # type: ignore[arg-type]
        (lambda: SGD(nesterov=True), "SGD: nesterov with momentum 0.0"),
        (lambda: Adam(beta2=1.0), "Adam: beta2 is 1.0"),
    ],
)
def test_a_value_that_makes_no_sense_is_named(make: Any, said: str) -> None:
    with pytest.raises(ZooError, match=said):
        make()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "this is no optimizer"),
        ("[]", "this is no optimizer"),
        (json.dumps({"version": 1, "kind": "Lion", "lr": 1}), "this is no optimizer.*Lion"),
        (json.dumps({"version": 1, "kind": "SGD", "rate": 1}), "this is no optimizer.*rate"),
        (json.dumps({"version": 2, "kind": "SGD", "lr": 1}), "this optimizer has version 2"),
    ],
)
def test_a_text_that_is_no_description_is_named(text: str, said: str) -> None:
    with pytest.raises(ZooError, match=said):
        Optimizer.from_json(text)
