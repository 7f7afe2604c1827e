"""Two spirals with Lightning: a script as people write it, with three lines for Tidewater.

    python packages/lightning/examples/spirals.py --job spirals --etcd http://127.0.0.1:2379 --checkpoints DIR

Start it as often as you like: each is a worker.
"""

# ruff: noqa: D102
from typing import Any

import lightning
import torch
from lightning.pytorch.callbacks import EarlyStopping, LearningRateMonitor, ModelCheckpoint
from tidewater_lightning import ElasticStrategy  # 2
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, random_split

import tidewater  # 1


class Spirals(lightning.LightningDataModule):
    """Points on two spirals, with noise."""

    def __init__(self, points: int = 600, batch_size: int = 64) -> None:
        super().__init__()
        self.points, self.batch_size = points, batch_size

    def setup(self, stage: str) -> None:
        generator = torch.Generator().manual_seed(7)
        turn = torch.rand(self.points, generator=generator) * 3 * torch.pi
        label = torch.arange(self.points) % 2
        angle = turn + label * torch.pi
        places = torch.stack([turn * angle.cos(), turn * angle.sin()], dim=1) / 10
        places += torch.randn(places.shape, generator=generator) / 50
        self.train, self.val = random_split(TensorDataset(places, label), [0.8, 0.2], generator)

    def train_dataloader(self) -> DataLoader[Any]:
        return DataLoader(self.train, batch_size=self.batch_size, shuffle=True)

    def val_dataloader(self) -> DataLoader[Any]:
        return DataLoader(self.val, batch_size=256)


class Classifier(lightning.LightningModule):
    """A small network."""

    def __init__(self, width: int = 64, lr: float = 0.01) -> None:
        super().__init__()
        self.save_hyperparameters()
        first = [nn.Linear(2, width), nn.BatchNorm1d(width), nn.ReLU()]
        self.net = nn.Sequential(*first, nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 2))

    def forward(self, places: torch.Tensor) -> Any:
        return self.net(places)

    def training_step(self, batch: list[torch.Tensor], batch_idx: int) -> torch.Tensor:
        loss = nn.functional.cross_entropy(self(batch[0]), batch[1])
        self.log("train_loss", loss)
        return loss

    def validation_step(self, batch: list[torch.Tensor], batch_idx: int) -> None:
        scores = self(batch[0])
        self.log("val_loss", nn.functional.cross_entropy(scores, batch[1]), prog_bar=True)
        self.log("val_accuracy", (scores.argmax(1) == batch[1]).float().mean(), prog_bar=True)

    def configure_optimizers(self) -> dict[str, Any]:
        optimizer = torch.optim.AdamW(self.parameters(), lr=self.hparams.lr)
        steps = self.trainer.estimated_stepping_batches
        scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, self.hparams.lr, total_steps=steps)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "interval": "step"}}


if __name__ == "__main__":
    config = tidewater.init()  # 3: before the script builds anything
    trainer = lightning.Trainer(
        strategy=ElasticStrategy(config),
        max_epochs=20,
        gradient_clip_val=1.0,
        log_every_n_steps=1,
        callbacks=[
            ModelCheckpoint(monitor="val_loss"),
            EarlyStopping(monitor="val_loss", patience=10),
            LearningRateMonitor(logging_interval="step"),
        ],
    )
    trainer.fit(Classifier(), datamodule=Spirals())
