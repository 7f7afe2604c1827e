"""Handwritten digits: a small convolutional network, in ElasticDL's functional API.

It takes grey images of any size from 8 x 8 on, so the digits of scikit-learn as well as those of MNIST.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from elasticdl.data.examples.fields import decode
from elasticdl.data.reader import Metadata
from elasticdl.zoo.metrics import Accuracy, MetricLike
from elasticdl.zoo.optimizers import SGD, Optimizer
from elasticdl.zoo.spec import Mode
from torch import nn


def custom_model(channels: int = 16, classes: int = 10) -> nn.Module:
    """Return the model: two convolutions, and one layer on 4 x 4 averages of what they found."""
    # GroupNorm, as BatchNorm has statistics that are no parameters: each worker would have others.
    return nn.Sequential(
        nn.Conv2d(1, channels, kernel_size=3, padding=1),
        nn.GroupNorm(4, channels),
        nn.ReLU(),
        nn.Conv2d(channels, 2 * channels, kernel_size=3, padding=1),
        nn.GroupNorm(4, 2 * channels),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(4),
        nn.Flatten(),
        nn.Linear(2 * channels * 16, classes),
    )


def loss(labels: torch.Tensor, predictions: torch.Tensor) -> torch.Tensor:
    """Return the mean cross entropy."""
    return nn.functional.cross_entropy(predictions, labels)


def optimizer(lr: float = 0.05) -> Optimizer:
    """Return the optimizer, for one process as for parameter servers."""
    return SGD(lr=lr, momentum=0.9)


def feed(records: list[bytes], mode: Mode, metadata: Metadata) -> tuple[torch.Tensor, torch.Tensor] | torch.Tensor:
    """Return images in [0, 1] and their labels."""
    fields = [decode(record) for record in records]
    images = torch.stack([_image(each["image"]) for each in fields])
    if mode == Mode.PREDICTION:
        return images
    labels = np.array([np.ravel(each["label"])[0] for each in fields], np.int64)
    return images, torch.from_numpy(labels)


def eval_metrics_fn() -> dict[str, MetricLike]:
    """Return what is measured on the validation data."""
    return {"accuracy": Accuracy()}


def _image(pixels: np.ndarray) -> torch.Tensor:
    """Return one channel of floats. A tf.Example holds the pixels of a square image in one row."""
    if pixels.ndim == 1:
        side = math.isqrt(pixels.size)
        pixels = pixels.reshape(side, side)
    return torch.from_numpy(pixels.astype(np.float32) / 255).unsqueeze(0)
