"""Tensors of a model that ``fully_shard`` divides among the processes of a worker.

local(parameter)                # this process's part, which shares its memory; any other tensor as it is
like(part, parameter)           # the DTensor that has this part
part_of(whole, parameter)       # this process's part of a whole tensor, as a checkpoint has it
whole(value)                    # the whole tensor, from all processes: a collective call

What is handed over, compared and summed is the part of each process; a checkpoint has whole tensors, so that it can be
read with any number of processes. By attributes, not by the class: to import it takes half a second.
"""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import nn

from tidewater.elastic.errors import ConfigError


def is_sharded(value: object) -> bool:
    """Return whether it is divided among processes."""
    return isinstance(value, torch.Tensor) and hasattr(value, "_local_tensor")


def layers(model: nn.Module) -> list[Any]:
    """Return the modules that ``fully_shard`` was called for."""
    return [each for each in model.modules() if hasattr(each, "unshard") and hasattr(each, "reshard")]


def reshard(model: nn.Module) -> None:
    """Let its parameters be the divided ones again: after passes without a backward pass, some are whole."""
    for layer in layers(model):
        layer.reshard()


def is_divided(parameters: Iterable[nn.Parameter]) -> bool:
    """Return whether any of these parameters is divided."""
    return any(map(is_sharded, parameters))


def local(value: Any) -> Any:
    """Return this process's part of a divided tensor; anything else as it is."""
    return value._local_tensor if is_sharded(value) else value


def like(part: torch.Tensor, model: Any) -> Any:
    """Return the divided tensor of the same kind as ``model`` that has this part, in the same memory."""
    kind: Any = type(model)
    return kind.from_local(
        part, model.device_mesh, model.placements, run_check=False, shape=model.shape, stride=model.stride()
    )


def part_of(value: torch.Tensor, model: Any) -> torch.Tensor:
    """Return this process's part of a whole tensor, as it has one of ``model``: a copy of some of the rows.

    An optimizer keeps what it loads, and with a view it would keep the whole tensor.
    """
    mesh = model.device_mesh
    parts = value.chunk(mesh.size())
    index = mesh.get_local_rank()
    return (parts[index] if index < len(parts) else value[:0]).clone()


def whole(value: Any) -> Any:
    """Return the whole of a divided tensor, on the CPU. Of the processes only the first keeps it, others get nothing.

    A collective call of the processes of a worker. Anything else is returned as it is.
    """
    if not is_sharded(value):
        return value
    found = value.full_tensor().detach()
    return found.cpu() if value.device_mesh.get_local_rank() == 0 else found.new_empty(0)


def copied(value: Any) -> Any:
    """Return a copy of a value; of a divided tensor ``whole``."""
    if is_sharded(value) and value.device_mesh.size() > 1:
        return whole(value)
    return copy.deepcopy(whole(value))  # the whole of the only part is that part


def fill(parameter: nn.Parameter, value: torch.Tensor) -> None:
    """Copy a whole tensor into a parameter; into a divided one, this process's part of it."""
    local(parameter).copy_(part_of(value, parameter) if is_sharded(parameter) else value)


def formed(values: Any, form: Callable[[Any], Any]) -> Any:
    """Return what an optimizer keeps of a parameter, with its tensors in another form. Numbers, such as steps, stay."""
    if not isinstance(values, dict):
        return values
    is_of_it = {name: isinstance(value, torch.Tensor) and value.dim() > 0 for name, value in values.items()}
    return {name: form(value) if is_of_it[name] else value for name, value in values.items()}


def joined(values: Any, parameter: torch.Tensor) -> Any:
    """Return what an optimizer keeps of a parameter, from this process's parts of it."""
    return formed(values, lambda part: like(part, parameter)) if is_sharded(parameter) else values


def divided(optimizer: torch.optim.Optimizer, stored: Mapping[Any, Any]) -> dict[Any, Any]:
    """Return what an optimizer keeps of all parameters, in this process's parts, from whole tensors."""
    parameters = dict(enumerate(each for settings in optimizer.param_groups for each in settings["params"]))

    def part(key: Any, values: Any) -> Any:
        parameter = parameters.get(key)
        return formed(values, lambda value: part_of(value, parameter)) if is_sharded(parameter) else values

    return {key: part(key, values) for key, values in stored.items()}


def placed(values: Mapping[str, Any], model: nn.Module, part: Callable[[Any, Any], Any]) -> dict[str, Any]:
    """Return what ``load_state_dict`` gets. ``part(value, mine)`` is this process's part of a value."""
    mine = model.state_dict()
    return {
        name: like(part(value, mine[name]), mine[name]) if is_sharded(mine[name]) else value
        for name, value in values.items()
    }


def shaped(value: Any, form: Callable[[Any], Any]) -> Any:
    """Return nested containers with their divided tensors in another form. A container without any is the same one."""
    if is_sharded(value):
        return form(value)
    found = [(key, each, shaped(each, form)) for key, each in _items(value)]
    return _changed(value, {key: new for key, each, new in found if new is not each})


def unshaped(value: Any, mine: Any, part: Callable[[Any, Any], Any]) -> Any:
    """Return the inverse: divided tensors where the containers ``mine`` have them. ``part``: see ``placed``."""
    if is_sharded(mine):
        return like(part(value, mine), mine)
    own = dict(_items(mine))
    found = [(key, each, unshaped(each, own[key], part)) for key, each in _items(value) if key in own]
    return _changed(value, {key: new for key, each, new in found if new is not each})


def _items(value: Any) -> Iterable[tuple[Any, Any]]:
    if isinstance(value, Mapping):
        return value.items()
    return enumerate(value) if isinstance(value, list | tuple | deque) else ()


def _changed(value: Any, changes: Mapping[Any, Any]) -> Any:
    """Return a copy of a container with other values at some of its keys or places; itself without any."""
    if not changes:
        return value
    copied: Any = list(value) if isinstance(value, tuple) else copy.copy(value)
    for key, new in changes.items():
        copied[key] = new
    return tuple(copied) if isinstance(value, tuple) else copied


def refuse_state(names: Mapping[int, str], optimizer: torch.optim.Optimizer) -> None:
    """Raise ConfigError if the optimizer keeps a tensor of a divided parameter that isn't divided like it."""
    for parameter, values in optimizer.state.items():
        if not is_sharded(parameter):
            continue
        for name, value in values.items() if isinstance(values, dict) else ():
            if isinstance(value, torch.Tensor) and value.dim() and not _alike(value, parameter):
                raise ConfigError(
                    f"{type(optimizer).__name__} keeps a tensor {name} of shape {tuple(value.shape)} for the parameter "
                    f"{names.get(id(parameter), '')}, which fully_shard divides: use an optimizer that keeps tensors "
                    "of the parameter's shape, such as AdamW or SGD"
                )


def _alike(value: Any, parameter: Any) -> bool:
    return is_sharded(value) and value.shape == parameter.shape and value.placements == parameter.placements
