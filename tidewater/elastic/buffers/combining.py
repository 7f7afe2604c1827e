"""Combines the values that a buffer has on the ranks: pure functions, with one sum over the ranks between them.

    sums = all_reduce(encode(parts, share, device))     # of all ranks; in float64
    values = decode(sums, parts)

The rule depends on the type, and all that it needs is in one sum of float64:

* floats and complex numbers: the mean of the values, weighted by the ranks' shares of the samples. It is computed in
  float64, so a float of up to 32 bits that is equal on all ranks stays equal, bit for bit. It is a mean of values and
  not of differences: -inf on all ranks is -inf.
* integers: the value before plus the sum of all increments, exact in 64 bits. An increment is sent as two numbers of 32
  bits, and their sums are exact.
* the number of batches that a batch normalization has seen: the value before plus the mean of the increments. Without
  ``momentum`` the layer weights a new batch by 1 / this number, and averages one batch of each step. So the number
  counts the batches of one rank.
* bool: the value before, changed where any rank has changed it.

An integer or bool without a value before of this type and shape is that of the first rank that has samples.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum, auto

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase

_HALF, _LOW = 32, 2**32 - 1


class Rule(Enum):
    """How the values of the ranks are combined."""

    MEAN = auto()
    SUM = auto()
    BATCHES = auto()
    FLIP = auto()


@dataclass(frozen=True)
class Part:
    """One rank's part in the value of one buffer."""

    rule: Rule
    now: Tensor
    base: Tensor
    """The value before; zeros if it had another type or shape."""
    counts: bool = True
    """Whether this rank contributes, if it has samples. Of no importance for a mean."""


def rule_of(module: nn.Module, key: str, dtype: torch.dtype) -> Rule:
    """Return the rule for this buffer of the module."""
    if dtype.is_floating_point or dtype.is_complex:
        return Rule.MEAN
    if dtype is torch.bool:
        return Rule.FLIP
    return Rule.BATCHES if isinstance(module, _NormBase) and key == "num_batches_tracked" else Rule.SUM


def encode(parts: Sequence[Part], share: float) -> Tensor:
    """Return what a rank with this share of the samples adds to the sum."""
    return torch.cat([piece for rule, mine in _by_rule(parts) for piece in _ENCODERS[rule](mine, share)])


def decode(sums: Tensor, parts: Sequence[Part]) -> list[Tensor]:
    """Return the new values, in the order of the parts."""
    values: dict[int, Tensor] = {}
    for rule, mine in _by_rule(parts):
        sizes = [_reals(part.now) for part in mine]
        count = sum(sizes) * (2 if rule is Rule.SUM else 1)
        flat, sums = _DECODERS[rule](sums[:count]), sums[count:]
        dtype = mine[0].now.dtype
        if rule is Rule.MEAN and not dtype.is_complex and all(part.now.dtype is dtype for part in mine):
            flat = flat.to(dtype)  # at once: each call takes microseconds
        for part, piece in zip(mine, flat.split_with_sizes(sizes), strict=True):
            values[id(part)] = _value(part, piece)
    return [values[id(part)] for part in parts]


def _by_rule(parts: Sequence[Part]) -> list[tuple[Rule, list[Part]]]:
    groups = [(rule, [part for part in parts if part.rule is rule]) for rule in Rule]
    return [(rule, mine) for rule, mine in groups if mine]


def _value(part: Part, sums: Tensor) -> Tensor:
    """Return the value of a part: from means, from the total of increments, or from how many ranks differ."""
    base, shape, dtype = part.base, part.now.shape, part.now.dtype
    if part.rule is Rule.MEAN:
        if dtype.is_complex:
            sums = torch.complex(sums[0::2], sums[1::2])
        return sums.reshape(shape).to(dtype)
    if part.rule is Rule.FLIP:
        return base ^ (sums.reshape(shape) > 0)
    total = _long(base) + sums.reshape(shape)
    return total.view(dtype) if dtype is torch.uint64 else total.to(dtype)


def _means(parts: list[Part], share: float) -> list[Tensor]:
    values = _flat([torch.view_as_real(each.now) if each.now.is_complex() else each.now for each in parts])
    return [values.mul_(share) if share else values.zero_()]  # not by 0: that times inf is not a number


def _increments(parts: list[Part], share: float) -> list[Tensor]:
    changes = torch.cat([(_long(each.now) - _long(each.base)).reshape(-1) * each.counts for each in parts])
    changes *= bool(share)
    return [(changes & _LOW).double(), (changes >> _HALF).double()]


def _batches(parts: list[Part], share: float) -> list[Tensor]:
    return [_flat(list(torch._foreach_sub([each.now for each in parts], [each.base for each in parts]))).mul_(share)]


def _flips(parts: list[Part], share: float) -> list[Tensor]:
    return [_flat([(each.now ^ each.base) & (each.counts and bool(share)) for each in parts])]


_ENCODERS: dict[Rule, Callable[[list[Part], float], list[Tensor]]] = {
    Rule.MEAN: _means,
    Rule.SUM: _increments,
    Rule.BATCHES: _batches,
    Rule.FLIP: _flips,
}


def _whole(sums: Tensor) -> Tensor:
    low, high = sums.chunk(2)
    return (high.to(torch.int64) << _HALF) + low.to(torch.int64)


_DECODERS: dict[Rule, Callable[[Tensor], Tensor]] = {
    Rule.MEAN: lambda sums: sums,
    Rule.SUM: _whole,
    Rule.BATCHES: lambda sums: sums.round().to(torch.int64),
    Rule.FLIP: lambda sums: sums,
}


def _flat(tensors: list[Tensor]) -> Tensor:
    """Return the values in one new tensor of float64."""
    if len({each.dtype for each in tensors}) > 1:
        tensors = [each.double() for each in tensors]
    joined = torch.cat([each if each.dim() == 1 else each.reshape(-1) for each in tensors])
    return joined.to(torch.float64)


def _long(tensor: Tensor) -> Tensor:
    return tensor.view(torch.int64) if tensor.dtype is torch.uint64 else tensor.to(torch.int64)


def _reals(tensor: Tensor) -> int:
    return tensor.numel() * (2 if tensor.is_complex() else 1)
