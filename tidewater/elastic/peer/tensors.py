"""Tensors as bytes: the description from which an empty tensor of the same kind is created, and its memory.

    layouts = [Layout.of(tensor) for tensor in tensors]        # JSON, by ``to_json``
    tensors = [layout.empty() for layout in layouts]           # … their bytes are then written to ``memory(tensor)``

The memory format of a tensor is kept, so that the optimizer state of a channels-last model stays channels-last.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

_MOST_PIECES = 500
"""Maximum number of parts in a chunk: the kernel accepts 1024 buffers in one call."""


@dataclass(frozen=True)
class Layout:
    """What is needed to create an empty tensor of the same kind on the CPU."""

    dtype: str
    size: tuple[int, ...]
    stride: tuple[int, ...]

    @classmethod
    def of(cls, tensor: torch.Tensor) -> Layout:
        """Return the layout in which ``memory`` presents a tensor."""
        stride = tensor.stride() if _is_dense(tensor) else torch.empty(tensor.shape, device="meta").stride()
        return cls(str(tensor.dtype).removeprefix("torch."), tuple(tensor.shape), tuple(stride))

    @classmethod
    def from_json(cls, fields: Sequence[Any]) -> Layout:
        """Return the inverse of ``to_json``."""
        dtype, size, stride = fields
        return cls(str(dtype), tuple(map(int, size)), tuple(map(int, stride)))

    def to_json(self) -> list[Any]:
        """Return the layout as values for JSON."""
        return [self.dtype, self.size, self.stride]

    def empty(self) -> torch.Tensor:
        """Return an uninitialised tensor on the CPU. Raise ValueError if the type is unknown."""
        dtype = getattr(torch, self.dtype, None)
        if not isinstance(dtype, torch.dtype):
            raise ValueError(f"torch {torch.__version__} knows no type {self.dtype!r}")
        return torch.empty_strided(self.size, self.stride, dtype=dtype)


def memory(tensor: torch.Tensor) -> torch.Tensor:
    """Return the tensor's bytes in the order of its memory. It is a copy only if the tensor overlaps or has gaps."""
    dense = tensor.detach() if _is_dense(tensor) else tensor.detach().contiguous()
    return dense.as_strided((dense.numel(),), (1,)).view(torch.uint8)


def _is_dense(tensor: torch.Tensor) -> bool:
    # torch's own rule: if elements neither overlap nor leave gaps, empty_like has the same strides.
    return bool(torch.empty_like(tensor, device="meta").stride() == tensor.stride())


def chunks(sizes: Sequence[int], most: int) -> Iterator[list[tuple[int, int, int]]]:
    """Yield chunks of at most ``most`` bytes of tensors of these sizes: lists of (tensor, from, to).

    Both ends compute the same chunks, so they need not be sent. Small tensors share a chunk.
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
