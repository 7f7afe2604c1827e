"""A LightningModule in this process: the real session and loops above sums in memory, in a job of one worker."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import lightning
import pytest
import torch
from lightning.pytorch.utilities.rank_zero import rank_zero_only
from tidewater_lightning import ElasticStrategy
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from tests.elastic.conftest import etcd
from tests.elastic.script.conftest import Alone, alone, config
from tidewater.elastic import runtime
from tidewater.elastic.config import Config

__all__ = ["alone", "config", "etcd"]

SAMPLES, BATCH_SIZE, EPOCHS = 10, 4, 3
STEPS = 3
"""Of an epoch; the last one has two samples."""


class Net(lightning.LightningModule):
    """A small module, and what its hooks saw."""

    def __init__(self, *, interval: str = "step") -> None:
        super().__init__()
        torch.manual_seed(3)
        self.net = nn.Sequential(nn.Linear(2, 4), nn.BatchNorm1d(4), nn.Tanh(), nn.Linear(4, 1))
        self._interval = interval
        self.calls: list[tuple[str, int, int]] = []
        self.rates: list[float] = []

    def _note(self, name: str) -> None:
        self.calls.append((name, self.trainer.current_epoch, self.trainer.global_step))

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        loss = nn.functional.mse_loss(self.net(batch[0]), batch[1])
        self.log("loss", loss)
        return loss

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.log("val_loss", nn.functional.mse_loss(self.net(batch[0]), batch[1]))

    def on_train_start(self) -> None:
        self._note("start")

    def on_train_epoch_start(self) -> None:
        self._note("epoch_start")

    def on_train_batch_end(self, outputs: Any, batch: Any, batch_idx: int) -> None:
        self._note(f"batch_end {batch_idx}")
        self.rates.append(self.trainer.optimizers[0].param_groups[0]["lr"])

    def on_train_epoch_end(self) -> None:
        self._note("epoch_end")

    def on_train_end(self) -> None:
        self._note("end")

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.SGD(self.parameters(), lr=0.1, momentum=0.9)
        scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "interval": self._interval}}


def loader(**more: Any) -> DataLoader[Any]:
    generator = torch.Generator().manual_seed(1)
    inputs, targets = torch.randn(SAMPLES, 2, generator=generator), torch.randn(SAMPLES, 1, generator=generator)
    return DataLoader(TensorDataset(inputs, targets), **{"batch_size": BATCH_SIZE, **more})


@pytest.fixture
def trainer(alone: Alone, config: Callable[..., Config], tmp_path: Path) -> Iterator[Callable[..., lightning.Trainer]]:
    """Return what makes a trainer of the only worker of a job."""
    rank = rank_zero_only.rank

    def make(*flags: str, **arguments: Any) -> lightning.Trainer:
        alone.begin()
        runtime._opened = False
        plain = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False, "max_epochs": EPOCHS}
        where = {"accelerator": "cpu", "default_root_dir": str(tmp_path), "enable_model_summary": False}
        strategy = ElasticStrategy(config("--micro-batch", "3", *flags))
        return lightning.Trainer(strategy=strategy, **{**plain, **where, **arguments})

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield make
    rank_zero_only.rank = rank
