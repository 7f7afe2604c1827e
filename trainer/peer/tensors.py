"""Tensors as bytes: what one must be told to make an empty one like it, and the memory that is to be filled.

    layouts = [Layout.of(tensor) for tensor in tensors]        # JSON, by ``to_json``
    tensors = [layout.empty() for layout in layouts]           # … whose bytes then arrive in ``memory(tensor)``

A tensor's memory format stays as it is, so that the optimizer of a model in channels-last stays in channels-last.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

_MOST_PIECES = 500
"""Of a chunk: the kernel takes 1024 buffers in one call."""


@dataclass(frozen=True)
class Layout:
    """All that is needed to make an empty tensor of the same kind on the CPU."""

    dtype: str
    size: tuple[int, ...]
    stride: tuple[int, ...]

    @classmethod
    def of(cls, tensor: torch.Tensor) -> Layout:
        """The layout in which ``memory`` presents a tensor."""
        stride = tensor.stride() if _is_dense(tensor) else torch.empty(tensor.shape, device="meta").stride()
        return cls(str(tensor.dtype).removeprefix("torch."), tuple(tensor.shape), tuple(stride))

    @classmethod
    def from_json(cls, fields: Sequence[Any]) -> Layout:
        """The inverse of ``to_json``."""
        dtype, size, stride = fields
        return cls(str(dtype), tuple(map(int, size)), tuple(map(int, stride)))

    def to_json(self) -> list[Any]:
        """As JSON takes it."""
        return [self.dtype, self.size, self.stride]

    def empty(self) -> torch.Tensor:
        """A tensor on the CPU whose values are not set yet. Raises ValueError if the type is not known."""
        dtype = getattr(torch, self.dtype, None)
        if not isinstance(dtype, torch.dtype):
            raise ValueError(f"torch {torch.__version__} knows no type {self.dtype!r}")
        return torch.empty_strided(self.size, self.stride, dtype=dtype)


def memory(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor's bytes in the order of its memory; a copy only if the tensor overlaps itself or has gaps."""
    dense = tensor.detach() if _is_dense(tensor) else tensor.detach().contiguous()
    return dense.as_strided((dense.numel(),), (1,)).view(torch.uint8)


def _is_dense(tensor: torch.Tensor) -> bool:
    # torch's own rule: where elements neither overlap nor leave gaps, an empty tensor like it has the same strides.
    return bool(torch.empty_like(tensor, device="meta").stride() == tensor.stride())


def chunks(sizes: Sequence[int], most: int) -> Iterator[list[tuple[int, int, int]]]:
    """Cut tensors of so many bytes into chunks of at most ``most`` bytes: lists of (tensor, from, to).

    Both ends cut alike, so nothing about it has to be sent. Small tensors share a chunk.
    """
    chunk: list[tuple[int, int, int]] = []
    room = most
    for index, size in enumerate(sizes):
        start = 0
        while start < size:
            end = min(start + room, size)
            chunk.append((index, start, end))
            room -= end - start
            start = end
            if not room or len(chunk) == _MOST_PIECES:
                yield chunk
                chunk, room = [], most
    if chunk:
        yield chunk
