"""The model of the schedules' workers, which has buffers too, and one that their processes can divide."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import nn
from torch.distributed.fsdp import fully_shard

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh

FEATURES = 6


class Means(nn.Module):
    """Tracks the mean of its input in a buffer, as batch normalization does, and doesn't change the input.

    So the loss is the same at any number of workers.
    """

    mean: torch.Tensor
    passes: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(FEATURES))
        self.register_buffer("passes", torch.zeros((), dtype=torch.long))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        if self.training:
            self.mean.lerp_(inputs.detach().mean(0), 0.1)
            self.passes += 1
        return inputs


def network(hidden: int, dropout: float) -> nn.Sequential:
    """Return the model. ``hidden`` is its width."""
    return nn.Sequential(Means(), *_layers(hidden, dropout))


def divisible(hidden: int, dropout: float, mesh: DeviceMesh | None) -> nn.Sequential:
    """Return the same without buffers, divided among the processes of ``mesh``; None: whole."""
    model = nn.Sequential(nn.Identity(), *_layers(hidden, dropout))
    if mesh:
        fully_shard(model[1], mesh=mesh)
        fully_shard(model, mesh=mesh)
    return model


def _layers(hidden: int, dropout: float) -> list[nn.Module]:
    last: list[nn.Module] = [nn.Dropout(dropout)] if dropout else []
    return [nn.Linear(FEATURES, hidden), nn.Tanh(), *last, nn.Linear(hidden, 1)]
