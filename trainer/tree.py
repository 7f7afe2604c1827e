"""The state as a tree of plain values and tensors, taken apart into JSON and bytes, and put together again.

    structure, tensors = take_apart({"step": 3, "model": model.state_dict()})
    layouts = [Layout.of(tensor) for tensor in tensors]        # structure and layouts are JSON
    tensors = [layout.empty() for layout in layouts]           # … whose bytes then arrive in ``memory(tensor)``
    tree = put_together(structure, tensors)

Not pickle: what a peer sends must not be able to run code here. Not ``torch.save``: it makes one large copy.
A tensor's memory format stays as it is, so that the optimizer of a model in channels-last stays in channels-last.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from trainer.errors import ConfigError

Tree = Any
"""A dict (keys: str or int), list, tuple, int, float, bool, str, None or Tensor; nested at will."""

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


def take_apart(tree: Tree) -> tuple[Any, list[torch.Tensor]]:
    """What JSON can hold, and the tensors in the order in which it refers to them.

    Raises ConfigError that names the place of anything that can't travel.
    """
    tensors: list[torch.Tensor] = []
    return _take_apart(tree, "state", tensors), tensors


def _take_apart(tree: Tree, place: str, tensors: list[torch.Tensor]) -> Any:
    if isinstance(tree, torch.Tensor) and tree.layout is torch.strided:
        tensors.append(tree.detach())
        return {"tensor": len(tensors) - 1}
    if isinstance(tree, dict):
        for key in tree:
            if not isinstance(key, str | int):
                raise ConfigError(f"{place} has the key {key!r}: only strings and whole numbers can be sent to a peer")
        return {"dict": [[key, _take_apart(value, f"{place}.{key}", tensors)] for key, value in tree.items()]}
    if isinstance(tree, list | tuple):
        values = [_take_apart(value, f"{place}[{index}]", tensors) for index, value in enumerate(tree)]
        return {"list" if isinstance(tree, list) else "tuple": values}
    if tree is None or isinstance(tree, bool | int | float | str):
        return tree
    raise ConfigError(
        f"{place} is {type(tree).__module__}.{type(tree).__qualname__}, which can't be sent to a peer: let state_dict "
        "return dicts, lists, tuples, numbers, strings, None and (dense) tensors only"
    )


def put_together(structure: Any, tensors: Sequence[torch.Tensor]) -> Tree:
    """The inverse of ``take_apart``. Raises ValueError if ``structure`` is not of its making."""
    if not isinstance(structure, dict):
        return structure
    ((kind, content),) = structure.items()
    if kind == "tensor":
        return tensors[content]
    if kind == "dict":
        return {key: put_together(value, tensors) for key, value in content}
    if kind in ("list", "tuple"):
        values = [put_together(value, tensors) for value in content]
        return values if kind == "list" else tuple(values)
    raise ValueError(f"{kind!r} is nothing that a state is made of")


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
