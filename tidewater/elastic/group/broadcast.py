"""Copies tensors of one rank into those of others, over the group that was formed, in chunks.

    run(group, source, size, tensors)       # on all ranks; ``tensors`` is None on a rank that keeps its own

Each chunk is one collective, which ends early like a sum: with the group's time-out, an interruption, or a lost peer.
A chunk that is a part of one tensor on the group's device is sent from the tensor's memory and received into it. Small
tensors, the ends of large ones and tensors on other devices share chunks, which are gathered in buffers. A
rank that keeps its own tensors receives into these buffers only, so nothing that fails can change its tensors.

All chunks have the same size, but for the last one: so a rank that keeps its own tensors needs to know only the size of
all. The last one ends with a checksum of all chunks and of the generation's unique number.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from tidewater.elastic.errors import GroupBroken
from tidewater.elastic.group.group import Group
from tidewater.elastic.peer import drift
from tidewater.elastic.peer.outline import is_dense

CHUNK, GPU_CHUNK = 1 << 20, 4 << 20
"""Bytes, multiples of 8, as the checksum is fastest for whole words. On a CPU a chunk is still in the processor's cache
when it is checked; with 8 MiB the same state takes more than twice as long. On a GPU each chunk costs launches."""
_AHEAD = 8
"""Chunks in flight, so that the network does not wait while one is gathered or checked."""
_TRAILER = 8
_MOST_UUID = 2**63

Piece = tuple[int, int, int]
"""Number of a tensor, and the range of its bytes."""


def size_of(tensors: Sequence[torch.Tensor]) -> int:
    """Return the size of the tensors' content in bytes."""
    return sum(map(_bytes, tensors))


def run(
    group: Group,
    source: int,
    size: int,
    tensors: Sequence[torch.Tensor] | None,
    check: Callable[[], None] = lambda: None,
) -> None:
    """Copy the source's tensors into those of the other ranks. Collective.

    Args:
        group: It is abandoned if anything fails.
        source: The rank that has the values.
        size: What the source's ``size_of`` returns.
        tensors: On the source, what is sent. On a rank that receives, tensors of the same sizes and strides, which are
            dense; they are undefined after a failure. None on a rank that keeps its own.
        check: Called between chunks; gives up by raising.

    Raise GroupBroken on failure, interruption or time-out, and if what has arrived is not what was sent.
    """
    lane = _Lane(group, source, size, tensors)
    try:
        for index in range(size // lane.most + 1):
            if len(lane.in_flight) == _AHEAD:
                lane.land()
                check()
            lane.start(index)
        while lane.in_flight:
            lane.land()
        lane.verify()
    except BaseException as error:
        group.abandon([chunk.work for chunk in lane.in_flight], f"the state did not arrive: {error}")
        raise


@dataclass(frozen=True)
class _Chunk:
    """A chunk that has begun."""

    work: Any
    data: torch.Tensor
    """The last chunk's ends with the checksum."""
    length: int
    """Without the checksum."""
    parts: Sequence[torch.Tensor]
    """What has to be filled from the data."""


class _Lane:
    """One rank's part in one broadcast."""

    def __init__(self, group: Group, source: int, size: int, tensors: Sequence[torch.Tensor] | None) -> None:
        self._group, self._source, self._size = group, source, size
        self._sends, self._keeps = group.rank == source, tensors is None
        self._tensors = tensors or ()
        self.most = CHUNK if group.device.type == "cpu" else GPU_CHUNK
        chunks = split([_bytes(tensor) for tensor in self._tensors], self.most)
        self._chunks = itertools.chain(chunks, itertools.repeat([]))
        longest = min(self.most, size) + _TRAILER
        self._buffers = [torch.empty(longest, dtype=torch.uint8, device=group.device) for _ in range(_AHEAD)]
        self._open = (-1, torch.empty(0))
        self._sums = [torch.tensor(group.uuid % _MOST_UUID, device=group.device)]
        self._received = torch.zeros((), dtype=torch.int64)
        self.in_flight: deque[_Chunk] = deque()

    def start(self, index: int) -> None:
        """Begin with the next chunk."""
        parts = [self._memory(number)[first:end] for number, first, end in next(self._chunks)]
        length = min(self.most, self._size - index * self.most)
        last = length < self.most
        if not last and len(parts) == 1 and parts[0].device == self._group.device:
            data, parts = parts[0], []
        else:
            data = self._buffers[index % _AHEAD][: length + _TRAILER * last]
        if self._sends:
            _gather(data[:length], parts)
            self._sums.append(drift.words(data[:length]))
            if last:
                data[length:] = self._sum().view(1).view(torch.uint8)
        self.in_flight.append(_Chunk(self._group.broadcast(data, self._source), data, length, parts))

    def land(self) -> None:
        """Wait until the first chunk in flight has arrived, and use it."""
        chunk = self.in_flight[0]
        self._group.complete([chunk.work])
        self.in_flight.popleft()
        if not self._sends and not self._keeps:
            self._sums.append(drift.words(chunk.data[: chunk.length]))
            _scatter(chunk.data[: chunk.length], chunk.parts)
            self._received = chunk.data[chunk.length :].clone()

    def verify(self) -> None:
        """Raise GroupBroken if what has arrived does not match its checksum."""
        if not self._sends and not self._keeps and not torch.equal(self._received.view(torch.int64)[0], self._sum()):
            raise GroupBroken("the state that arrived does not match its checksum")

    def _sum(self) -> torch.Tensor:
        return drift.combined(self._sums, self._group.device)

    def _memory(self, number: int) -> torch.Tensor:
        """Return the memory of a tensor. One is open at a time, so that at most one copy exists."""
        if self._open[0] != number:
            self._open = number, memory(self._tensors[number])
        return self._open[1]


def memory(tensor: torch.Tensor) -> torch.Tensor:
    """Return the tensor's bytes in the order of its memory. It is a copy only if the tensor overlaps or has gaps."""
    dense = tensor.detach() if is_dense(tensor) else tensor.detach().contiguous()
    return dense.as_strided((dense.numel(),), (1,)).view(torch.uint8)


def split(sizes: Sequence[int], most: int) -> Iterator[list[Piece]]:
    """Yield chunks of exactly ``most`` bytes of tensors of these sizes, and one of the rest.

    At first those that are a part of one tensor, then what is left of all tensors.
    """
    for index, size in enumerate(sizes):
        for start in range(0, size - size % most, most):
            yield [(index, start, start + most)]
    chunk: list[Piece] = []
    room = most
    for index, size in enumerate(sizes):
        start = size - size % most
        while start < size:
            end = min(start + room, size)
            chunk.append((index, start, end))
            room -= end - start
            start = end
            if not room:
                yield chunk
                chunk, room = [], most
    if chunk:
        yield chunk


def _bytes(tensor: torch.Tensor) -> int:
    return tensor.numel() * tensor.element_size()


def _gather(data: torch.Tensor, parts: Sequence[torch.Tensor]) -> None:
    """Copy the parts into the chunk, where it is not a part itself."""
    if parts:
        near = _near(data, parts)
        torch._foreach_copy_(near.split_with_sizes([len(part) for part in parts]), list(parts))
        if near is not data:
            data.copy_(near)


def _scatter(data: torch.Tensor, parts: Sequence[torch.Tensor]) -> None:
    """Copy the chunk into the parts, where it is not a part itself."""
    if parts:
        near = _near(data, parts)
        if near is not data:
            near.copy_(data)
        torch._foreach_copy_(list(parts), near.split_with_sizes([len(part) for part in parts]))


def _near(data: torch.Tensor, parts: Sequence[torch.Tensor]) -> torch.Tensor:
    """Return the chunk, or memory of its size on the CPU, from which parts on other devices are copied at once."""
    return data if all(part.device == data.device for part in parts) else torch.empty_like(data, device="cpu")
