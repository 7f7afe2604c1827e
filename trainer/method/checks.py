"""What a script's training must be like to be trained at all: checked before a worker joins.

check(training, config)     # raises ConfigError; more of it, about optimizers, in ``optimizers``
"""

from __future__ import annotations

from torch.optim.lr_scheduler import OneCycleLR
from torch.utils.data import IterableDataset

from trainer.config import Config
from trainer.errors import ConfigError
from trainer.method.optimizers import several
from trainer.training import Training


def check(training: Training, config: Config) -> None:
    """Raise ConfigError, which names the part of the training and the remedy, if the runtime can't train it."""
    dataset = training.dataset
    if isinstance(dataset, IterableDataset) or not (hasattr(dataset, "__len__") and hasattr(dataset, "__getitem__")):
        raise ConfigError(
            f"the training's dataset, {type(dataset).__name__}, has no length or no index: every sample is used "
            "exactly once per epoch at any number of workers, for which the runtime must choose samples by their "
            "index; give it __len__ and __getitem__, for example with a list of the records' places in their files"
        )
    for scheduler in several(training.scheduler):
        if isinstance(scheduler, OneCycleLR):
            steps = config.steps(len(dataset))
            if scheduler.total_steps < steps:
                raise ConfigError(
                    f"the training's scheduler, OneCycleLR, has total_steps={scheduler.total_steps}, and the job has "
                    f"{steps} steps: give it config.steps(len(dataset))"
                )
