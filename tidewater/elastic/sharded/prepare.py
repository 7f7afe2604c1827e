"""What is set in a model that ``fully_shard`` divides, and what is refused of it.

replica = divided(config, training, device)     # None if this process has the whole model
"""

from __future__ import annotations

import torch
from torch import nn

from tidewater.elastic.config import Config
from tidewater.elastic.errors import ConfigError
from tidewater.elastic.group.replica import Replica
from tidewater.elastic.sharding import is_divided, layers
from tidewater.elastic.training import Training

_WIDE = 4


def divided(config: Config, training: Training, device: torch.device) -> Replica | None:
    """Return the processes that divide the model, and let its gradients be sums over them; None for one process.

    The runtime weights losses itself, so nothing is to be divided by the number of processes.

    Raise ConfigError for a training that can't be trained so yet, also if one process divides the model with itself.
    """
    is_parted = is_divided(training.model.parameters())
    if config.shard > 1 or is_parted:
        _refuse(config, training, device)
    if is_parted:
        _sum_gradients(training.model)
    if config.shard == 1:
        return None
    return Replica.opened(config.index, config.shard, config.worker)


def _sum_gradients(model: nn.Module) -> None:
    for layer in layers(model):
        try:
            layer.set_gradient_divide_factor(1.0)
            layer.set_force_sum_reduction_for_comms(True)
        except AttributeError as error:
            raise ConfigError(
                f"torch {torch.__version__} can't sum the gradients of a model that fully_shard divides ({error}): "
                "use a newer one"
            ) from error


def _refuse(config: Config, training: Training, device: torch.device) -> None:
    given = f"--shard is {config.shard}, and" if config.shard > 1 else "fully_shard divides the model, and"
    several, narrow = config.shard > 1, (each.element_size() < _WIDE for each in training.model.parameters())
    problems = {
        "this worker has a GPU": device.type != "cpu",
        "the script is rehearsed": several and config.rehearsal is not None,
        "the model has parameters of less than 32 bits (use MixedPrecisionPolicy)": several and any(narrow),
    }
    for problem, is_there in problems.items():
        if is_there:
            raise ConfigError(f"{given} {problem}, which isn't supported together yet")
