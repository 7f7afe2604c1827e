"""A recommender for the benchmark: embedding tables, a dense network, and a pause in place of an accelerator.

With `pause=0` it computes as any model does. With a pause each minibatch also waits so many seconds, without using a
core: so two cores can hold more workers than two, and what is measured is the way to the servers and back.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import torch
from elasticdl.data.examples.fields import decode
from elasticdl.embedding_init import Table
from elasticdl.layers import Embedding
from elasticdl.zoo.metrics import AUC, MetricLike
from elasticdl.zoo.optimizers import Adagrad, Optimizer
from elasticdl.zoo.spec import Mode
from torch import nn

IDS = 4096
"""More than the data has users or items. All-reduce has to know, since each worker then holds whole tables."""


class Paced(nn.Module):
    """Returns the log of the odds of a click; about 100,000 dense parameters, and two tables."""

    def __init__(self, hidden: int, pause: float) -> None:
        super().__init__()
        self.user = Embedding(Table("user", 16, num_ids=IDS))
        self.item = Embedding(Table("item", 16, num_ids=IDS))
        self.deep = nn.Sequential(nn.Linear(33, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU())
        self.out = nn.Linear(hidden, 1)
        self._pause = pause

    def forward(self, features: dict[str, torch.Tensor]) -> torch.Tensor:
        """Return one number for each sample."""
        if self.training and self._pause:
            time.sleep(self._pause)
        user, item = self.user(features["user"]), self.item(features["item"])
        deep = self.deep(torch.cat([user, item, features["fresh"].unsqueeze(-1)], dim=-1))
        result: torch.Tensor = self.out(deep).squeeze(-1) + (user * item).sum(-1)
        return result


def custom_model(hidden: int = 300, pause: float = 0.0) -> nn.Module:
    """Return the model."""
    return Paced(hidden, pause)


def loss(labels: torch.Tensor, predictions: torch.Tensor) -> torch.Tensor:
    """Return the mean logistic loss."""
    return nn.functional.binary_cross_entropy_with_logits(predictions, labels)


def optimizer() -> Optimizer:
    """Return the optimizer."""
    return Adagrad(lr=0.02)


def feed(records: Sequence[bytes], mode: Mode, metadata: object) -> tuple[dict[str, torch.Tensor], torch.Tensor]:
    """Return ids and numbers by name, and whether there was a click."""
    fields = [decode(record) for record in records]
    features = {name: torch.tensor([int(each[name]) for each in fields]) for name in ("user", "item")}
    features["fresh"] = torch.tensor([float(each["fresh"]) for each in fields])
    return features, torch.tensor([float(each["label"]) for each in fields])


def eval_metrics_fn() -> dict[str, MetricLike | Any]:
    """Return what an evaluation would measure."""
    return {"auc": AUC(from_logits=True)}
