"""Splits a training state into tensors and the rest, and joins them again, with equal values and types.

    parts = split(tree, take)                    # tree: nested dicts, lists, tuples, numbers, strings, bytes, tensors
    data = json.dumps(parts.outline)             # everything but the tensors, which it names
    tree = join(json.loads(data), tensors)       # tensors by name

States are sent to peers and written to checkpoints in this form, so both support the same values. It does not use
pickle, because data from a peer must not be able to run code.

``torch.distributed.checkpoint`` flattens a state into names such as ``optimizer.state.0.exp_avg``: numeric keys return
as strings, tuples as lists, and empty dicts not at all; everything except tensors is pickled. The outline keeps what
this loses. ``parts.public`` is the same state in a form that survives flattening. It is what
``torch.distributed.checkpoint`` gets, for people who load a checkpoint without this package.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from tidewater.elastic.errors import ConfigError, RecordError

Tree = Any
"""A dict, list, tuple, number, string, bytes, None or Tensor, nested to any depth."""

Take = Callable[[str, Tensor], Tensor]


@dataclass(frozen=True)
class Parts:
    """A state in two forms that share their tensors."""

    outline: Any
    """To be written as JSON. A container is an object with one key, which names its type."""
    public: Any
    """All keys of dicts are strings, and tuples that contain tensors are lists."""


def split(tree: Tree, take: Take) -> Parts:
    """Split a state. Raise ConfigError, which says what and where, if it contains something that can't be stored.

    Args:
        tree: The state. A value of a subclass (numpy's float64 is one of float) is restored as the plain type.
        take: Called with each tensor and its unique name; returns what to keep of it.
    """
    seen: set[str] = set()

    def take_once(name: str, tensor: Tensor) -> Tensor:
        if name in seen:
            raise ConfigError(f"the state has two tensors called {name}: rename one")
        if tensor.layout is not torch.strided:
            raise ConfigError(f"the state has a {tensor.layout} tensor at {name}: make it a dense one")
        seen.add(name)
        return take(name, tensor)

    outline, public, _ = _split(tree, (), take_once)
    return Parts(outline, public)


def _split(value: Any, path: tuple[str, ...], take: Take) -> tuple[Any, Any, bool]:
    """Return the outline, the public form, and whether it contains tensors."""
    if isinstance(value, Tensor):
        name = ".".join(path)
        return {"tensor": name}, take(name, value), True
    if value is None or isinstance(value, bool | int | float | str):
        plain = _plain(value)
        return plain, plain, False
    if isinstance(value, Mapping):
        outline, public, tensors = [], {}, False
        for key, each in value.items():
            below = (*path, str(key))
            inner, shown, some = _split(each, below, take)
            outline.append([_key(key, below), inner])
            public[str(key)] = shown
            tensors = tensors or some
        return {"dict": outline}, public, tensors
    if isinstance(value, list | tuple):
        parts = [_split(each, (*path, str(index)), take) for index, each in enumerate(value)]
        kind, tensors = "tuple" if isinstance(value, tuple) else "list", any(some for _, _, some in parts)
        shown_all = [shown for _, shown, _ in parts]
        return (
            {kind: [inner for inner, _, _ in parts]},
            tuple(shown_all) if kind == "tuple" and not tensors else shown_all,
            tensors,
        )
    if isinstance(value, bytes):
        return {"bytes": base64.b64encode(value).decode()}, bytes(value), False
    raise ConfigError(f"the state has a {_type(value)} at {'.'.join(path)}, which can't be stored: make it {_KEPT}")


_KEPT = "a number, a string, bytes, None, a tensor, or a dict, list or tuple of these"


def _plain(value: Any) -> Any:
    if value is None or type(value) in (bool, int, float, str):
        return value
    if isinstance(value, int):
        return int(value)
    # Not str(value): an enumeration that is also a string would return its name.
    return float(value) if isinstance(value, float) else str.__str__(value)


def _key(key: Any, path: tuple[str, ...]) -> Any:
    if isinstance(key, tuple):
        return {"tuple": [_key(each, path) for each in key]}
    if key is None or isinstance(key, bool | int | float | str):
        return _plain(key)
    raise ConfigError(f"the state has a {_type(key)} as the key at {'.'.join(path)}: make it a number or a string")


def _type(value: Any) -> str:
    return f"{type(value).__module__}.{type(value).__qualname__}"


def join(outline: Any, tensors: Mapping[str, Tensor]) -> Any:
    """Join a state. Raise RecordError if the outline is damaged or names a tensor that is missing."""
    if not isinstance(outline, dict):
        return outline
    try:
        ((kind, content),) = outline.items()
        if kind == "dict":
            return {join(key, tensors): join(value, tensors) for key, value in content}
        if kind == "list":
            return [join(value, tensors) for value in content]
        if kind == "tuple":
            return tuple(join(value, tensors) for value in content)
        if kind == "bytes":
            return base64.b64decode(content, validate=True)
        if kind == "tensor":
            return tensors[content]
    except (ValueError, TypeError, KeyError) as error:
        raise RecordError(f"its outline is damaged at {str(outline)[:60]}") from error
    raise RecordError(f"its outline has a {kind!r}, which this code does not know")


def names(outline: Any) -> list[str]:
    """Return the names of the tensors in an outline."""
    if isinstance(outline, list):
        return [name for each in outline for name in names(each)]
    if isinstance(outline, dict):
        return [outline["tensor"]] if "tensor" in outline else names(list(outline.values()))
    return []
