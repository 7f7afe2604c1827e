"""What of torch's own parallelism a training may not have.

refuse_parallel(model, optimizers, shard=1)     # raises ConfigError

The runtime sums the gradients of workers that each have the whole model, over groups that it forms again when a worker
is lost. What sums in torch's default group would do it a second time, or wait for a lost process. A worker of several
processes may divide its model among these, with fully_shard.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import nn
from torch.optim import Optimizer

from tidewater.elastic.errors import ConfigError
from tidewater.elastic.sharding import is_sharded

_SUMMING = frozenset({"DataParallel", "DistributedDataParallel"})
_REPLICATING = frozenset({"DDP", "ReplicateModule"})
"""The classes that torch's ``replicate`` gives a module."""
_SHARDING = frozenset({"FSDPModule"})
_FORMER = frozenset({"FullyShardedDataParallel"})
_OPTIMIZERS = frozenset({"ZeroRedundancyOptimizer", "PostLocalSGDOptimizer", "DistributedOptimizer"})
_PACKAGES = ("torch.distributed.", "torch.nn.parallel.")
_HOW = "divide the whole model with fully_shard(model, mesh=config.mesh) and --shard P"


def refuse_parallel(model: nn.Module, optimizers: Sequence[Optimizer], shard: int = 1) -> None:
    """Raise ConfigError, which names the part and the remedy, if torch sums or divides a part of the training.

    It may be divided by ``fully_shard`` among the ``shard`` processes of this worker.
    """
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
        if _is(module, _FORMER):
            raise ConfigError(
                f"{part} is divided among processes with FullyShardedDataParallel, which Tidewater doesn't support: "
                f"{_HOW}, or leave it out"
            )
    sharded = any(_is(module, _SHARDING) for module in model.modules())
    if shard > 1 and not sharded:
        raise ConfigError(
            f"--shard is {shard}, and no layer of the training's model is divided with fully_shard: {_HOW}, or leave "
            "--shard out"
        )
    for name, parameter in model.named_parameters():
        _refuse_parameter(name, parameter, shard, sharded=sharded)
    for optimizer in optimizers:
        if _is(optimizer, _OPTIMIZERS):
            raise ConfigError(
                f"the training's optimizer is a {type(optimizer).__name__}, which divides or averages its work in "
                "torch's default group, and would wait there for a lost worker: give the optimizer that it wraps"
            )


def _refuse_parameter(name: str, parameter: Any, shard: int, *, sharded: bool) -> None:
    """Raise ConfigError if this parameter isn't divided as the others of its model are."""
    if not is_sharded(parameter):
        if sharded:
            raise ConfigError(
                f"{name} of the training's model isn't divided, and other parameters are: call fully_shard on the "
                "model itself, after its layers, without ignored_params"
            )
        return
    mesh, placements = parameter.device_mesh, parameter.placements
    if not sharded or mesh.ndim != 1 or not all(each.is_shard(0) for each in placements):
        raise ConfigError(
            f"{name} of the training's model is a DTensor, as tensor parallelism makes it (mesh of {mesh.ndim} "
            f"dimensions, {', '.join(map(str, placements))}), which Tidewater doesn't support: {_HOW}, and leave "
            "parallelize_module and distribute_tensor out"
        )
    if mesh.size() != shard:
        raise ConfigError(
            f"{name} of the training's model is divided among {mesh.size()} processes, and --shard is {shard}: {_HOW}"
        )


def _is(thing: object, names: frozenset[str]) -> bool:
    """Return whether it is of one of these classes of torch. By name: to import them takes seconds."""
    return any(each.__name__ in names and each.__module__.startswith(_PACKAGES) for each in type(thing).__mro__)
