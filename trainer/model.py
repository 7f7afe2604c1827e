"""The networks: a small convolutional network, and torchvision's ResNets adapted to the images.

    model = build("resnet18", channels=1, classes=10, size=(28, 28))

No network assumes a floating-point type, so all can train with autocast.
"""

from __future__ import annotations

import torch
from torch import nn

from tidewater import ConfigError

SMALL = "small-cnn"

_SMALL_SIDE = 32
_LEAST_SIDE = 9
"""For smaller images a ResNet's last feature map has one pixel, and batch normalization nothing to average."""


class SmallCNN(nn.Module):
    """Three convolutions, global average, one linear layer: from ``[n, channels, h, w]`` to ``[n, classes]`` logits.

    It uses group normalization, which has no running statistics that could differ between ranks.
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
        """Return the logits."""
        pooled = nn.functional.adaptive_avg_pool2d(self.features(images), 2)
        logits: torch.Tensor = self.head(pooled.flatten(1))
        return logits


def _block(inputs: int, outputs: int, *, stride: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 3, stride=stride, padding=1, bias=False), nn.GroupNorm(8, outputs), nn.ReLU()
    )


def build(name: str, *, channels: int, classes: int, size: tuple[int, int]) -> nn.Module:
    """Return the small network, or a ResNet by torchvision's name, for images of ``size`` (height, width).

    For images of up to 32 pixels a ResNet starts with a 3x3 convolution without pooling, as in its authors' version for
    CIFAR (arXiv 1512.03385, 4.2); otherwise the first layers would reduce the images too much.
    """
    if name == SMALL:
        return SmallCNN(channels, classes)
    if min(size) < _LEAST_SIDE:
        raise ConfigError(
            f"--model {name} needs images of {_LEAST_SIDE} pixels at least, and these have {size[1]} x {size[0]}: "
            f"give --image-size {_SMALL_SIDE}, or take --model {SMALL}"
        )
    from torchvision import models  # takes a second, and the small network doesn't need it

    net: nn.Module = models.get_model(name, weights=None, num_classes=classes)
    small = min(size) <= _SMALL_SIDE
    if small or channels != 3:
        kernel, stride, padding = (3, 1, 1) if small else (7, 2, 3)
        net.conv1 = nn.Conv2d(channels, 64, kernel, stride, padding, bias=False)
        nn.init.kaiming_normal_(net.conv1.weight, mode="fan_out", nonlinearity="relu")
    if small:
        net.maxpool = nn.Identity()
    return net
