"""What a divided model needs is set, and what isn't supported with one yet is refused by name."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.utils.data import TensorDataset

from tests.elastic.alone import default_group_alone
from tidewater.elastic.errors import ConfigError
from tidewater.elastic.sharded.prepare import divided
from tidewater.elastic.training import Training

CPU = torch.device("cpu")


@pytest.fixture(scope="module", autouse=True)
def default_group() -> Iterator[None]:
    yield from default_group_alone()


def config(**more: Any) -> Any:
    return SimpleNamespace(**{"shard": 2, "index": 0, "rehearsal": None, **more})


def training(model: nn.Module | None = None, **more: Any) -> Training:
    model = model or nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    made = Training(
        model=model,
        optimizer=optimizer,
        dataset=TensorDataset(torch.zeros(1)),
        loss=lambda model, batch: model(batch),
    )
    return replace(made, **more)


@pytest.mark.parametrize(
    ("given", "more", "device", "words"),
    [
        ({"rehearsal": "/somewhere"}, {}, CPU, "the script is rehearsed"),
        ({}, {"model": nn.Linear(2, 2).bfloat16()}, CPU, "the model has parameters of less than 32 bits"),
        ({}, {}, torch.device("cuda", 0), "this worker has a GPU"),
    ],
)
def test_what_is_not_supported_yet_is_refused_by_name(
    given: dict[str, Any], more: dict[str, Any], device: torch.device, words: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        divided(config(**given), training(**more), device)
    assert str(caught.value).startswith(f"--shard is 2, and {words}")


def test_gradients_are_sums_over_the_processes() -> None:
    model = nn.Linear(3, 2)
    fully_shard(model)
    assert divided(config(shard=1), training(model), CPU) is None
    model(torch.ones(1, 3)).sum().backward()
    gradient: Any = model.weight.grad
    assert gradient.to_local().tolist() == [[1.0] * 3] * 2
    factor: Any = model
    groups = factor._get_fsdp_state()._fsdp_param_groups
    assert [(each.gradient_divide_factor, each.force_sum_reduction_for_comms) for each in groups] == [(1.0, True)]


def test_with_one_process_that_has_the_whole_model_nothing_is_refused() -> None:
    made = training(validation=TensorDataset(torch.zeros(1)))
    assert divided(config(shard=1), made, torch.device("cuda", 0)) is None


def test_a_gpu_of_a_process_that_divides_a_model_with_itself_is_refused() -> None:
    model = nn.Linear(3, 2)
    fully_shard(model)
    with pytest.raises(ConfigError, match="fully_shard divides the model, and this worker has a GPU"):
        divided(config(shard=1), training(model), torch.device("cuda"))


def test_a_torch_that_can_not_sum_its_gradients_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    model = nn.Linear(3, 2)
    fully_shard(model)
    monkeypatch.delattr(FSDPModule, "set_force_sum_reduction_for_comms")
    with pytest.raises(ConfigError, match=r"can't sum the gradients .* use a newer one"):
        divided(config(shard=1), training(model), CPU)
