"""What of a LightningModule and of its loader can't be used: ConfigError with a sentence, before the worker joins."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.core.optimizer import _MockOptimizer
from lightning.pytorch.utilities.model_helpers import is_overridden
from lightning.pytorch.utilities.signature_utils import is_param_in_hook_signature
from torch.utils.data import BatchSampler, DataLoader, IterableDataset, RandomSampler, SequentialSampler

from tidewater import ConfigError


def refuse_model(module: Any, optimizers: Sequence[Any]) -> None:
    """Raise ConfigError if the module optimizes in a way of its own."""
    name = type(module).__name__
    if not module.automatic_optimization:
        raise ConfigError(
            f"{name} has automatic_optimization = False: the runtime must make each step as a whole, to repeat it when "
            "a worker is lost; use automatic optimization, or a loop of your own with tidewater.session"
        )
    if len(optimizers) != 1 or isinstance(optimizers[0], _MockOptimizer):
        raise ConfigError(f"configure_optimizers of {name} has to return one optimizer: no more, and not None")
    if is_overridden("backward", module):
        raise ConfigError(f"{name} has a backward(): the runtime makes the backward pass, so leave it out")
    if is_param_in_hook_signature(module.training_step, "dataloader_iter", explicit=True):
        raise ConfigError(f"training_step of {name} has dataloader_iter: give it batch, which the runtime provides")


def refuse_loader(loader: Any) -> None:
    """Raise ConfigError if the loader chooses samples in a way that the runtime can't take over."""
    what = f"the train loader, {type(loader).__name__},"
    if not isinstance(loader, DataLoader):
        raise ConfigError(f"{what} is no DataLoader: give one DataLoader of a dataset with a length and an index")
    if isinstance(loader.dataset, IterableDataset):
        raise ConfigError(
            f"{what} has an IterableDataset, and the runtime chooses samples by their index: give a dataset with a "
            "length and an index, or use a loop of your own with tidewater.session, which takes streams"
        )
    dataset: Any = loader.dataset
    if loader.batch_size is None and loader.batch_sampler is None:
        raise ConfigError(f"{what} has batch_size=None: give it the number of samples of a step, of all workers")
    kind, sampler = type(loader.batch_sampler), loader.sampler
    if kind is not BatchSampler or type(sampler) not in (RandomSampler, SequentialSampler):
        odd = kind.__name__ if kind is not BatchSampler else type(sampler).__name__
        raise ConfigError(
            f"{what} has a {odd}: the runtime chooses the samples, each once per epoch, shuffled: leave it out, and "
            "select or repeat samples in the dataset"
        )
    if isinstance(sampler, RandomSampler) and (sampler.replacement or sampler.num_samples != len(dataset)):
        raise ConfigError(f"{what} draws samples with replacement or another number: each is used once per epoch")
    if loader.drop_last:
        raise ConfigError(f"{what} has drop_last=True: every sample is used once per epoch, so leave it out")
    if loader.worker_init_fn is not None:
        raise ConfigError(f"{what} has a worker_init_fn: the runtime starts the processes; do it in the dataset")


def refuse_clocks(callbacks: Iterable[Any]) -> None:
    """Raise ConfigError if a ModelCheckpoint saves by the time of its worker."""
    if any(isinstance(each, ModelCheckpoint) and each._train_time_interval is not None for each in callbacks):
        raise ConfigError(
            "ModelCheckpoint has a train_time_interval, and the workers' clocks differ: give it every_n_train_steps or "
            "every_n_epochs"
        )


def refuse_own_metrics(user: str, trainer: Any, monitors: Iterable[str | None]) -> None:
    """Raise ConfigError if one of the metrics that ``user`` decides with has a value that validation hasn't logged."""
    present = trainer.callback_metrics
    validated = {each.meta.name for each in trainer.fit_loop.epoch_loop.val_loop._results.values()}
    for monitor in monitors:
        if (
            monitor
            and monitor in present
            and monitor.removesuffix("_epoch").split("/dataloader_idx")[0] not in validated
        ):
            raise ConfigError(
                f"{user} uses {monitor!r}, which validation_step has not logged: another metric is that of one "
                "worker's samples, and the workers would decide differently; use a metric that validation_step logs, "
                "after validation"
            )
