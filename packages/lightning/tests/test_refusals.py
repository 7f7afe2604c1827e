"""Modules and loaders that can't be used end the worker with a sentence, before it joins."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import lightning
import pytest
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from torch.utils.data import DataLoader, IterableDataset, WeightedRandomSampler

from packages.lightning.tests.conftest import SAMPLES, Net, loader
from tidewater.contract import exit_codes

Make = Callable[..., lightning.Trainer]


class Manual(Net):
    def __init__(self) -> None:
        super().__init__()
        self.automatic_optimization = False


class Backward(Net):
    def backward(self, loss: Any) -> None:
        loss.backward()


class Nothing(Net):
    def training_step(self, batch: Any, batch_idx: int) -> Any:
        return None


class Without(Net):
    def configure_optimizers(self) -> Any:
        return None


class ByTraining(Net):
    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.SGD(self.parameters(), lr=0.1)
        plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": plateau, "monitor": "loss"}}


class ByValidation(Net):
    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.SGD(self.parameters(), lr=0.1)
        plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": plateau, "monitor": "val_loss"}}


class Flow(IterableDataset[int]):
    def __iter__(self) -> Any:
        return iter(range(9))


@pytest.mark.parametrize(
    ("module", "data", "said"),
    [
        (Manual, {}, "Manual has automatic_optimization = False"),
        (Backward, {}, "Backward has a backward()"),
        (Nothing, {}, "training_step has returned None"),
        (Without, {}, "configure_optimizers of Without"),
        (ByTraining, {}, "ReduceLROnPlateau uses 'loss'"),
        (Net, {"drop_last": True}, "drop_last=True"),
        (Net, {"sampler": WeightedRandomSampler([1.0] * SAMPLES, SAMPLES)}, "WeightedRandomSampler"),
        (Net, {"worker_init_fn": print}, "worker_init_fn"),
        (Net, {"batch_size": None}, "batch_size=None"),
    ],
)
def test_each_has_a_sentence(
    module: Any, data: dict[str, Any], said: str, trainer: Make, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        trainer().fit(module(), loader(**data))
    assert ended.value.code == exit_codes.USAGE
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("keeper", "said"),
    [
        ({"monitor": "loss"}, "ModelCheckpoint uses 'loss'"),
        ({"monitor": "loss", "every_n_train_steps": 1}, "ModelCheckpoint uses 'loss'"),
        ({"filename": "{epoch}-{loss:.2f}"}, "ModelCheckpoint uses 'loss'"),
        ({"train_time_interval": timedelta(minutes=1)}, "ModelCheckpoint has a train_time_interval"),
    ],
    ids=str,
)
def test_a_checkpoint_does_not_depend_on_what_one_worker_has_measured(
    keeper: dict[str, Any], said: str, trainer: Make, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = trainer(callbacks=[ModelCheckpoint(tmp_path / "kept", **keeper)], enable_checkpointing=True)
    with pytest.raises(SystemExit) as ended:
        made.fit(Net(), loader(), loader())
    assert ended.value.code == exit_codes.USAGE
    assert said in capsys.readouterr().err
    assert not (tmp_path / "kept").exists()


@pytest.mark.parametrize(
    "keeper",
    [
        {"monitor": "val_loss", "filename": "{epoch}-{val_loss:.2f}"},
        {"monitor": "step", "mode": "max", "every_n_train_steps": 2},
    ],
    ids=str,
)
def test_it_may_depend_on_what_all_have(keeper: dict[str, Any], trainer: Make, tmp_path: Path) -> None:
    saver = ModelCheckpoint(tmp_path / "kept", **keeper)
    made = trainer(callbacks=[saver], enable_checkpointing=True, num_sanity_val_steps=0)
    made.fit(ByValidation(), loader(), loader())
    assert len(list((tmp_path / "kept").iterdir())) == 1


@pytest.mark.parametrize(("data", "said"), [(DataLoader(Flow(), 2), "IterableDataset"), ([1, 2], "no DataLoader")])
def test_so_has_what_is_no_loader_of_an_indexed_dataset(
    data: Any, said: str, trainer: Make, alone: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        trainer().fit(Net(), data)
    assert ended.value.code == exit_codes.USAGE
    assert said in capsys.readouterr().err
    assert not alone.joined
