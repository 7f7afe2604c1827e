"""A worker of the end-to-end tests: the numbers of ``tests.elastic.schedules`` in a LightningModule, with its ledger.

python -m packages.lightning.tests.worker < requests > reports          # forks workers, see `tests.farm`
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lightning
import torch
from lightning.pytorch.callbacks import LearningRateMonitor, ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger
from tidewater_lightning import ElasticStrategy
from tidewater_lightning.writing import Writing
from torch import nn
from torch.utils.data import DataLoader

import tidewater
from tests.elastic.group import kinds
from tests.elastic.regression import Means
from tests.elastic.schedules.script import BATCH_SIZE, Average, Numbers, Options, Witness
from tidewater.elastic.launch.zygote import Request, Run, serve
from tidewater.elastic.training import Report

EPOCHS = 100000
"""Unless the test gives --max-steps."""


class Module(lightning.LightningModule):
    """The model of the schedules' script."""

    def __init__(self, witness: Witness) -> None:
        super().__init__()
        self.witness = witness
        torch.manual_seed(7)
        self.net = nn.Sequential(Means(), nn.Linear(6, 4), nn.Tanh(), nn.Linear(4, 1))

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        loss = self.witness.loss(self.net, batch)
        self.log("loss", loss)
        return loss

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.log("val_loss", nn.functional.mse_loss(self.net(batch[0]), batch[1]))

    def configure_optimizers(self) -> Any:
        sgd = torch.optim.SGD(self.parameters(), lr=0.002, momentum=0.9, weight_decay=1e-3)
        sgd.register_step_pre_hook(lambda *_: self.witness._points.reach("apply"))
        sgd.register_step_post_hook(lambda *_: self.witness._points.reach("applied"))
        return [sgd], [torch.optim.lr_scheduler.CosineAnnealingLR(sgd, 1000)]


def main(options: Options, argv: list[str]) -> int:
    """Train as one worker. Return the exit code."""
    kinds.use(options.group)
    witness = Witness(options)
    witness.install()
    module = Module(witness)
    witness._average = Average(module)
    final = Writing.final

    def witnessed(writing: Writing, report: Report) -> None:
        final(writing, report)
        witness.on_step(report)

    Writing.final = witnessed  # type: ignore[assignment, method-assign]
    config = tidewater.init(argv)
    home = options.ledgers.parent / "lightning"
    trainer = lightning.Trainer(
        strategy=ElasticStrategy(config),
        accelerator="cpu",
        max_epochs=config.epochs,
        default_root_dir=str(home),
        enable_progress_bar=False,
        log_every_n_steps=1,
        logger=CSVLogger(home),
        callbacks=[LearningRateMonitor("step"), ModelCheckpoint(every_n_epochs=1, save_top_k=-1)],
    )
    trainer.fit(module, DataLoader(Numbers(), BATCH_SIZE), DataLoader(Numbers(), 16))
    print(f"counted {trainer.global_step} {trainer.current_epoch}", flush=True)
    return 0


def load() -> Run:
    """Import all that a worker may import."""
    import torch._dynamo

    assert torch._dynamo
    torch.set_num_threads(1)
    return _run


def _run(request: Request) -> int:
    options = {**request["options"], "folder": Path(request["options"]["folder"])}
    return main(Options(**{**options, "ledgers": Path(options["ledgers"])}), list(request["argv"]))


if __name__ == "__main__":
    serve(load)
