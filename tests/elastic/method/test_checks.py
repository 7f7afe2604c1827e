"""What the runtime can't train is refused by name, with a remedy, before the worker joins."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn
from torch.optim.lr_scheduler import OneCycleLR
from torch.utils.data import Dataset, IterableDataset, TensorDataset

from tidewater.contract import env
from tidewater.elastic.config import Config
from tidewater.elastic.errors import ConfigError
from tidewater.elastic.method.checks import check
from tidewater.elastic.training import Training


def config(*flags: str) -> Config:
    environ = {env.JOB: "j", env.ETCD: "http://e:2379", env.CHECKPOINTS: "/checkpoints"}
    return Config.parse(["--epochs", "2", "--batch-size", "10", *flags], environ)


CONFIG = config()


class Stream(IterableDataset[int]):
    """It can't continue anywhere but at its beginning."""

    def __iter__(self) -> Iterator[int]:
        return iter(range(100))


class Unsized(Stream):
    def state_dict(self) -> dict[str, int]:
        return {}

    def load_state_dict(self, state: dict[str, int]) -> None:
        pass


class Sized(Unsized):
    def __len__(self) -> int:
        return 101


class Endless(Dataset[int]):
    def __getitem__(self, index: int) -> int:
        return index


def training(dataset: Any, total_steps: int = 0, **more: Any) -> Training:
    model = nn.Linear(1, 1)
    sgd = torch.optim.SGD(model.parameters(), lr=0.1)
    scheduler: Any = OneCycleLR(sgd, 0.1, total_steps=total_steps) if total_steps else ()
    return Training(
        model=model, optimizer=sgd, dataset=dataset, loss=lambda model, batch: batch, scheduler=scheduler, **more
    )


def test_a_dataset_without_a_length_is_refused_with_the_reason_and_the_remedy() -> None:
    with pytest.raises(ConfigError, match=r"Endless, has no .* exactly once .* __len__ and __getit"):
        check(training(Endless()), CONFIG)


def test_an_empty_dataset_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"dataset, TensorDataset, is empty: .* path"):
        check(training(TensorDataset(torch.zeros(0))), CONFIG)


@pytest.mark.parametrize("part", ["dataset", "validation"])
def test_several_datasets_in_a_mapping_are_refused_with_the_remedy(part: str) -> None:
    data = TensorDataset(torch.zeros(9))

    def given(mapping: dict[Any, Any]) -> Training:
        more: dict[str, Any] = {"dataset": data, "validation": data, part: mapping}
        return training(more.pop("dataset"), score=lambda model, batch: batch, **more)

    with pytest.raises(ConfigError, match=rf"{part} is a dict with the keys 'train', 'test', .* give one .* 'train'"):
        check(given({"train": data, "test": data}), CONFIG)
    check(given({0: 1.0, 1: 2.0}), CONFIG)


class Distributed(nn.parallel.DistributedDataParallel):
    """One without a process group."""

    def __init__(self, module: nn.Module) -> None:
        nn.Module.__init__(self)
        self.module = module


@pytest.mark.parametrize(
    ("model", "named"),
    [
        (nn.Sequential(nn.LazyLinear(3)), r"0\.weight of the training's model is not initialized.*pass one batch"),
        (nn.DataParallel(nn.Linear(1, 1)), r"model is a DataParallel.*give the model in it, model\.module"),
        (Distributed(nn.Linear(1, 1)), r"model is a Distributed.*give the model in it, model\.module"),
    ],
    ids=["lazy", "DataParallel", "DistributedDataParallel"],
)
def test_a_model_that_can_not_be_trained_as_it_is_is_refused_with_the_remedy(model: nn.Module, named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        check(replace(training(TensorDataset(torch.zeros(9))), model=model), CONFIG)


def test_another_default_dtype_is_refused() -> None:
    torch.set_default_dtype(torch.bfloat16)
    try:
        with pytest.raises(ConfigError, match=r"set_default_dtype\(torch\.bfloat16\).*--amp bf16"):
            check(training(TensorDataset(torch.zeros(9))), CONFIG)
    finally:
        torch.set_default_dtype(torch.float32)


def test_a_stream_that_can_continue_is_accepted() -> None:
    check(training(Unsized()), CONFIG)


def test_a_stream_that_cannot_continue_is_refused_with_the_reason_and_the_remedy() -> None:
    with pytest.raises(ConfigError, match=r"Stream, is a stream without state_dict and load_state_dict: .* middle"):
        check(training(Stream()), CONFIG)


def test_a_stream_is_read_by_one_process() -> None:
    with pytest.raises(ConfigError, match=r"--data-workers is 2: one process must read .* use --data-workers 0"):
        check(training(Unsized()), config("--data-workers", "2"))


def test_a_stream_cannot_leave_samples_out() -> None:
    with pytest.raises(ConfigError, match=r"is a stream, and --bad-samples is skip: .* catch it in __iter__"):
        check(training(Unsized()), config("--bad-samples", "skip"))


def test_a_schedule_needs_the_length_of_a_stream_or_of_the_job() -> None:
    def half(_: float) -> float:
        return 0.5

    for more in ({"schedule": half}, {"total_steps": 22}):
        check(training(Sized(), **more), CONFIG)
        check(training(Unsized(), **more), config("--max-steps", "22"))
        with pytest.raises(ConfigError, match=r"the training's schedule.* depends .* give --max-steps, or .* __len__"):
            check(training(Unsized(), **more), CONFIG)
    with pytest.raises(ConfigError, match=r"total_steps=22, and the job has 23 steps: give it config\.max_steps"):
        check(training(Unsized(), total_steps=22), config("--max-steps", "23"))


def test_validation_data_without_an_index_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"the training's validation, Sized, has no .* __len__ and __getitem__"):
        check(training(TensorDataset(torch.zeros(1)), validation=Sized()), CONFIG)


def test_validation_data_that_nothing_evaluates_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"has validation but no score.* give it score\(model, batch\)"):
        check(training(TensorDataset(torch.zeros(1)), validation=TensorDataset(torch.zeros(1))), CONFIG)


@pytest.mark.parametrize(
    ("given", "flags", "named"),
    [
        ({"keep_best": "best"}, ("--evaluate-every", "1"), r"keep_best is 'best': give \"max\" if the highest"),
        ({"keep_best": "max"}, ("--evaluate-every", "1"), r"keep_best is 'max', and nothing is evaluated: give valid"),
        ({"keep_best": "min", "validation": [1], "score": max}, (), r"keep_best is 'min', and --evaluate-every is 0"),
    ],
    ids=["another-word", "no-validation", "one-evaluation"],
)
def test_a_best_checkpoint_that_nothing_decides_on_is_refused(
    given: dict[str, Any], flags: tuple[str, ...], named: str
) -> None:
    with pytest.raises(ConfigError, match=named):
        check(training(TensorDataset(torch.zeros(1)), **given), config(*flags))
    check(
        training(TensorDataset(torch.zeros(1)), validation=[1], score=max, keep_best="max"),
        config("--evaluate-every", "1"),
    )


@pytest.mark.parametrize("stages", [("Formatted", "Buffer"), ("Cycling", "Mapped", "Buffer"), ("Mapped",)])
def test_a_hugging_face_stream_with_a_shuffle_buffer_is_refused_by_name(stages: tuple[str, ...]) -> None:
    stage: Any = None
    for name in reversed(stages):
        fields = {"ex_iterables": [None, stage]} if name == "Cycling" else {"ex_iterable": stage}
        stage = type({"Buffer": "BufferShuffledExamplesIterable"}.get(name, f"{name}ExamplesIterable"), (), fields)()
    stream: Any = Unsized()
    stream._ex_iterable = stage
    if "Buffer" not in stages:
        return check(training(stream), CONFIG)
    with pytest.raises(ConfigError, match=r"Unsized, is a stream of Hugging Face .* buffer.*without streaming=True"):
        check(training(stream), CONFIG)


def test_a_one_cycle_schedule_shorter_than_the_job_is_refused_with_the_right_number() -> None:
    dataset = TensorDataset(torch.zeros(101))
    check(training(dataset, total_steps=22), CONFIG)
    with pytest.raises(ConfigError, match=r"OneCycleLR, has total_steps=21, and the job has 22 steps: .*config\.steps"):
        check(training(dataset, total_steps=21), CONFIG)


def test_more_inner_steps_than_an_epoch_has_are_refused() -> None:
    data = TensorDataset(torch.zeros(101))
    check(training(data), config("--sync-every", "11"))
    with pytest.raises(
        ConfigError, match=r"--sync-every is 12, and an epoch has 11 steps \(101 samples, --batch-size 10"
    ):
        check(training(data), config("--sync-every", "12"))


@pytest.mark.parametrize("stream", [Sized(), Unsized()])
def test_inner_steps_with_a_stream_are_refused(stream: Any) -> None:
    with pytest.raises(ConfigError, match=r"--sync-every is 4, and the training's dataset, \w+, is a stream"):
        check(training(stream), config("--sync-every", "4"))


def test_inner_steps_in_a_loop_of_the_scripts_own_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"--sync-every is 4, and the script has a loop of its own, or a library's"):
        check(training(TensorDataset(torch.zeros(101))), config("--sync-every", "4"), own_loop=True)
