"""A training state taken apart into tensors and the rest, and put together again, equal in values and types.

    parts = split(tree, take)                    # tree: nested dicts, lists, tuples, numbers, strings, bytes, tensors
    data = json.dumps(parts.outline)             # everything but the tensors, which it names
    tree = join(json.loads(data), tensors)       # tensors by name

So it goes to a peer and into a checkpoint alike: what can do the one can do the other. Not pickle: what a peer sends
must not be able to run code here. ``torch.distributed.checkpoint`` flattens a state into names such as
``optimizer.state.0.exp_avg``: keys that are numbers come back as strings, tuples as lists, and empty dicts not at all;
and what is no tensor is pickled. So the outline holds all that. ``parts.public`` is the same state in the form that
flattening does no harm to: it is what is given to ``torch.distributed.checkpoint``, for people who load a checkpoint
without this package.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from trainer.errors import ConfigError, RecordError

Tree = Any
"""A dict, list, tuple, number, string, bytes, None or Tensor; nested at will."""

Take = Callable[[str, Tensor], Tensor]


@dataclass(frozen=True)
class Parts:
    """A state in two forms that share the tensors."""

    outline: Any
    """To be dumped as JSON. Containers are objects with one key, which says what they are."""
    public: Any
    """Dicts have only strings as keys, and tuples with tensors in them are lists."""


def split(tree: Tree, take: Take) -> Parts:
    """Take a state apart. Raises ConfigError, saying what and where, when it holds something that can't be kept.

    Args:
        tree: the state. Values of a subclass, as numpy's float64 is of float, come back as the plain type.
        take: gets each tensor and its name, which no other has, and returns what is to be kept of it.
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
    """Outline, public form, and whether there are tensors in it."""
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
    raise ConfigError(f"the state has a {_type(value)} at {'.'.join(path)}, which can't be kept: make it {_KEPT}")


_KEPT = "a number, a string, bytes, None, a tensor, or a dict, list or tuple of these"


def _plain(value: Any) -> Any:
    if value is None or type(value) in (bool, int, float, str):
        return value
    if isinstance(value, int):
        return int(value)
    # Not str(value): an enumeration that is a string too would answer with its name.
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
    """Put a state together. Raises RecordError when the outline is not one, or names a tensor that isn't there."""
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
    """Names of the tensors in an outline."""
    if isinstance(outline, list):
        return [name for each in outline for name in names(each)]
    if isinstance(outline, dict):
        return [outline["tensor"]] if "tensor" in outline else names(list(outline.values()))
    return []
