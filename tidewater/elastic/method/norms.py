"""Batch normalization in a training step that several workers share.

refuse_synchronised(model)
with lone_sample(model):
    loss(model, batch_of_one)
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from tidewater.elastic.errors import ConfigError


def refuse_synchronised(model: nn.Module) -> None:
    """Raise ConfigError if a layer sums over the workers in its forward pass: that doesn't survive the loss of one."""
    for name, layer in model.named_modules():
        if isinstance(layer, nn.SyncBatchNorm):
            raise ConfigError(
                f"the model's layer {name or type(model).__name__} is a SyncBatchNorm, which waits for all workers in "
                "every forward pass and would wait for a lost one: use BatchNorm; the workers average its running "
                "statistics in every step"
            )


@contextlib.contextmanager
def lone_sample(model: nn.Module) -> Iterator[None]:
    """Let the layers of batch normalization accept one value per channel, which torch refuses: it has no variance.

    Any epoch can end with a step in which a worker has one sample, and where the maps are 1x1 that is one value. Such
    a layer then uses its running statistics, as in evaluation, and doesn't update them. Without running statistics
    (``track_running_stats=False``) it returns its bias: the value minus its mean is 0.
    """
    layers = [layer for layer in model.modules() if isinstance(layer, _BatchNorm) and layer.training]
    hooks: list[Any] = []
    for layer in layers:
        hooks += [layer.register_forward_pre_hook(_before), layer.register_forward_hook(_after, always_call=True)]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def _before(layer: nn.Module, given: tuple[torch.Tensor]) -> tuple[torch.Tensor] | None:
    values = given[0]
    layer.training = values.numel() != values.size(1)
    # Two equal values have the mean of one, and their gradients cancel each other.
    return (torch.cat([values, values]),) if not layer.training and layer.running_mean is None else None


def _after(layer: nn.Module, given: tuple[torch.Tensor], result: torch.Tensor) -> torch.Tensor | None:
    alone, layer.training = not layer.training, True
    return result[:1] if alone and layer.running_mean is None else None
