"""Modules and loaders that can't be used end the worker with a sentence, before it joins."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import lightning
import pytest
import torch
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
        (ByTraining, {}, "ReduceLROnPlateau monitors 'loss'"),
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


@pytest.mark.parametrize(("data", "said"), [(DataLoader(Flow(), 2), "IterableDataset"), ([1, 2], "no DataLoader")])
def test_so_has_what_is_no_loader_of_an_indexed_dataset(
    data: Any, said: str, trainer: Make, alone: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        trainer().fit(Net(), data)
    assert ended.value.code == exit_codes.USAGE
    assert said in capsys.readouterr().err
    assert not alone.joined
