"""The training of the ElasticJob examples learns, and every process makes the same data."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils.data import DataLoader

from examples.elasticjob import train
from tidewater.elastic.config import Config
from tidewater.elastic.training import Training


def made() -> Training:
    config = Config.parse(["--job", "a", "--etcd", "http://x", "--checkpoints", "c"], {})
    torch.manual_seed(0)
    return train.training(config)


def test_the_network_learns_which_number_is_larger() -> None:
    training = made()
    optimizer: Any = training.optimizer
    for _ in range(3):
        for batch in DataLoader(training.dataset, batch_size=64):
            loss: Any = training.loss(training.model, batch)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    validation: Any = training.validation
    assert training.score is not None
    right = sum(float(training.score(training.model, batch)) for batch in DataLoader(validation, batch_size=512))
    assert right / len(validation) > 0.9


def test_every_worker_makes_the_same_data() -> None:
    one, other = made().dataset, made().dataset
    assert all(torch.equal(a, b) for a, b in zip(one[7], other[7], strict=True))
