"""A recommender: will a user click on an item? Wide and deep, with embedding tables on the parameter servers.

The wide part is a number for each user and each item. The deep part is a network on the vectors of the user, the item
and the items that the user liked before, and on the product of user and item as in a factorization.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from elasticdl.data.examples.fields import decode
from elasticdl.data.reader import Metadata
from elasticdl.embedding_init import Table
from elasticdl.layers import Embedding
from elasticdl.zoo.metrics import AUC, Accuracy, MetricLike
from elasticdl.zoo.optimizers import Adam, Optimizer
from elasticdl.zoo.spec import Mode
from torch import nn

Features = dict[str, torch.Tensor]


class WideAndDeep(nn.Module):
    """Returns the log of the odds of a click, one for each sample."""

    def __init__(self, dim: int, hidden: int) -> None:
        super().__init__()
        vectors = "uniform(-0.1,0.1)"
        self.wide_user = Embedding(Table("wide_user", 1, "zeros"))
        self.wide_item = Embedding(Table("wide_item", 1, "zeros"))
        self.user = Embedding(Table("user", dim, vectors))
        self.item = Embedding(Table("item", dim, vectors))
        # The same table as `item`: what a user liked, as the mean of those items' vectors.
        self.history = Embedding(Table("item", dim, vectors), combiner="mean", padding_id=0)
        self.deep = nn.Sequential(nn.Linear(4 * dim + 1, hidden), nn.ReLU(), nn.Linear(hidden, 1))

    def forward(self, features: Features) -> torch.Tensor:
        """Return the log odds."""
        user, item = self.user(features["user"]), self.item(features["item"])
        history, fresh = self.history(features["history"]), features["fresh"].unsqueeze(-1)
        deep: torch.Tensor = self.deep(torch.cat([user, item, history, user * item, fresh], dim=-1))
        wide: torch.Tensor = self.wide_user(features["user"]) + self.wide_item(features["item"])
        odds: torch.Tensor = wide.squeeze(-1) + deep.squeeze(-1) + (user * item).sum(-1)
        return odds


def custom_model(dim: int = 8, hidden: int = 32) -> nn.Module:
    """Return the model."""
    return WideAndDeep(dim, hidden)


def loss(labels: torch.Tensor, predictions: torch.Tensor) -> torch.Tensor:
    """Return the mean logistic loss."""
    return nn.functional.binary_cross_entropy_with_logits(predictions, labels.to(predictions.dtype))


def optimizer(lr: float = 0.01) -> Optimizer:
    """Return the optimizer, for one process as for parameter servers."""
    return Adam(lr=lr)


def feed(records: list[Any], mode: Mode, metadata: Metadata) -> tuple[Features, torch.Tensor] | Features:
    """Return ids and numbers by name, and whether there was a click."""
    fields = [decode(record) for record in records]
    features = {
        "user": _column(fields, "user", np.int64),
        "item": _column(fields, "item", np.int64),
        "history": torch.from_numpy(np.stack([each["history"] for each in fields])),
        "fresh": _column(fields, "fresh", np.float32),
    }
    return features if mode == Mode.PREDICTION else (features, _column(fields, "label", np.int64))


def eval_metrics_fn() -> dict[str, MetricLike]:
    """Return what is measured on the validation data. The log of the odds is 0 where a click is as likely as none."""
    return {"auc": AUC(from_logits=True), "accuracy": Accuracy(threshold=0.0)}


def _column(fields: list[dict[str, Any]], name: str, kind: type) -> torch.Tensor:
    """Return one number of each record."""
    return torch.from_numpy(np.array([np.ravel(each[name])[0] for each in fields], kind))
