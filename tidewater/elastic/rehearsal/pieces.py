"""The whole state of a training, and what is no state, as names with values to compare.

    pieces(state, training)     # {"model/fc.weight": "float32[4, 8] 1f0c…", "stateful/ema/steps": "12", …}
    sketches(state)             # {"model/fc.weight": Sketch(…), …}: how far two tensors are from each other

The first part of a name says what it is: see ``pieces``. Equal values have equal texts in all processes.
"""

from __future__ import annotations

import hashlib
import math
import random
import types
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from tidewater.contract.rehearsal import Sketch
from tidewater.elastic.compiled import plain
from tidewater.elastic.method.optimizers import several
from tidewater.elastic.rehearsal.variables import LIBRARIES, referred
from tidewater.elastic.session.state import State
from tidewater.elastic.training import Training

_PLAIN = (bool, int, float, complex, str, bytes, type(None))
_TREE = ("model", "buffers", "optimizers", "schedulers", "scaler", "stateful", "stopped")
_LONGEST_TEXT = 40
_MOST_DEPTH = 6
_MOST_ITEMS = 1000
"""A longer container is described by its length: it is data."""
_MOST_NUMBERS = 1 << 24
"""The same for a tensor that is no state."""
_SUMS = 16
_SIGNS = 8191  # a prime number
_OF_TORCH = frozenset(vars(nn.Module())) | {"state", "param_groups", "defaults", "optimizer"}
_GENERATORS: dict[type, Callable[[Any], object]] = {
    torch.Generator: lambda generator: generator.get_state().numpy().tobytes(),
    np.random.Generator: lambda generator: generator.bit_generator.state,
    np.random.RandomState: lambda generator: generator.get_state(legacy=True),
    random.Random: lambda generator: generator.getstate(),
}


def pieces(state: State, training: Training) -> dict[str, str]:
    """Return everything that may differ between two workers, by name.

    model, buffers, optimizers, schedulers, scaler, stateful, cursor: what a newcomer gets, by its path in the tree.
    mode, requires_grad, attribute: of the model's modules.
    optimizer, scheduler, object: attributes of these (the last of the stateful objects), beyond their ``state_dict``.
    variable: what the functions of the training refer to, directly or through functions of the script: ``variables``.
    """
    whole, known = state.whole(), _known(training)
    found = {path: _text(value) for path, value in _leaves({name: whole[name] for name in _TREE}, "")}
    found |= {"cursor": repr([state.cursor.epoch, state.cursor.offset]), "step": str(state.step)}
    found |= dict(described(state.cursor.stream, "cursor/stream", frozenset()))
    for name, parameter in training.model.named_parameters():
        found[f"requires_grad/{plain(name)}"] = str(parameter.requires_grad)
    for name, module in training.model.named_modules():
        found[f"mode/{plain(name)}"] = "train" if module.training else "eval"
        found |= _attributes(f"attribute/{plain(f'{name}.').lstrip('.')}", module, known)
    for index, thing in enumerate(several(training.optimizer)):
        found |= _attributes(f"optimizer/{index}.", thing, known)
    for index, thing in enumerate(several(training.scheduler)):
        found |= _attributes(f"scheduler/{index}.", thing, known, besides=whole["schedulers"][index])
    for name, thing in training.stateful.items():
        found |= _attributes(f"object/{name}.", thing, known, besides=whole["stateful"][name])
    return found | _variables(training, known)


def sketches(state: State) -> dict[str, Sketch]:
    """Return a sketch of each tensor and floating-point number of the tree, by the name that ``pieces`` has."""
    whole = state.whole()
    leaves = _leaves({name: whole[name] for name in _TREE}, "")
    return {
        path: sketch(value if isinstance(value, torch.Tensor) else torch.tensor(value, dtype=torch.float64))
        for path, value in leaves
        if isinstance(value, torch.Tensor | float)
    }


def sketch(tensor: torch.Tensor) -> Sketch:
    """Return sums over parts of a tensor.

    Signs make the expected square of a difference of two sums the sum of squares of the differences (Alon, Matias and
    Szegedy, 1996). A tensor of few numbers is its own sketch.
    """
    value = tensor.detach().cpu()
    value = torch.view_as_real(value.resolve_conj()) if value.is_complex() else value
    epsilon = torch.finfo(value.dtype).eps if value.is_floating_point() else 0.0
    flat = value.to(torch.float64).nan_to_num(0.0, 0.0, 0.0).reshape(-1)
    rows = nn.functional.pad(flat, (0, -flat.numel() % _SUMS)).view(-1, _SUMS)
    signs = _signs().repeat(-(-len(rows) // _SIGNS) or 1)[: len(rows)]
    return Sketch(float(flat.norm()), epsilon, tuple((rows * signs[:, None]).sum(0).tolist()))


def digest(value: object) -> str:
    """Return a digest of bytes, or of what ``repr`` returns."""
    return hashlib.sha256(value if isinstance(value, bytes) else repr(value).encode()).hexdigest()[:12]


def _signs() -> torch.Tensor:
    generator = np.random.RandomState(0)
    return torch.from_numpy(generator.choice([-1.0, 1.0], _SIGNS))


def _leaves(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    """Yield what a tree contains, with the path to it."""
    if isinstance(value, Mapping):
        for key in sorted(value, key=str):
            yield from _leaves(value[key], f"{path}/{key}" if path else str(key))
    elif isinstance(value, list | tuple | deque):
        for index, each in enumerate(value):
            yield from _leaves(each, f"{path}/{index}")
        yield f"{path}/", len(value)
    else:
        yield path, value


def _text(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        data = value.detach().cpu().resolve_conj().resolve_neg().contiguous().view(-1)
        if data.numel() == 1 and not data.is_complex():
            return f"{str(data.dtype).removeprefix('torch.')} {data.item()!r}"
        shape = f"{str(data.dtype).removeprefix('torch.')}{list(value.shape)}"
        return f"{shape} {digest(data.view(torch.uint8).numpy().tobytes())}"
    if isinstance(value, np.ndarray):
        return f"{value.dtype}{list(value.shape)} {digest(value.tobytes())}"
    if isinstance(value, set | frozenset):
        value = sorted(value, key=repr)
    text = repr(value)
    return text if len(text) <= _LONGEST_TEXT else f"{type(value).__name__} {digest(text)}"


def _attributes(prefix: str, thing: Any, known: frozenset[int], besides: Any = ()) -> dict[str, str]:
    """Return the attributes of an object, without those that torch has given it, and those in ``besides``."""
    found: dict[str, str] = {}
    for key, value in getattr(thing, "__dict__", {}).items():
        private = isinstance(thing, Optimizer | LRScheduler) and key.startswith("_")
        if key not in _OF_TORCH and not private and key not in besides:
            found |= dict(described(value, f"{prefix}{key}", known))
    return found


def described(value: Any, path: str, skipped: frozenset[int], depth: int = 0) -> Iterator[tuple[str, str]]:
    """Yield the values in any object of a script. Modules of Python, functions and classes have none.

    Args:
        value: The object.
        path: What the names of the values begin with.
        skipped: The ids of objects to leave out.
        depth: How deep in another object it is.
    """
    if id(value) in skipped or depth > _MOST_DEPTH:
        return
    inner = skipped if isinstance(value, _PLAIN) else skipped | {id(value)}
    if isinstance(value, torch.Tensor | np.ndarray):
        numbers = math.prod(value.shape)
        yield path, _text(value) if numbers <= _MOST_NUMBERS else f"tensor of {numbers}"
    elif isinstance(value, (np.generic, set, frozenset, *_PLAIN)):
        yield path, _text(value)
    elif generator := next((state(value) for kind, state in _GENERATORS.items() if isinstance(value, kind)), None):
        yield path, f"generator {digest(generator)}"
    elif isinstance(value, nn.Module):
        yield from described(value.state_dict(), path, inner, depth + 1)
    elif isinstance(value, Mapping | list | tuple | deque):
        yield f"{path} (length)", str(len(value))
        items = value.items() if isinstance(value, Mapping) else enumerate(value)
        for key, each in items if len(value) <= _MOST_ITEMS else ():
            yield from described(each, f"{path}[{key!r}]", inner, depth + 1)
    elif _is_the_scripts(value):
        for key, each in vars(value).items():
            yield from described(each, f"{path}.{key}", inner, depth + 1)


def _is_the_scripts(value: Any) -> bool:
    """Return whether a value is an object of a class that a script defines."""
    known = isinstance(value, type | types.ModuleType | types.FunctionType)
    return hasattr(value, "__dict__") and not known and type(value).__module__.partition(".")[0] not in LIBRARIES


def _known(training: Training) -> frozenset[int]:
    """Return the ids of objects that are state already, or data."""
    things = [training, training.model, training.dataset, training.validation, *training.stateful.values()]
    things += [*several(training.optimizer), *several(training.scheduler)]
    things += [*training.model.modules(), *training.model.parameters(), *training.model.buffers()]
    return frozenset(map(id, things)) - {id(None)}


def _variables(training: Training, known: frozenset[int]) -> dict[str, str]:
    """Return what the script's functions refer to, and what isn't state already."""
    objects = (getattr(thing, "__dict__", {}).values() for thing in training.stateful.values())
    known |= {id(each) for values in objects for each in values if not isinstance(each, _PLAIN)}
    found: dict[str, str] = {}
    hooks = (training.on_step, training.before_step, training.on_evaluation, training.schedule)
    for function in (training.loss, training.score, training.collate, *hooks):
        for name, value in referred(function):
            found |= dict(described(value, f"variable/{name}", known))
    return found
