"""What is set in a model that ``fully_shard`` divides, and what is refused of it.

replica = divided(config, training, device)     # None if this process has the whole model
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from tidewater.elastic.config import Config
from tidewater.elastic.data.stream import is_stream
from tidewater.elastic.errors import ConfigError
from tidewater.elastic.group.replica import Replica
from tidewater.elastic.method.optimizers import several
from tidewater.elastic.training import Training

_WIDE = 4


def divided(config: Config, training: Training, device: torch.device) -> Replica | None:
    """Return the processes that divide the model, and let its gradients be sums over them; None for one process.

    The runtime weights losses itself, so nothing is to be divided by the number of processes.

    Raise ConfigError for a training that can't be trained so yet.
    """
    _sum_gradients(training.model)
    if config.shard == 1:
        return None
    _refuse(config, training, device)
    return Replica.opened(config.index, config.shard, config.worker)


def _sum_gradients(model: nn.Module) -> None:
    for module in model.modules():
        set_factor: Any = getattr(module, "set_gradient_divide_factor", None)
        if set_factor is not None:
            set_factor(1.0)
            set_force: Any = module.set_force_sum_reduction_for_comms
            set_force(True)


def _refuse(config: Config, training: Training, device: torch.device) -> None:
    given = f"--shard is {config.shard}, and"
    yet = "which isn't supported together yet"
    problems = {
        "this worker has a GPU": device.type != "cpu",
        "the training has validation data": training.validation is not None,
        f"the training's dataset, {type(training.dataset).__name__}, is a stream": is_stream(training.dataset),
        f"--data-workers is {config.data_workers}": config.data_workers > 0,
        "the script is rehearsed": config.rehearsal is not None,
        "the training's optimizer evaluates other values than it trains": any(
            hasattr(each, "train") and hasattr(each, "eval") for each in several(training.optimizer)
        ),
        "the model has parameters of less than 32 bits (use MixedPrecisionPolicy)": any(
            each.element_size() < _WIDE for each in training.model.parameters()
        ),
    }
    for problem, is_there in problems.items():
        if is_there:
            raise ConfigError(f"{given} {problem}, {yet}")
