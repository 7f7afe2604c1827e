"""The task of all training scripts of the benchmark: the model, the data, the loss and the optimizer.

The driver (`python -m benchmarks.elastic`) passes what differs between measures by environment variables. So the
command lines of the scripts are those that a user of each system would write.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch.nn.functional import cross_entropy
from torch.utils.data import Dataset

from benchmarks.elastic.workers import names
from trainer.model import SmallCNN

if TYPE_CHECKING:
    from torch import Tensor

LR = {names.SMALL: 2e-3, names.LARGE: 1e-4}
SEED = 0
PIXELS, CLASSES = 64, 10


class Digits(Dataset[tuple["Tensor", "Tensor"]]):
    """The 1,797 handwritten digits of scikit-learn, 8 x 8 pixels, in memory."""

    def __init__(self, file: Path) -> None:
        stored = np.load(file)
        self._images, self._labels = torch.from_numpy(stored["images"]), torch.from_numpy(stored["labels"])

    def __len__(self) -> int:
        return len(self._labels)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        return self._images[index], self._labels[index]


def digits() -> Digits:
    """Return the data that the driver has prepared."""
    return Digits(Path(os.environ[names.DATA]))


class Wide(torch.nn.Module):
    """Square layers with residual connections: many parameters, little computation."""

    def __init__(self, width: int, layers: int) -> None:
        super().__init__()
        self._first = torch.nn.Linear(PIXELS, width)
        self._layers = torch.nn.ModuleList(torch.nn.Linear(width, width) for _ in range(layers))
        self._last = torch.nn.Linear(width, CLASSES)

    def forward(self, images: Tensor) -> Tensor:
        """Return the logits."""
        values = self._first(images.flatten(1))
        for layer in self._layers:
            values = values + torch.relu(layer(values))
        logits: Tensor = self._last(values)
        return logits


def model() -> torch.nn.Module:
    """Return the network, with the same initial weights everywhere."""
    torch.manual_seed(SEED)
    if os.environ[names.MODEL] == names.LARGE:
        return Wide(names.LARGE_WIDTH, names.LARGE_LAYERS)
    return SmallCNN(channels=1, classes=CLASSES, width=int(os.environ[names.WIDTH]))


def loss_of(network: torch.nn.Module, images: Tensor, labels: Tensor) -> Tensor:
    """Return the cross entropy, after the time that this worker's accelerator would take for these samples."""
    loss = cross_entropy(network(images), labels)
    time.sleep(device_seconds(len(labels)))
    return loss


def device_seconds(samples: int) -> float:
    """Return how long an accelerator would work on so many samples: half a batch takes twice as long as a quarter."""
    return float(os.environ[names.DEVICE_SECONDS]) * samples / names.GLOBAL_BATCH


def optimizer_of(network: torch.nn.Module) -> torch.optim.Optimizer:
    """Return the optimizer of all the scripts."""
    return torch.optim.AdamW(network.parameters(), lr=LR[os.environ[names.MODEL]])
