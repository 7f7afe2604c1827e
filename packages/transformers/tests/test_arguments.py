"""Every field of TrainingArguments is honoured, or refused by its name."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from tidewater_transformers import arguments
from transformers import TrainingArguments

from tidewater.elastic.config import Config

HONOURED = (
    arguments.BY_THE_RUNTIME,
    arguments.BY_THE_LIBRARY,
    arguments.OF_THE_SCRIPT,
    arguments.WITHOUT_EFFECT,
    frozenset(arguments.CHECKED),
    arguments.TOGETHER,
)
REFUSED: dict[str, Any] = {
    "torch_compile": True,
    "torch_empty_cache_steps": 10,
    "auto_find_batch_size": True,
    "include_num_input_tokens_seen": "all",
    "save_on_each_node": True,
    "enable_jit_checkpoint": True,
    "push_to_hub": True,
    "accelerator_config": {"split_batches": True},
    "parallelism_config": object(),
    "dataloader_drop_last": True,
    "ddp_find_unused_parameters": True,
    "ddp_bucket_cap_mb": 25,
    "ddp_broadcast_buffers": True,
    "ddp_static_graph": True,
    "ddp_backend": "gloo",
    "ddp_timeout": 60,
    "local_rank": 1,
    "fsdp": "full_shard",
    "deepspeed": "zero.json",
    "debug": "underflow_overflow",
    "train_sampling_strategy": "group_by_length",
    "optim": "adalomo",
    "dataloader_multiprocessing_context": "spawn",
    "data_seed": 1,
    "use_cpu": True,
}
"""A value of each argument that can't be honoured."""


@pytest.fixture(scope="module")
def plain() -> TrainingArguments:
    return TrainingArguments("unused")


class Changed:
    """Arguments with other values for some, also with those that the library takes only on certain machines."""

    def __init__(self, plain: TrainingArguments, **changed: Any) -> None:
        vars(self).update({each.name: getattr(plain, each.name) for each in fields(plain)}, **changed)


def config(*given: str) -> Config:
    return Config.parse(["--job", "j", "--etcd", "e", "--checkpoints", "c", *given], {})


def test_each_field_is_decided_once() -> None:
    decided = [*(name for part in HONOURED for name in part), *arguments.REFUSED]
    assert sorted(decided) == sorted(each.name for each in fields(TrainingArguments))


def test_defaults_are_honoured(plain: TrainingArguments) -> None:
    assert arguments.refusals(plain, plain, gpu=True) == []


def test_every_refusal_has_a_case() -> None:
    assert REFUSED.keys() == {*arguments.REFUSED, *arguments.CHECKED, *arguments.TOGETHER}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_honoured_is_refused_by_name_with_a_remedy(plain: TrainingArguments, name: str) -> None:
    (sentence,) = arguments.refusals(Changed(plain, **{name: REFUSED[name]}), plain, gpu=True)
    assert sentence.startswith(f"TrainingArguments({name}=")
    assert sentence.split(": ", 1)[1]


@pytest.mark.parametrize(
    "given",
    [{"use_cpu": True}, {"data_seed": 42}, {"optim": "sgd"}, {"dataloader_multiprocessing_context": "fork"}],
)
def test_the_same_arguments_are_honoured_with_other_values(plain: TrainingArguments, given: dict[str, Any]) -> None:
    assert arguments.refusals(Changed(plain, **given), plain, gpu=False) == []


def test_the_batch_is_that_of_a_plain_trainer_in_one_process(plain: TrainingArguments) -> None:
    args = Changed(plain, per_device_train_batch_size=4, gradient_accumulation_steps=8, bf16=True)
    settings = arguments.settings(args, epochs=3, max_steps=70)
    assert settings == {
        "epochs": 3,
        "max_steps": 70,
        "batch_size": 32,
        "seed": 42,
        "amp": "bf16",
        "batch_policy": "keep",
    }
    assert arguments.suggestions(args) == {"micro_batch": 4, "data_workers": 0}


def test_a_flag_that_says_something_else_is_refused_by_name(plain: TrainingArguments) -> None:
    wanted = arguments.settings(plain, epochs=3, max_steps=70)
    assert arguments.contradictions(config("--epochs", "3", "--batch-size", "8"), wanted) == []
    assert arguments.contradictions(config("--batch-size", "16", "--batch-policy", "scale"), wanted) == [
        "--batch-size is 16, and the TrainingArguments make it 8: leave the flag out",
        "--batch-policy is scale, and the TrainingArguments make it keep: leave the flag out",
    ]


def test_a_flag_decides_how_a_share_is_computed(plain: TrainingArguments) -> None:
    suggested = arguments.suggestions(plain)
    assert arguments.chosen(config(), suggested) == suggested
    assert "micro_batch" not in arguments.chosen(config("--micro-batch", "2"), suggested)


def test_the_readme_names_what_is_refused() -> None:
    readme = (Path(__file__).parents[1] / "README.md").read_text()
    lacking = [name for name in REFUSED if f"`{name}" not in readme and not name.startswith("ddp_")]
    assert lacking == ["optim", "dataloader_multiprocessing_context"]
