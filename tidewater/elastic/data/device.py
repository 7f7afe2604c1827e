"""Batches of any kind: on the device that computes with them, and what they consist of."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Iterator, Mapping, MutableMapping, MutableSequence
from typing import Any

import numpy as np
import torch


def onto(value: Any, device: torch.device) -> Any:
    """Return the batch with its tensors on ``device``. Copies from pinned memory do not block.

    An object with a method ``to`` moves itself. Mappings, sequences and dataclasses are copied, with their type and
    attributes. Everything else is returned as it is.
    """
    if device.type == "cpu" or isinstance(value, str | bytes | bytearray | type):
        return value
    if isinstance(value, torch.Tensor):
        return value.to(device, non_blocking=True)
    if callable(getattr(type(value), "to", None)):  # before the rest: a tokenizer's encoding is a mapping, too
        return value.to(device)
    if isinstance(value, Mapping):
        return _replaced(value, {name: onto(entry, device) for name, entry in value.items()})
    if isinstance(value, tuple):
        entries = (onto(entry, device) for entry in value)
        return type(value)(*entries) if hasattr(value, "_fields") else type(value)(entries)
    if isinstance(value, MutableSequence):
        return _replaced(value, dict(enumerate(onto(entry, device) for entry in value)))
    if dataclasses.is_dataclass(value):
        clone = copy.copy(value)
        for field in dataclasses.fields(value):
            object.__setattr__(clone, field.name, onto(getattr(value, field.name), device))  # it may be frozen
        return clone
    return value


def leaves(value: Any) -> Iterator[Any]:
    """Yield what the mappings, sequences and dataclasses of a batch or sample contain, in their order."""
    if isinstance(value, Mapping):
        parts: Any = value.values()
    elif isinstance(value, tuple | MutableSequence) and not isinstance(value, bytearray):
        parts = value
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        parts = (getattr(value, field.name) for field in dataclasses.fields(value))
    else:
        yield value
        return
    for part in parts:
        yield from leaves(part)


def copied(value: Any) -> list[Any]:
    """Return the leaves, with memory of their own."""
    return [_copied(leaf) for leaf in leaves(value)]


def _copied(leaf: Any) -> Any:
    if isinstance(leaf, torch.Tensor):
        return leaf.detach().clone()
    return leaf.copy() if isinstance(leaf, np.ndarray) else leaf


def _replaced(value: Any, entries: dict[Any, Any]) -> Any:
    """Return a copy of a mapping or sequence with these entries, and with its other attributes."""
    if not isinstance(value, MutableMapping | MutableSequence):
        return type(value)(entries)
    clone = copy.copy(value)
    for place, entry in entries.items():
        clone[place] = entry
    return clone


def same(one: Any, other: Any) -> bool:
    """Return whether two samples have equal values, as far as their parts can be compared."""
    mine, theirs = [*leaves(one)], [*leaves(other)]
    return len(mine) == len(theirs) and all(map(_equal, mine, theirs))


def _equal(one: Any, other: Any) -> bool:
    if type(one) is not type(other):
        return False
    if isinstance(one, torch.Tensor):
        return one.layout is not torch.strided or (
            (one.dtype, one.shape) == (other.dtype, other.shape)
            and torch.equal(*(each.detach().contiguous().view(-1).view(torch.uint8) for each in (one, other)))
        )
    if isinstance(one, np.ndarray):
        same = (one.dtype, one.shape, one.tobytes()) == (other.dtype, other.shape, other.tobytes())
        return bool(one.dtype.hasobject) or same  # what an object array contains are addresses
    return not isinstance(one, int | float | str | bytes) or repr(one) == repr(other)  # NaN is equal to itself
