"""Every argument of Trainer is in the table, and what can't be used is refused by name."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lightning
import pytest
from lightning.pytorch.callbacks import StochasticWeightAveraging
from lightning.pytorch.plugins import AsyncCheckpointIO
from tidewater_lightning.arguments import ANY, OF_FIT, RULES, chosen_devices, refusals

from packages.lightning.tests.conftest import Net, loader
from tidewater.contract import exit_codes
from tidewater.elastic.config import Config

Make = Callable[..., lightning.Trainer]
README = Path(__file__).parents[1] / "README.md"
USABLE = {
    "accelerator": "cpu",
    "devices": 1,
    "num_nodes": 1,
    "precision": "32-true",
    "callbacks": ["ModelCheckpoint"],
    "fast_dev_run": 0,
    "limit_train_batches": 1.0,
    "overfit_batches": 0.0,
    "val_check_interval": None,
    "accumulate_grad_batches": 1,
    "plugins": [],
    "sync_batchnorm": False,
    "reload_dataloaders_every_n_epochs": 0,
    "ckpt_path": None,
}


def test_the_table_has_all_arguments_of_trainer() -> None:
    assert set(RULES) == set(inspect.signature(lightning.Trainer.__init__).parameters) - {"self"}


def test_the_readme_has_them_all() -> None:
    text = README.read_text()
    table = text[text.index("## Arguments") :]
    assert {name for name in (*RULES, *OF_FIT) if f"`{name}`" not in table} == set()


def test_what_lightning_does_by_default_is_allowed(config: Callable[..., Config]) -> None:
    assert refusals(USABLE, config()) == []
    assert {name for name, rule in RULES.items() if rule is not ANY} == set(USABLE) - set(OF_FIT)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *[("accelerator", "MPSAccelerator"), ("devices", 2), ("num_nodes", 2), ("precision", "16-mixed")],
        *[("callbacks", ["GradientAccumulationScheduler"]), ("fast_dev_run", 1), ("limit_train_batches", 5)],
        *[("overfit_batches", 0.1), ("val_check_interval", 60.0), ("accumulate_grad_batches", 2)],
        *[("plugins", ["HalfPrecision"]), ("sync_batchnorm", True), ("reload_dataloaders_every_n_epochs", 1)],
        ("ckpt_path", "last"),
    ],
)
def test_each_is_refused_by_name(name: str, value: Any, config: Callable[..., Config]) -> None:
    (sentence,) = refusals({**USABLE, name: value}, config())
    assert f"({name}={value!r}) can't be used with ElasticStrategy: " in sentence


@pytest.mark.parametrize(
    ("value", "devices"),
    [(1, 1), ([0], 1), (4, 1), ([0, 1, 2, 3], 1), ([1], [1]), ([0, 1], [0, 1]), (2, 2)],
)
def test_a_worker_does_not_choose_among_the_devices_of_a_machine_with_four(value: Any, devices: Any) -> None:
    assert chosen_devices(value, 4) == devices


@pytest.mark.parametrize("flags", [("--batch-policy", "scale"), ("--amp", "bf16"), ("--bad-samples", "skip")])
def test_so_is_a_flag(flags: tuple[str, str], config: Callable[..., Config]) -> None:
    (sentence,) = refusals(USABLE, config(*flags))
    assert sentence.startswith(f"{flags[0]} {flags[1]} can't be used")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"devices": 2}, "Trainer(devices=2)"),
        ({"accumulate_grad_batches": 3}, "Trainer(accumulate_grad_batches=3)"),
        ({"callbacks": [StochasticWeightAveraging(1e-2)]}, "StochasticWeightAveraging"),
        ({"plugins": [AsyncCheckpointIO()]}, "Trainer(plugins=['AsyncCheckpointIO'])"),
        ({"fast_dev_run": True}, "Trainer(fast_dev_run=1)"),
        ({"limit_train_batches": 1}, "Trainer(limit_train_batches=1)"),
        ({"limit_train_batches": 0.5}, "Trainer(limit_train_batches=0.5)"),
        ({"val_check_interval": "00:00:01:00"}, "Trainer(val_check_interval=60.0)"),
        ({"sync_batchnorm": True}, "Trainer(sync_batchnorm=True)"),
        ({"precision": "64-true"}, "Trainer(precision='64-true')"),
    ],
)
def test_fit_ends_with_the_sentence_before_the_worker_joins(
    arguments: dict[str, Any], said: str, trainer: Make, alone: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    made = trainer(**arguments)
    with pytest.raises(SystemExit) as ended:
        made.fit(Net(), loader())
    assert ended.value.code == exit_codes.USAGE
    assert re.search(rf"trainer: .*{re.escape(said)}", capsys.readouterr().err)
    assert not alone.joined
