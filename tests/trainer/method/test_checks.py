"""What the runtime can't train is refused by name, with a remedy, before the worker joins."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import nn
from torch.optim.lr_scheduler import OneCycleLR
from torch.utils.data import Dataset, IterableDataset, TensorDataset

from contract import env
from trainer.config import Config
from trainer.errors import ConfigError
from trainer.method.checks import check
from trainer.training import Training

CONFIG = Config.parse(
    ["--epochs", "2", "--batch-size", "10"], {env.JOB: "j", env.ETCD: "http://e:2379", env.CHECKPOINTS: "/checkpoints"}
)


class Stream(IterableDataset[int]):
    def __iter__(self) -> Iterator[int]:
        return iter(range(100))


class Endless(Dataset[int]):
    def __getitem__(self, index: int) -> int:
        return index


def training(dataset: Any, total_steps: int = 0) -> Training:
    model = nn.Linear(1, 1)
    sgd = torch.optim.SGD(model.parameters(), lr=0.1)
    scheduler: Any = OneCycleLR(sgd, 0.1, total_steps=total_steps) if total_steps else ()
    return Training(model=model, optimizer=sgd, dataset=dataset, loss=lambda model, batch: batch, scheduler=scheduler)


@pytest.mark.parametrize("dataset", [Stream(), Endless()], ids=["without an index", "without a length"])
def test_a_dataset_without_an_index_or_a_length_is_refused_with_the_reason_and_the_remedy(dataset: Any) -> None:
    with pytest.raises(ConfigError, match=rf"{type(dataset).__name__}, has no .* exactly once .* __len__ and __getit"):
        check(training(dataset), CONFIG)


def test_a_one_cycle_schedule_shorter_than_the_job_is_refused_with_the_right_number() -> None:
    dataset = TensorDataset(torch.zeros(101))
    check(training(dataset, total_steps=22), CONFIG)
    with pytest.raises(ConfigError, match=r"OneCycleLR, has total_steps=21, and the job has 22 steps: .*config\.steps"):
        check(training(dataset, total_steps=21), CONFIG)
