"""What a worker sends of its state through a socket: everything but the content of the tensors.

    outline, tensors = Outline.of(tree)             # in the process that has the state
    send(connection, outline.text)
    outline = Outline.of_text(receive(connection, check, stall_seconds))    # in a process that needs it
    tree = outline.join(memory)                     # when its tensors have their content

The content follows as broadcasts over the group, see ``group.broadcast``.

The stream is a sequence of frames (kind, length of the body, its CRC-32). ``WAIT`` means that the sender is alive but
has nothing to send yet. ``DENY`` means that the state can't be sent, and says why. ``TREE`` contains the outline.
"""

from __future__ import annotations

import contextlib
import functools
import json
import socket
import struct
import time
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from tidewater.elastic.errors import ConfigError, RecordError
from tidewater.elastic.tree import Tree, join, split

SLICE_SECONDS = 0.1
"""Interval at which a receiver checks whether to continue."""

_FRAME = struct.Struct("!4sQI")
_WAIT, _DENY, _TREE = b"WAIT", b"DENY", b"TREE"
_MOST_TEXT = 1 << 28


@dataclass(frozen=True)
class Layout:
    """What is needed to create an empty tensor of the same kind, such as a channels-last one."""

    dtype: str
    size: tuple[int, ...]
    stride: tuple[int, ...]
    device: str
    """Its type."""

    @classmethod
    def of(cls, tensor: torch.Tensor) -> Layout:
        """Return the layout in which ``memory`` presents a tensor."""
        stride = tensor.stride() if is_dense(tensor) else torch.empty(tensor.shape, device="meta").stride()
        dtype = str(tensor.dtype).removeprefix("torch.")
        return cls(dtype, tuple(tensor.shape), tuple(stride), tensor.device.type)

    @classmethod
    def from_json(cls, fields: Sequence[Any]) -> Layout:
        """Return the inverse of ``to_json``. Raise ValueError if torch doesn't know the type of its elements."""
        dtype, size, stride, device = fields
        if not isinstance(getattr(torch, str(dtype), None), torch.dtype):
            raise ValueError(f"torch {torch.__version__} knows no type {dtype!r}")
        return cls(str(dtype), tuple(map(int, size)), tuple(map(int, stride)), str(device))

    def to_json(self) -> list[Any]:
        """Return the layout as values for JSON."""
        return [self.dtype, self.size, self.stride, self.device]

    def fits(self, tensor: torch.Tensor) -> bool:
        """Return whether the content of such a tensor can be received into this one."""
        return Layout.of(tensor) == self and is_dense(tensor)

    def empty(self, device: torch.device) -> torch.Tensor:
        """Return an uninitialised tensor."""
        return torch.empty_strided(self.size, self.stride, dtype=getattr(torch, self.dtype), device=device)


@dataclass(frozen=True)
class Outline:
    """A tree without the content of its tensors."""

    tree: Any
    layouts: Mapping[str, Layout]
    """By the tensors' names, in the order in which they are sent: at last those that are on the CPU."""

    @classmethod
    def of(cls, tree: Tree) -> tuple[Outline, list[torch.Tensor]]:
        """Return the outline of a tree, and its tensors. Raise ConfigError if the tree can't be sent."""
        found: dict[str, torch.Tensor] = {}
        outline = split(tree, lambda name, tensor: found.setdefault(name, tensor.detach())).outline
        names = sorted(found, key=lambda name: found[name].device.type == "cpu")
        made = cls(outline, {name: Layout.of(found[name]) for name in names})
        if len(made.text) > _MOST_TEXT:
            raise ConfigError(
                f"the state without its tensors has {len(made.text) >> 20} MiB as JSON, and {_MOST_TEXT >> 20} MiB can "
                "be sent: make long lists of numbers a tensor or an array of numpy"
            )
        return made, [found[name] for name in names]

    @classmethod
    def of_text(cls, text: bytes) -> Outline:
        """Return the inverse of ``text``. Raise RecordError: another version of torch or of the code has written it."""
        try:
            found = json.loads(text)
            return cls(found["tree"], {name: Layout.from_json(each) for name, each in found["tensors"].items()})
        except (ValueError, KeyError, TypeError) as error:
            raise RecordError(f"the state of a peer can't be read: {error}") from error

    @functools.cached_property
    def text(self) -> bytes:
        """Return it as JSON."""
        tensors = {name: layout.to_json() for name, layout in self.layouts.items()}
        return json.dumps({"tree": self.tree, "tensors": tensors}).encode()

    def join(self, tensors: Sequence[torch.Tensor]) -> Tree:
        """Return the tree with these tensors, in the order of ``layouts``. Raise RecordError if it can't be read."""
        return join(self.tree, dict(zip(self.layouts, tensors, strict=True)))


def is_dense(tensor: torch.Tensor) -> bool:
    """Return whether its elements neither overlap nor leave gaps: by torch's rule, empty_like has the same strides."""
    return bool(torch.empty_like(tensor, device="meta").stride() == tensor.stride())


def send_wait(connection: socket.socket) -> None:
    """Tell the receiver that the sender is alive."""
    connection.sendall(_FRAME.pack(_WAIT, 0, 0))


def send_refusal(connection: socket.socket, reason: str) -> None:
    """Tell the receiver why it can't have the state."""
    _send(connection, _DENY, reason.encode())


def send(connection: socket.socket, text: bytes) -> None:
    """Send an outline. Raise OSError."""
    _send(connection, _TREE, text)


def _send(connection: socket.socket, kind: bytes, text: bytes) -> None:
    connection.sendall(_FRAME.pack(kind, len(text), zlib.crc32(text)))
    connection.sendall(text)


def receive(connection: socket.socket, check: Callable[[], None], stall_seconds: float) -> bytes:
    """Return the text of the outline that the peer sends.

    ``check`` is called every SLICE_SECONDS and may raise to stop. Raise OSError if the connection breaks, if nothing
    arrives for ``stall_seconds``, or if the checksum does not match. Raise ConfigError if the peer can't send the
    state: another attempt would give the same.
    """
    reader = _Reader(connection, check, stall_seconds)
    kind, length, checksum = _WAIT, 0, 0
    while kind == _WAIT:
        kind, length, checksum = _FRAME.unpack(reader.take(_FRAME.size))
    if kind not in (_DENY, _TREE) or length > _MOST_TEXT:
        raise OSError(f"the peer sent {kind!r} of {length} bytes where the state should begin")
    text = reader.take(length)
    if zlib.crc32(text) != checksum:
        raise OSError("the state's structure does not match its checksum")
    if kind == _DENY:
        raise ConfigError(text.decode())
    return text


class _Reader:
    """Reads from a connection, and checks between reads whether to continue."""

    def __init__(self, connection: socket.socket, check: Callable[[], None], stall_seconds: float) -> None:
        connection.settimeout(SLICE_SECONDS)
        self._connection, self._check, self._stall_seconds = connection, check, stall_seconds
        self._heard_at = self._checked_at = time.monotonic()

    def take(self, size: int) -> bytes:
        """Return the next ``size`` bytes."""
        data = bytearray(size)
        left = memoryview(data)
        while left:
            left = left[self._receive(left) :]
        return bytes(data)

    def _receive(self, view: memoryview) -> int:
        while True:
            now = time.monotonic()
            if now - self._checked_at > SLICE_SECONDS:
                self._checked_at = now
                self._check()
            if now - self._heard_at > self._stall_seconds:
                raise OSError(f"the peer has sent nothing for {self._stall_seconds:g} s")
            with contextlib.suppress(TimeoutError):
                got = self._connection.recv_into(view)
                if not got:
                    raise OSError("the peer closed the connection")
                self._heard_at = time.monotonic()
                return got
