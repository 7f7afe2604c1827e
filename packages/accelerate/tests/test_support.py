"""Every argument and member of Accelerate's class has its decision, and what is refused has a sentence."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import accelerate
import pytest
from accelerate.utils import DataLoaderConfiguration, GradientAccumulationPlugin, GradScalerKwargs
from tidewater_accelerate import Accelerator
from tidewater_accelerate.support import ARGUMENTS, MEMBERS, Kind, check, tables

from tidewater import ConfigError

_PARAMETERS = inspect.signature(accelerate.Accelerator).parameters
_DEFAULTS = {name: each.default for name, each in _PARAMETERS.items()}


def test_the_tables_have_every_argument_and_every_public_member() -> None:
    assert set(ARGUMENTS) == set(_PARAMETERS)
    assert set(MEMBERS) == {name for name in vars(accelerate.Accelerator) if not name.startswith("_")}


def test_what_the_adapter_does_is_in_its_class_and_nothing_else() -> None:
    through_others = {"prepare", "optimizer_step_was_skipped", "save_iteration"}
    own = {name for name, each in MEMBERS.items() if each.kind in (Kind.ELASTIC, Kind.REFUSED)} - through_others
    mine = {name for name in vars(Accelerator) if not name.startswith("_")} - {"steps"}
    assert own == mine


def test_what_is_refused_or_changed_says_how() -> None:
    assert [name for name, each in {**MEMBERS, **ARGUMENTS}.items() if each.kind != Kind.SAME and not each.note] == []


def test_the_readme_has_the_tables() -> None:
    assert (Path(__file__).parents[1] / "README.md").read_text().endswith(tables())


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"mixed_precision": "fp16"}, "use bf16"),
        ({"mixed_precision": "fp8"}, "use bf16"),
        ({"fsdp_plugin": object()}, "a worker holds the whole model"),
        ({"device_placement": False}, "the runtime puts model and batches on the device"),
        ({"step_scheduler_with_optimizer": False}, "a scheduler is stepped after a step of the job"),
        ({"gradient_accumulation_plugin": GradientAccumulationPlugin(sync_with_dataloader=False)}, "sync_with_data"),
        ({"kwargs_handlers": [GradScalerKwargs()]}, "leave out GradScalerKwargs"),
        ({"dataloader_config": DataLoaderConfiguration(dispatch_batches=True)}, "leave out dispatch_batches"),
        ({"of_the_future": 1}, "is not known here"),
    ],
)
def test_an_argument_without_support_is_refused_by_name(given: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence) as refused:
        check(given, _DEFAULTS)
    assert next(iter(given)) in str(refused.value)


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"fsdp_plugin": None, "device_placement": True},
        {"mixed_precision": "bf16", "gradient_accumulation_steps": 4, "split_batches": True, "log_with": "all"},
        {"gradient_accumulation_plugin": GradientAccumulationPlugin(num_steps=4)},
    ],
)
def test_a_supported_argument_passes(given: dict[str, Any]) -> None:
    check(given, _DEFAULTS)
