"""A small network that the processes of each replica divide, as a person brings it to the stack."""

from __future__ import annotations

import torch
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.utils.data import TensorDataset

import tidewater


def training(config: tidewater.Config) -> tidewater.Training:
    """Return a network of two layers that learns to add."""
    model = nn.Sequential(nn.Linear(8, 33), nn.ReLU(), nn.Linear(33, 1))
    for layer in (model[0], model[2]):
        fully_shard(layer, mesh=config.mesh)
    fully_shard(model, mesh=config.mesh)
    given = torch.randn(512, 8, generator=torch.Generator().manual_seed(1))

    def loss(model: nn.Module, batch: list[torch.Tensor]) -> tuple[torch.Tensor, float]:
        given, wanted = batch
        return nn.functional.mse_loss(model(given), wanted, reduction="sum"), float(len(given))

    return tidewater.Training(
        model=model,
        optimizer=torch.optim.AdamW(model.parameters(), lr=1e-3),
        dataset=TensorDataset(given, given.sum(dim=1, keepdim=True)),
        loss=loss,
    )


if __name__ == "__main__":
    raise SystemExit(tidewater.run(training))
