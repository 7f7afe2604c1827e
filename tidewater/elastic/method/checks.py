"""What a script's training must be like to be trained at all: checked before a worker joins.

check(training, config)     # raises ConfigError; more of it, about optimizers, in ``optimizers``
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn
from torch.nn.parameter import is_lazy
from torch.optim.lr_scheduler import OneCycleLR
from torch.utils.data import DataLoader

from tidewater.elastic.config import Config
from tidewater.elastic.data.stream import is_stream, length
from tidewater.elastic.errors import ConfigError
from tidewater.elastic.method.optimizers import plateaus, several
from tidewater.elastic.method.parallel import refuse_parallel
from tidewater.elastic.training import Training, constant


def check(training: Training, config: Config, *, own_loop: bool = False) -> None:
    """Raise ConfigError, which names the part of the training and the remedy, if the runtime can't train it.

    With ``own_loop``, the script may validate by itself.
    """
    refuse_parallel(training.model, several(training.optimizer), config.shard)
    _check_model(training.model)
    dataset = training.dataset
    for part in ("dataset", "validation"):
        _check_loader(getattr(training, part), f"the training's {part} ")
        _check_splits(getattr(training, part), f"the training's {part}")
    if is_stream(dataset):
        _check_stream(training, config)
    elif not is_indexed(dataset):
        raise ConfigError(
            f"the training's dataset, {type(dataset).__name__}, has no length or no index: every sample is used "
            "exactly once per epoch at any number of workers, for which the runtime must choose samples by their "
            "index; give it __len__ and __getitem__, for example with a list of the records' places in their files"
        )
    elif not length(dataset):
        raise ConfigError(
            f"the training's dataset, {type(dataset).__name__}, is empty: look at the path that it reads, and at "
            "what it selects"
        )
    if training.validation is not None and not is_indexed(training.validation):
        raise ConfigError(
            f"the training's validation, {type(training.validation).__name__}, has no length or no index, by which the "
            "workers divide it: give it __len__ and __getitem__"
        )
    if not own_loop:
        refuse_unmeasured(training)
    _check_best(training, config)
    if config.sync_every:
        _check_sync_every(training, config.sync_every, config.batch_size, own_loop=own_loop)
    if plateaus(several(training.scheduler)) and not config.evaluate_every:
        raise ConfigError(
            "the training's scheduler is a ReduceLROnPlateau, which is stepped with the score of each evaluation, and "
            "--evaluate-every is 0, so that there is one evaluation, at the end: give --evaluate-every 1, for example"
        )
    for scheduler in several(training.scheduler):
        if isinstance(scheduler, OneCycleLR):
            samples = length(dataset)
            steps = config.max_steps if samples is None else config.steps(samples)
            if scheduler.total_steps < steps:
                raise ConfigError(
                    f"the training's scheduler, OneCycleLR, has total_steps={scheduler.total_steps}, and the job has "
                    f"{steps} steps: give it {'config.max_steps' if samples is None else 'config.steps(len(dataset))'}"
                )


def refuse_unmeasured(training: Training) -> None:
    """Raise ConfigError if there are validation data and nothing measures the model with them."""
    if training.validation is not None and training.score is None:
        raise ConfigError(
            "the training has validation but no score, so nothing would be evaluated: give it score(model, batch), "
            "which returns the sum over the batch, or leave validation out; a loop of your own can use it in "
            "run.validation(), in a loop over run.epochs()"
        )


def _check_best(training: Training, config: Config) -> None:
    given = f"the training's keep_best is {training.keep_best!r}"
    if training.keep_best not in ("", "max", "min"):
        raise ConfigError(f'{given}: give "max" if the highest score is the best, and "min" if the lowest is')
    if training.keep_best and (training.validation is None or training.score is None):
        raise ConfigError(f"{given}, and nothing is evaluated: give validation and score")
    if training.keep_best and not config.evaluate_every:
        raise ConfigError(
            f"{given}, and --evaluate-every is 0, so that there is one evaluation, at the end: give "
            "--evaluate-every 1, for example"
        )


def _check_sync_every(training: Training, every: int, batch_size: int, *, own_loop: bool) -> None:
    given = f"--sync-every is {every}"
    if own_loop:
        raise ConfigError(
            f"{given}, and the script has a loop of its own, or a library's, which makes one step with each batch: use "
            "tidewater.run(training), or leave --sync-every out"
        )
    samples = length(training.dataset)
    if is_stream(training.dataset) or samples is None:
        raise ConfigError(
            f"{given}, and the training's dataset, {type(training.dataset).__name__}, is a stream, which can't "
            "be divided into inner steps: give a dataset with an index, or leave --sync-every out"
        )
    steps = math.ceil(samples / batch_size)
    if every > steps:
        raise ConfigError(
            f"{given}, and an epoch has {steps} steps ({samples} samples, --batch-size {batch_size}): give at most that"
        )


def _check_model(model: nn.Module) -> None:
    for name, value in (*model.named_parameters(), *model.named_buffers()):
        if is_lazy(value):
            raise ConfigError(
                f"{name} of the training's model is not initialized, since it is of a lazy module: pass one batch "
                "through the model before you build the optimizer"
            )
    if torch.get_default_dtype() not in (torch.float32, torch.float64):
        raise ConfigError(
            f"the script has called torch.set_default_dtype({torch.get_default_dtype()}), in which numbers of the "
            "training itself would be rounded: use --amp bf16, or model.to() with that type"
        )


def is_indexed(dataset: object) -> bool:
    """Return whether the dataset has a length and samples with numbers."""
    sized = hasattr(dataset, "__len__") and hasattr(dataset, "__getitem__")
    return sized and not is_stream(dataset) and not _has_splits(dataset)


def _has_splits(data: object) -> bool:
    """Return whether it is a mapping of datasets, such as Hugging Face's DatasetDict; it has a length and an index."""
    return isinstance(data, Mapping) and bool(data) and 0 not in data


def _check_splits(data: Any, name: str) -> None:
    if _has_splits(data):
        keys = list(data)
        raise ConfigError(
            f"{name} is a {type(data).__name__} with the keys {', '.join(map(repr, keys))}, and samples have numbers: "
            f"give one of the datasets in it, for example that of {keys[0]!r}"
        )


def _check_loader(data: Any, name: str) -> None:
    """Refuse a DataLoader, except torchdata's stateful one with the samples of a stream."""
    if not isinstance(data, DataLoader):
        return
    if is_indexed(data.dataset):
        raise ConfigError(
            f"{name}is a {type(data).__name__} of a dataset with an index: give that dataset, and the loader's "
            "collate_fn as collate. The runtime makes the batches, of --batch-size samples in an order of its own in "
            "each epoch, with --data-workers processes"
        )
    if not hasattr(data, "state_dict"):
        raise ConfigError(
            f"{name}is a DataLoader, which can't continue in the middle of a stream: give its dataset, with "
            "state_dict and load_state_dict, or torchdata's StatefulDataLoader with batch_size=None"
        )
    if data.batch_size is not None:
        raise ConfigError(
            f"{name}has batch_size={data.batch_size}, and the runtime divides the samples of each step among the "
            "workers: give it batch_size=None and --batch-size, and its collate_fn as the training's collate"
        )
    if data.num_workers:
        raise ConfigError(
            f"{name}has num_workers={data.num_workers}: one process must read a stream in its order, and no process "
            "may be forked while workers are connected; use num_workers=0 (the stream may have threads of its own)"
        )


def _check_stream(training: Training, config: Config) -> None:
    name = f"the training's dataset, {type(training.dataset).__name__}, is a stream"
    missing = [each for each in ("state_dict", "load_state_dict") if not hasattr(training.dataset, each)]
    if missing:
        raise ConfigError(
            f"{name} without {' and '.join(missing)}: workers that join, repeat a step or resume must continue in the "
            "middle of it; give it both (if its iterator has them, wrap it in torchdata's StatefulDataLoader with "
            "batch_size=None), or __len__ and __getitem__ instead of __iter__"
        )
    if _has_a_buffer(training.dataset):
        raise ConfigError(
            f"{name} of Hugging Face that shuffle() has given a buffer, which is not in its state_dict(): samples "
            "would be lost when workers join, repeat a step or resume. Leave shuffle() out and shuffle the files, or "
            "load the dataset without streaming=True; then it has an index, and the runtime shuffles it"
        )
    if config.bad_samples == "skip":
        raise ConfigError(f"{name}, and --bad-samples is skip: a stream ends with an error, so catch it in __iter__")
    if config.data_workers:
        raise ConfigError(
            f"{name}, and --data-workers is {config.data_workers}: one process must read a stream in its order, so "
            "use --data-workers 0 (the stream may have threads of its own)"
        )
    scheduled = training.schedule is not constant
    one_cycle = any(isinstance(each, OneCycleLR) for each in several(training.scheduler))
    if (scheduled or one_cycle) and length(training.dataset) is None and not config.max_steps:
        raise ConfigError(
            f"{name} without a length, and the training's {'schedule' if scheduled else 'scheduler, OneCycleLR,'} "
            "depends on how much of the training is done: give --max-steps, or the dataset __len__"
        )


def _has_a_buffer(stream: Any) -> bool:
    """Return whether a Hugging Face stream draws from a shuffle buffer in one of its stages.

    https://huggingface.co/docs/datasets/stream: "examples from shuffle buffers are lost when resuming"
    """
    stages = [getattr(stream.dataset if isinstance(stream, DataLoader) else stream, "_ex_iterable", None)]
    while stages:
        stage = stages.pop()
        if type(stage).__name__ == "BufferShuffledExamplesIterable":
            return True
        stages += [each for each in (getattr(stage, "ex_iterable", None), *getattr(stage, "ex_iterables", ())) if each]
    return False
