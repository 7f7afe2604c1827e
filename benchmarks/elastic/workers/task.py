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
from examples.images.model import SmallCNN

if TYPE_CHECKING:
    from torch import Tensor

LR = 2e-3
SEED = 0


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


def model() -> SmallCNN:
    """Return the network, with the same initial weights everywhere."""
    torch.manual_seed(SEED)
    return SmallCNN(channels=1, classes=10, width=int(os.environ[names.WIDTH]))


def loss_of(network: torch.nn.Module, images: Tensor, labels: Tensor) -> Tensor:
    """Return the cross entropy, after the time that an accelerator would take."""
    loss = cross_entropy(network(images), labels)
    time.sleep(float(os.environ[names.DEVICE_SECONDS]))
    return loss


def optimizer_of(network: torch.nn.Module) -> torch.optim.Optimizer:
    """Return the optimizer of all the scripts."""
    return torch.optim.AdamW(network.parameters(), lr=LR)
