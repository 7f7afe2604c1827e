"""Sends a tree of values and tensors through a socket, as a stream of chunks with checksums.

    send(connection, parcel, standing)         # parcel = Parcel.of(tree)
    tree = receive(connection, check)

Neither side makes a copy of the whole state: tensors are sent from their memory and received into their final memory.
Tensors on a GPU go through two page-locked buffers of one chunk each; one is filled while the other is sent.

The stream is a sequence of frames (kind, length of the body, its CRC-32). ``WAIT`` means that the sender is alive but
has nothing to send yet. ``DENY`` means that the state can't be sent, and says why. ``TREE`` contains the structure as
JSON; the chunks of the tensors follow, each with its CRC-32. ``DONE`` means that the state did not change during the
transfer. Only a receiver that got ``DONE`` has the state.
"""

from __future__ import annotations

import contextlib
import json
import socket
import struct
import time
import zlib
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from typing import Any

import torch

from tidewater.elastic.errors import ConfigError, RecordError
from tidewater.elastic.tree import Tree, join, split

SLICE_SECONDS = 0.1
"""Interval at which a receiver checks whether to continue."""

_CHUNK = 1 << 20
"""Bytes. Small enough to be still in the processor's cache when it is sent after the checksum is computed."""
_FRAME = struct.Struct("!4sQI")
_SUM = struct.Struct("!I")
_WAIT, _DENY, _TREE, _DONE = b"WAIT", b"DENY", b"TREE", b"DONE"
_MOST_JSON = 1 << 28
_MOST_BUFFERS = 64
_MOST_PIECES = 500
"""Maximum number of parts in a chunk: the kernel accepts 1024 buffers in one call."""


@dataclass(frozen=True)
class Parcel:
    """A tree that is ready to be sent."""

    header: bytes
    tensors: tuple[torch.Tensor, ...]

    @classmethod
    def of(cls, tree: Tree) -> Parcel:
        """Return the parcel, without copying tensors. Raise ConfigError if the tree can't be sent."""
        tensors: dict[str, torch.Tensor] = {}
        outline = split(tree, lambda name, tensor: tensors.setdefault(name, tensor.detach())).outline
        header = {"tree": outline, "tensors": {name: Layout.of(each).to_json() for name, each in tensors.items()}}
        for device in {tensor.device for tensor in tensors.values() if tensor.is_cuda}:
            torch.cuda.synchronize(device)  # pending computations must be finished before another thread reads
        text = json.dumps(header).encode()
        if len(text) > _MOST_JSON:
            raise ConfigError(
                f"the state without its tensors has {len(text) >> 20} MiB as JSON, and {_MOST_JSON >> 20} MiB can be "
                "sent: make long lists of numbers a tensor or an array of numpy"
            )
        return cls(text, tuple(tensors.values()))


def send_wait(connection: socket.socket) -> None:
    """Tell the receiver that the sender is alive."""
    connection.sendall(_FRAME.pack(_WAIT, 0, 0))


def send_refusal(connection: socket.socket, reason: str) -> None:
    """Tell the receiver why it can't have the state."""
    text = reason.encode()
    connection.sendall(_FRAME.pack(_DENY, len(text), zlib.crc32(text)) + text)


def send(connection: socket.socket, parcel: Parcel, standing: Callable[[], bool]) -> None:
    """Send everything; ``DONE`` only if ``standing()`` is true after the last read. Raise OSError."""
    connection.sendall(_FRAME.pack(_TREE, len(parcel.header), zlib.crc32(parcel.header)))
    connection.sendall(parcel.header)
    for views in _in_host_memory(parcel.tensors):
        _pass([*views, memoryview(_SUM.pack(_checksum(views)))], connection.sendmsg)
    if not standing():
        raise OSError("the state has changed while it was sent")
    connection.sendall(_FRAME.pack(_DONE, 0, 0))


def receive(connection: socket.socket, check: Callable[[], None], stall_seconds: float) -> Tree:
    """Return the tree that the peer sends, with tensors on the CPU.

    ``check`` is called every SLICE_SECONDS and may raise to stop. Raise OSError if the connection breaks, if nothing
    arrives for ``stall_seconds``, or if a checksum does not match. Raise ConfigError if the peer can't send the state,
    and RecordError if what it has sent can't be read: another attempt would give the same.
    """
    reader = _Reader(connection, check, stall_seconds)
    kind, length, checksum = _WAIT, 0, 0
    while kind == _WAIT:
        kind, length, checksum = _FRAME.unpack(reader.take(_FRAME.size))
    if kind not in (_DENY, _TREE) or length > _MOST_JSON:
        raise OSError(f"the peer sent {kind!r} of {length} bytes where the state should begin")
    text = reader.take(length)
    if zlib.crc32(text) != checksum:
        raise OSError("the state's structure does not match its checksum")
    if kind == _DENY:
        raise ConfigError(text.decode())
    try:
        header = json.loads(text)
        tensors = {name: Layout.from_json(fields).empty() for name, fields in header["tensors"].items()}
    except (ValueError, KeyError, TypeError) as error:
        raise RecordError(f"the state of a peer can't be read: {error}") from error
    _fill(reader, list(tensors.values()))
    if _FRAME.unpack(reader.take(_FRAME.size))[0] != _DONE:
        raise OSError("the peer did not confirm the state")
    return join(header["tree"], tensors)


def _fill(reader: _Reader, tensors: list[torch.Tensor]) -> None:
    memories = [memory(tensor) for tensor in tensors]
    wrong: list[int] = []

    def verify(views: list[memoryview], expected: int) -> None:
        if _checksum(views) != expected:
            wrong.append(expected)

    # In another thread, because it takes as long as copying: in parallel they reach 10 Gbit/s.
    with ThreadPoolExecutor(1, "checksum") as pool:
        for chunk in chunks([len(each) for each in memories], _CHUNK):
            views = [_view(memories[index][start:end]) for index, start, end in chunk]
            reader.fill(views)
            pool.submit(verify, views, *_SUM.unpack(reader.take(_SUM.size)))
            if wrong:
                break
    if wrong:
        raise OSError("a part of the state does not match its checksum")


def _checksum(views: list[memoryview]) -> int:
    checksum = 0
    for view in views:
        checksum = zlib.crc32(view, checksum)
    return checksum


def _view(plain: torch.Tensor) -> memoryview:
    return plain.numpy().data


class _Reader:
    """Reads into given memory, and checks between reads whether to continue."""

    def __init__(self, connection: socket.socket, check: Callable[[], None], stall_seconds: float) -> None:
        connection.settimeout(SLICE_SECONDS)
        self._connection, self._check, self._stall_seconds = connection, check, stall_seconds
        self._heard_at = self._checked_at = time.monotonic()

    def take(self, size: int) -> bytearray:
        """Return the next ``size`` bytes."""
        data = bytearray(size)
        self.fill([memoryview(data)])
        return data

    def fill(self, views: list[memoryview]) -> None:
        """Read until all ``views`` are full."""
        _pass(views, self._receive)

    def _receive(self, views: list[memoryview]) -> int:
        while True:
            now = time.monotonic()
            if now - self._checked_at > SLICE_SECONDS:
                self._checked_at = now
                self._check()
            if now - self._heard_at > self._stall_seconds:
                raise OSError(f"the peer has sent nothing for {self._stall_seconds:g} s")
            with contextlib.suppress(TimeoutError):
                got = self._connection.recvmsg_into(views)[0]
                if not got:
                    raise OSError("the peer closed the connection")
                self._heard_at = time.monotonic()
                return got


def _pass(views: list[memoryview], some: Callable[[list[memoryview]], int]) -> None:
    """Process all bytes of ``views`` with ``some``, which processes a first part and returns its size."""
    left = deque(view for view in views if len(view))
    while left:
        passed = some(list(islice(left, _MOST_BUFFERS)))
        while passed:
            first = left.popleft()
            if passed < len(first):
                left.appendleft(first[passed:])
            passed -= min(passed, len(first))


def _in_host_memory(tensors: tuple[torch.Tensor, ...]) -> Iterator[list[memoryview]]:
    """Yield the tensors' chunks in host memory. The views of a chunk are valid until the next chunk is requested."""
    buffers: list[torch.Tensor] = []
    if any(tensor.is_cuda for tensor in tensors):
        buffers = [torch.empty(_CHUNK, dtype=torch.uint8, pin_memory=True) for _ in range(2)]
    ahead: _Staged | None = None
    for turn, pieces in enumerate(_pieces(tensors)):
        staged = _Staged(pieces, buffers[turn % 2] if buffers else None)
        if ahead:
            yield ahead.views()
        ahead = staged
    if ahead:
        yield ahead.views()


def _pieces(tensors: tuple[torch.Tensor, ...]) -> Iterator[list[torch.Tensor]]:
    current, plain = -1, torch.empty(0)
    for chunk in chunks([tensor.numel() * tensor.element_size() for tensor in tensors], _CHUNK):
        pieces = []
        for index, start, end in chunk:
            if index != current:  # one at a time, so that at most one copy exists
                current, plain = index, memory(tensors[index])
            pieces.append(plain[start:end])
        yield pieces


class _Staged:
    """One chunk that is being copied to host memory."""

    def __init__(self, pieces: list[torch.Tensor], buffer: torch.Tensor | None) -> None:
        self._pieces = pieces
        self._events: list[Any] = []
        if buffer is None:
            return
        self._pieces, used = [], 0
        for piece in pieces:
            host = buffer[used : used + len(piece)]
            host.copy_(piece, non_blocking=True)
            used += len(piece)
            self._pieces.append(host)
        devices = {piece.device for piece in pieces if piece.is_cuda}
        self._events = [torch.cuda.current_stream(device).record_event() for device in devices]

    def views(self) -> list[memoryview]:
        """Wait for the copies. Return the chunk's views."""
        for event in self._events:
            event.synchronize()
        return [_view(piece) for piece in self._pieces]


@dataclass(frozen=True)
class Layout:
    """What is needed to create an empty tensor of the same kind on the CPU, such as a channels-last one."""

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
