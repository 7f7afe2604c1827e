"""What a script iterates over after ``prepare``."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import islice
from typing import Any

from torch.utils.data import BatchSampler, DataLoader, IterableDataset, RandomSampler

from tidewater import ConfigError
from tidewater_accelerate.job import Job


def trains(loader: DataLoader[Any]) -> bool:
    """Return whether training is over this loader: it shuffles, or its dataset is a stream."""
    return isinstance(loader.dataset, IterableDataset) or isinstance(loader.sampler, RandomSampler)


def refuse(loader: DataLoader[Any]) -> None:
    """Raise ConfigError if the loader that trains asks for what the job can't do."""
    if loader.batch_size is None or type(loader.batch_sampler) not in (BatchSampler, type(None)):
        raise ConfigError(
            "the DataLoader that trains has a batch_sampler of its own or no batch_size, and the runtime divides each "
            "batch among the workers: give it batch_size and shuffle=True"
        )
    if isinstance(loader.sampler, RandomSampler) and (
        loader.sampler.replacement or loader.sampler.num_samples != len(loader.sampler.data_source)
    ):
        raise ConfigError(
            "the DataLoader that trains has a RandomSampler with replacement or num_samples, and in an epoch every "
            "sample counts once: give it shuffle=True"
        )


class TrainLoader:
    """The batches of one epoch of the job for each iteration: this worker's part of them."""

    def __init__(self, loader: DataLoader[Any], job: Job) -> None:
        refuse(loader)
        self._loader, self._job = loader, job

    def __iter__(self) -> Iterator[Any]:
        return self._job.batches()

    def __len__(self) -> int:
        """The batches of an epoch in one process that trains alone; the last one may be smaller."""
        samples: Any = self._loader.dataset
        return math.ceil(len(samples) / self.batch_size)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    @property
    def batch_size(self) -> int:
        """The number of samples of a batch, over all workers."""
        assert self._loader.batch_size is not None
        return self._loader.batch_size

    @property
    def total_batch_size(self) -> int:
        """The same: a batch is divided among the workers."""
        return self.batch_size

    def set_epoch(self, epoch: int) -> None:
        """Do nothing: the order depends on the job's epoch and seed."""


class EvalLoader:
    """All batches, in every worker; in an epoch that this worker has missed only the first one."""

    def __init__(self, loader: Any, job: Job) -> None:
        self._loader, self._job = loader, job

    def __iter__(self) -> Iterator[Any]:
        return islice(self._loader, 1) if self._job.is_passed else iter(self._loader)

    def __len__(self) -> int:
        return len(self._loader)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)
