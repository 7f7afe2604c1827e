"""A training script that sums its gradients in several buckets: python several_buckets.py --job …"""

from __future__ import annotations

import sys

import torch
from torch import nn
from torch.utils.data import TensorDataset

import tidewater

WIDTH = 1500
"""Of a layer: its gradients are 9 MB, and a bucket holds 25 MiB."""
LAYERS = 6
SAMPLES = 4096

Batch = tuple[torch.Tensor, torch.Tensor]


def training(config: tidewater.Config) -> tidewater.Training:
    """Return a training on random points with random classes."""
    draw = torch.Generator().manual_seed(config.seed)
    points, classes = torch.randn(SAMPLES, WIDTH, generator=draw), torch.randint(10, (SAMPLES,), generator=draw)
    hidden = [layer for _ in range(LAYERS) for layer in (nn.Linear(WIDTH, WIDTH), nn.ReLU())]
    model = nn.Sequential(*hidden, nn.Linear(WIDTH, 10))
    return tidewater.Training(
        model=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.01),
        dataset=TensorDataset(points, classes),
        loss=loss,
    )


def loss(model: nn.Module, batch: Batch) -> torch.Tensor:
    return nn.functional.cross_entropy(model(batch[0]), batch[1])


if __name__ == "__main__":
    sys.exit(tidewater.run(training))
