"""Splits a training state into tensors and the rest, and joins them again, with equal values and types.

    parts = split(tree, take)                    # tree: dicts, lists, numbers, strings, tensors, arrays and others
    data = json.dumps(parts.outline)             # everything but the tensors, which it names
    tree = join(json.loads(data), tensors)       # tensors by name

States are sent to peers and written to checkpoints in this form, so both support the same values. It does not use
pickle, because data from a peer must not be able to run code. So a value of a class that this module doesn't know is
refused: restoring it would import that class.

``torch.distributed.checkpoint`` flattens a state into names such as ``optimizer.state.0.exp_avg``: numeric keys return
as strings, tuples as lists, and empty dicts not at all; everything except tensors is pickled. The outline keeps what
this loses. ``parts.public`` is the same state in a form that survives flattening. It is what
``torch.distributed.checkpoint`` gets, for people who load a checkpoint without this package.
"""

from __future__ import annotations

import base64
import io
import json
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from enum import Enum
from typing import Any

import numpy
import torch
from numpy.lib import format as npy
from torch import Tensor

from tidewater.elastic.errors import ConfigError, RecordError

Tree = Any
"""Values that ``split`` accepts, nested to any depth."""

Take = Callable[[str, Tensor], Tensor]


@dataclass(frozen=True)
class Parts:
    """A state in two forms that share their tensors."""

    outline: Any
    """To be written as JSON. What is no plain value is an object with one key, which names its type."""
    public: Any
    """All keys of dicts are strings, and containers of tensors are dicts and lists."""


_KEPT = (
    "a number, a string, bytes, None, a date or time, a tensor, an array or number of numpy, or a dict, list, tuple, "
    "set or deque of these"
)
_SIMPLE = {type(None), bool, float, str}
"""Most values of a state: they stay as they are."""
_SCALARS = "biufcSUmM"
"""The kinds of numpy's types that have a value of their own. Not objects, which are pointers."""
_MOST_BITS = 10_000
"""Of an integer. Python refuses to convert one with more than 4300 digits to text."""
_MAPPINGS: dict[type, str] = {dict: "dict", OrderedDict: "OrderedDict", Counter: "Counter", defaultdict: "defaultdict"}
_SEQUENCES: dict[type, str] = {list: "list", tuple: "tuple", torch.Size: "Size", deque: "deque"}
_SETS: dict[type, str] = {set: "set", frozenset: "frozenset"}
_FACTORIES: dict[str, Any] = {kind.__name__: kind for kind in (int, float, str, list, dict, set)}
"""What a ``defaultdict`` may call for a missing key."""
_TIMES: dict[str, type[date] | type[time]] = {"datetime": datetime, "date": date, "time": time}


def split(tree: Tree, take: Take) -> Parts:
    """Split a state. Raise ConfigError, which says what and where, if it contains something that can't be stored.

    Args:
        tree: The state. A value of a subclass of a number or string is restored as the plain type.
        take: Called with each tensor and its unique name; returns what to keep of it. An array is a tensor of bytes.
    """
    splitter = _Splitter(take)
    try:
        outline, public, _ = splitter.split(tree, ())
    except RecursionError as error:
        raise ConfigError("the state contains itself, or is nested too deep: make it flat") from error
    return Parts(outline, public)


Piece = tuple[Any, Any, bool]
"""The outline of a value, its public form, and whether it contains tensors."""


class _Splitter:
    """Splits one state."""

    def __init__(self, take: Take) -> None:
        self._take = take
        self._paths: dict[str, tuple[str, ...]] = {}
        """By name, the path that has it."""
        self._tensors: set[str] = set()

    def split(self, value: Any, path: tuple[str, ...]) -> Piece:
        """Return the piece for a value at a path."""
        kind = type(value)
        if isinstance(value, Tensor):
            return self._tensor("tensor", value, path)
        if kind is numpy.ndarray:
            return self._tensor("array", _bytes_of(value, path), path)
        if kind in _MAPPINGS:
            return self._mapping(_MAPPINGS[kind], value, path)
        if kind in _SEQUENCES:
            return self._sequence(_SEQUENCES[kind], value, path)
        if kind in _SETS:
            outline = _leaf(value, path)
            return outline, sorted(map(_shown, value), key=repr), False
        return _leaf(value, path), _shown(value), False

    def _tensor(self, kind: str, value: Tensor, path: tuple[str, ...]) -> Piece:
        name = self._named(path)
        if name in self._tensors:
            raise ConfigError(f"the state has two tensors called {name}: rename one")
        self._tensors.add(name)
        if value.layout is not torch.strided or value.is_nested or value.is_quantized or value.is_meta:
            raise ConfigError(f"the state has a {_odd(value)} tensor at {name}: make it a dense one")
        if value.is_conj() or value.is_neg():  # a view that conjugates or negates its memory when it is read
            value = value.resolve_conj().resolve_neg()
        return {kind: name}, self._take(name, value), True

    def _mapping(self, kind: str, value: Mapping[Any, Any], path: tuple[str, ...]) -> Piece:
        outline, public, tensors = [], {}, False
        for key, each in value.items():
            below = (*path, str(key))
            self._named(below)
            inner, shown, some = self.split(each, below)
            outline.append([_leaf(key, below, "the key"), inner])
            public[str(key)] = shown
            tensors = tensors or some
        return {kind: [_factory(value, path), outline] if kind == "defaultdict" else outline}, public, tensors

    def _sequence(self, kind: str, value: Any, path: tuple[str, ...]) -> Piece:
        pieces = [self.split(each, (*path, str(index))) for index, each in enumerate(value)]
        outline, shown = [inner for inner, _, _ in pieces], [shown for _, shown, _ in pieces]
        tensors = any(some for _, _, some in pieces)
        public = tuple(shown) if isinstance(value, tuple) and not tensors else shown
        return {kind: [value.maxlen, outline] if kind == "deque" else outline}, public, tensors

    def _named(self, path: tuple[str, ...]) -> str:
        name = ".".join(path)
        if self._paths.setdefault(name, path) != path:
            raise ConfigError(f"the state has two values called {name}: rename one")
        return name


def _odd(value: Tensor) -> str:
    kinds = {"nested": value.is_nested, "quantized": value.is_quantized, "meta": value.is_meta}
    return next((name for name, it_is in kinds.items() if it_is), str(value.layout))


def _bytes_of(value: Any, path: tuple[str, ...]) -> Tensor:
    """Return an array as numpy writes it to a file."""
    stream = io.BytesIO()
    try:
        npy.write_array(stream, value, allow_pickle=False)
    except ValueError as error:
        raise _refused(value, path, "of objects") from error
    return torch.frombuffer(bytearray(stream.getbuffer()), dtype=torch.uint8)


def _leaf(value: Any, path: tuple[str, ...], role: str = "") -> Any:
    """Return the outline of a value that is no container of tensors, such as the key of a dict."""
    kind = type(value)
    if kind in _SIMPLE:
        return value
    if isinstance(value, numpy.generic):
        if value.dtype.kind in _SCALARS:
            return {"number": [value.dtype.str, base64.b64encode(value.tobytes()).decode()]}
    elif value is None or (isinstance(value, bool | int | float | str) and not isinstance(value, Enum)):
        if not isinstance(value, int) or value.bit_length() <= _MOST_BITS:
            return _plain(value)
    elif kind is bytes:
        return {"bytes": base64.b64encode(value).decode()}
    elif kind is complex:
        return {"complex": [value.real, value.imag]}
    elif kind is tuple:
        return {"tuple": [_leaf(each, path, role) for each in value]}
    elif kind in _SETS:
        return {_SETS[kind]: sorted((_leaf(each, path, "a member") for each in value), key=json.dumps)}
    elif kind is timedelta:
        return {"timedelta": [value.days, value.seconds, value.microseconds]}
    elif _TIMES.get(kind.__name__) is kind and repr(kind.fromisoformat(value.isoformat())) == repr(value):
        return {kind.__name__: value.isoformat()}  # the text has neither a fold nor a place's time zone
    raise _refused(value, path, f"as {role}" if role else "")


def _refused(value: Any, path: tuple[str, ...], more: str) -> ConfigError:
    what = " ".join(filter(None, (f"{type(value).__module__}.{type(value).__qualname__}", more)))
    return ConfigError(f"the state has a {what} at {'.'.join(path)}, which can't be stored: make it {_KEPT}")


def _plain(value: Any) -> Any:
    if value is None or type(value) in (bool, int, float, str):
        return value
    if isinstance(value, int):
        return int(value)
    return float(value) if isinstance(value, float) else str.__str__(value)


def _shown(value: Any) -> Any:
    """Return the public form of a leaf: of what torch's safe loading doesn't know, a number or the text."""
    if type(value) in _SIMPLE:
        return value
    if isinstance(value, numpy.generic):
        value = value.item()
    if isinstance(value, bytes | complex):
        return value
    return _plain(value) if value is None or isinstance(value, bool | int | float | str) else str(value)


def _factory(value: Any, path: tuple[str, ...]) -> str | None:
    factory = value.default_factory
    name = None if factory is None else getattr(factory, "__name__", "")
    if name is not None and _FACTORIES.get(name) is not factory:
        raise ConfigError(
            f"the state has a defaultdict with the factory {factory!r} at {'.'.join(path)}, which can't be stored: "
            f"give it {', '.join(_FACTORIES)} or None, or make it a dict"
        )
    return name


def join(outline: Any, tensors: Mapping[str, Tensor]) -> Any:
    """Join a state. Raise RecordError if the outline is damaged or names a tensor that is missing."""
    if not isinstance(outline, dict):
        return outline
    try:
        ((kind, content),) = outline.items()
        if kind in _JOINED:
            return _JOINED[kind](content, tensors)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise RecordError(f"its outline is damaged at {str(outline)[:60]}") from error
    raise RecordError(f"its outline has a {kind!r}, which this code does not know")


Tensors = Mapping[str, Tensor]


def _pairs(content: Any, tensors: Tensors) -> dict[Any, Any]:
    return {join(key, tensors): join(value, tensors) for key, value in content}


def _all(content: Any, tensors: Tensors) -> list[Any]:
    return [join(value, tensors) for value in content]


def _defaultdict(content: Any, tensors: Tensors) -> defaultdict[Any, Any]:
    name, pairs = content
    return defaultdict(None if name is None else _FACTORIES[name], _pairs(pairs, tensors))


def _deque(content: Any, tensors: Tensors) -> deque[Any]:
    most, values = content
    return deque(_all(values, tensors), most)


def _array(content: Any, tensors: Tensors) -> Any:
    stream = io.BytesIO(tensors[content].numpy().tobytes())
    return npy.read_array(stream, allow_pickle=False)


def _number(content: Any, _: Tensors) -> Any:
    name, value = content
    dtype = numpy.dtype(str(name))
    if dtype.kind not in _SCALARS:  # the bytes of others would be used as addresses
        raise ValueError(f"{dtype} has no value of its own")
    return numpy.ndarray((), dtype, base64.b64decode(value, validate=True))[()]


def _time_of(kind: type[date] | type[time]) -> Callable[[Any, Tensors], Any]:
    return lambda content, _: kind.fromisoformat(content)


_JOINED: dict[str, Callable[[Any, Tensors], Any]] = {
    "dict": _pairs,
    "OrderedDict": lambda content, tensors: OrderedDict(_pairs(content, tensors)),
    "Counter": lambda content, tensors: Counter(_pairs(content, tensors)),
    "defaultdict": _defaultdict,
    "list": _all,
    "tuple": lambda content, tensors: tuple(_all(content, tensors)),
    "Size": lambda content, tensors: torch.Size(_all(content, tensors)),
    "deque": _deque,
    "set": lambda content, tensors: set(_all(content, tensors)),
    "frozenset": lambda content, tensors: frozenset(_all(content, tensors)),
    "tensor": lambda content, tensors: tensors[content],
    "array": _array,
    "number": _number,
    "bytes": lambda content, _: base64.b64decode(content, validate=True),
    "complex": lambda content, _: complex(*content),
    "timedelta": lambda content, _: timedelta(*content),
    **{name: _time_of(kind) for name, kind in _TIMES.items()},
}


def names(outline: Any) -> list[str]:
    """Return the names of the tensors in an outline."""
    if isinstance(outline, list):
        return [name for each in outline for name in names(each)]
    if isinstance(outline, dict):
        found = [outline[kind] for kind in ("tensor", "array") if kind in outline]
        return found or names(list(outline.values()))
    return []


def leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield what a tree contains, with the path to it, ordered by the names of the keys."""
    if isinstance(value, Mapping):
        for key in sorted(value, key=str):
            yield from leaves(value[key], f"{path}/{key}")
        yield f"{path}/", len(value)
    elif isinstance(value, list | tuple | deque):
        for index, each in enumerate(value):
            yield from leaves(each, f"{path}/{index}")
        yield f"{path}/", len(value)
    else:
        yield path, value
