"""The network: a small convolutional net for images of any size."""

from __future__ import annotations

import torch
from torch import nn


class SmallCNN(nn.Module):
    """Three convolutions, global average, one linear layer; ``[n, channels, h, w]`` floats to ``[n, classes]`` logits.

    Group instead of batch normalization: it has no running statistics, which would differ between ranks.
    """

    def __init__(self, channels: int, classes: int, width: int = 32) -> None:
        super().__init__()
        self.features = nn.Sequential(
            _block(channels, width, stride=1),
            _block(width, 2 * width, stride=1),
            nn.MaxPool2d(2),
            _block(2 * width, 2 * width, stride=1),
        )
        self.head = nn.Linear(2 * width * 4, classes)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Logits."""
        pooled = nn.functional.adaptive_avg_pool2d(self.features(images), 2)
        logits: torch.Tensor = self.head(pooled.flatten(1))
        return logits


def _block(inputs: int, outputs: int, *, stride: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 3, stride=stride, padding=1, bias=False), nn.GroupNorm(8, outputs), nn.ReLU()
    )
