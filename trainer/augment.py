"""Transforms of images before they are put into a batch: a common size, and random changes in training.

    train.transform = augment.training("standard", (224, 224))
    val.transform = augment.validation("standard", (224, 224))

An image is a uint8 tensor ``[channels, height, width]`` before and after. Random changes use the global generators,
which are seeded for each sample (see ``tidewater.elastic.data.loader``). So a sample looks the same in every
rank that prepares it in an epoch. torchvision is imported only if an image has to be resized.
"""

from __future__ import annotations

import random

import numpy as np
import torch

from trainer.data import Transform

KINDS = ("shift", "standard", "none")
_RESIZED_TO_CROPPED = 256 / 224
"""The values of torchvision's reference training for ImageNet."""
_SHIFT_SHARE = 8

Size = tuple[int, int]


def training(kind: str, size: Size) -> Transform:
    """Return the transform of one of ``KINDS``, which gives images of ``size`` (height, width)."""
    if kind == "standard":
        from torchvision.transforms import v2

        varied: Transform = v2.Compose([v2.RandomResizedCrop(size, antialias=True), v2.RandomHorizontalFlip()])
        return varied
    if kind == "shift":
        return lambda image: shifted(fitted(image, size))
    return lambda image: fitted(image, size)


def validation(kind: str, size: Size) -> Transform:
    """Return the transform for validation, without random changes, that fits ``training(kind, size)``."""
    if kind == "standard":
        from torchvision.transforms import v2

        middle: Transform = v2.Compose(
            [v2.Resize(round(max(size) * _RESIZED_TO_CROPPED), antialias=True), v2.CenterCrop(size)]
        )
        return middle
    return lambda image: fitted(image, size)


def fitted(image: torch.Tensor, size: Size) -> torch.Tensor:
    """Return the whole image in that size, stretched if necessary."""
    if tuple(image.shape[-2:]) == size:
        return image
    from torchvision.transforms.v2 import functional

    resized: torch.Tensor = functional.resize(image, list(size), antialias=True)
    return resized


def shifted(image: torch.Tensor) -> torch.Tensor:
    """Return the image moved by up to an eighth of its size (at least a pixel) in each direction, with black edges."""
    height, width = image.shape[-2:]
    reach = max(1, min(height, width) // _SHIFT_SHARE)
    rows, columns = random.randint(-reach, reach), random.randint(-reach, reach)
    pixels = image.numpy()
    moved = np.zeros_like(pixels)  # numpy: for small images, torch's slicing takes several times as long
    moved[:, max(rows, 0) : height + min(rows, 0), max(columns, 0) : width + min(columns, 0)] = pixels[
        :, max(-rows, 0) : height - max(rows, 0), max(-columns, 0) : width - max(columns, 0)
    ]
    return torch.from_numpy(moved)
