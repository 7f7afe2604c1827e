"""What of torch's own parallelism a training may not have.

refuse_parallel(model, optimizers)      # raises ConfigError

The runtime sums the gradients of workers that each have the whole model, over groups that it forms again when a worker
is lost. What sums or divides the model in torch's default group would do it a second time, or wait for a lost process.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import nn
from torch.optim import Optimizer

from tidewater.elastic.errors import ConfigError

_SUMMING = frozenset({"DataParallel", "DistributedDataParallel"})
_REPLICATING = frozenset({"DDP", "ReplicateModule"})
"""The classes that torch's ``replicate`` gives a module."""
_SHARDING = frozenset({"FullyShardedDataParallel", "FSDPModule"})
_OPTIMIZERS = frozenset({"ZeroRedundancyOptimizer", "PostLocalSGDOptimizer", "DistributedOptimizer"})
_PACKAGES = ("torch.distributed.", "torch.nn.parallel.")
_WHOLE = "each worker has the whole model, and a model that doesn't fit into one GPU can't be trained"


def refuse_parallel(model: nn.Module, optimizers: Sequence[Optimizer]) -> None:
    """Raise ConfigError, which names the part and the remedy, if torch sums or divides a part of the training."""
    for name, module in model.named_modules():
        part = f"the layer {name} of the training's model" if name else "the training's model"
        if _is(module, _SUMMING):
            inner = f"model.{name}.module" if name else "model.module"
            raise ConfigError(
                f"{part} is a {type(module).__name__}, which would sum the gradients a second time: give the model in "
                f"it, {inner}"
            )
        if _is(module, _REPLICATING):  # some of these are an FSDPModule, too
            raise ConfigError(
                f"{part} is summed over processes with replicate, and the runtime would sum the gradients a second "
                "time. Leave replicate out"
            )
        if _is(module, _SHARDING):
            raise ConfigError(
                f"{part} is divided among processes with {_said(module)}, which Tidewater doesn't support: {_WHOLE}. "
                f"Leave {_said(module)} out; memory is saved by --amp bf16, --micro-batch and activation checkpointing"
            )
    for name, parameter in model.named_parameters():
        if _is(parameter, frozenset({"DTensor"})):
            raise ConfigError(
                f"{name} of the training's model is a DTensor, as tensor parallelism makes it, which Tidewater doesn't "
                f"support: {_WHOLE}. Leave parallelize_module and distribute_tensor out"
            )
    for optimizer in optimizers:
        if _is(optimizer, _OPTIMIZERS):
            raise ConfigError(
                f"the training's optimizer is a {type(optimizer).__name__}, which divides or averages its work in "
                "torch's default group, and would wait there for a lost worker: give the optimizer that it wraps"
            )


def _is(thing: object, names: frozenset[str]) -> bool:
    """Return whether it is of one of these classes of torch. By name: to import them takes seconds."""
    return any(each.__name__ in names and each.__module__.startswith(_PACKAGES) for each in type(thing).__mro__)


def _said(module: nn.Module) -> str:
    """Return what a script has called to shard this module."""
    return "fully_shard" if _is(module, frozenset({"FSDPModule"})) else "FullyShardedDataParallel"
