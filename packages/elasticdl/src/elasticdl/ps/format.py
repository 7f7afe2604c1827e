"""Tensors in one file, in the format safetensors: written in pieces, read by range, nothing to execute.

    with path.open("wb") as file:
        write(file, [Entry.of("dense:weight", tensor)], {"version": "200"})
    reader = Reader(STORE.opened(str(path)))
    reader.tensor("dense:weight")

A file is the length of the header (8 bytes, little-endian), the header (JSON: type, shape and place of each tensor, and
texts), and the tensors' bytes: https://github.com/huggingface/safetensors#format. Any program for that format reads it.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import BinaryIO

import torch

from elasticdl.ps.errors import BadCheckpoint
from elasticdl.rpc import elasticdl_pb2 as pb
from tidewater.elastic.storage.blob import Blob

_DTYPES = {
    "F32": torch.float32,
    "F64": torch.float64,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
    "U8": torch.uint8,
    "BOOL": torch.bool,
}
_NAMES = {str(dtype).removeprefix("torch."): name for name, dtype in _DTYPES.items()}
_MAX_HEADER = 100_000_000
"""Bytes; what the format's own library allows."""
_METADATA = "__metadata__"


@dataclass(frozen=True)
class Entry:
    """A tensor that is to be written."""

    name: str
    dtype: str
    """torch's name."""
    shape: Sequence[int]
    chunks: Iterable[bytes]
    """Its bytes, in order; made when they are written."""

    @staticmethod
    def of(name: str, tensor: torch.Tensor) -> Entry:
        """Return the entry of a tensor in memory."""
        return Entry(name, str(tensor.dtype).removeprefix("torch."), tuple(tensor.shape), _lazily(tensor))

    @staticmethod
    def of_message(name: str, message: pb.Tensor) -> Entry:
        """Return the entry of a tensor that is encoded already."""
        return Entry(name, message.dtype, tuple(message.shape), (message.data,))


def write(file: BinaryIO, entries: Sequence[Entry], texts: Mapping[str, str]) -> tuple[int, str]:
    """Write a file. Return its size in bytes and its SHA-256."""
    header: dict[str, object] = {_METADATA: dict(texts)}
    end = 0
    for entry in entries:
        start, end = end, end + math.prod(entry.shape) * _DTYPES[_NAMES[entry.dtype]].itemsize
        header[entry.name] = {"dtype": _NAMES[entry.dtype], "shape": list(entry.shape), "data_offsets": [start, end]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    digest, size = hashlib.sha256(), 0
    for piece in _pieces(len(text).to_bytes(8, "little") + text, entries):
        file.write(piece)
        digest.update(piece)
        size += len(piece)
    if size != 8 + len(text) + end:
        raise ValueError(f"{size - 8 - len(text)} bytes were written of {end}: an entry's chunks don't have its shape")
    return size, digest.hexdigest()


class Reader:
    """A file that is read tensor by tensor."""

    def __init__(self, blob: Blob) -> None:
        """Read the header; raise BadCheckpoint if this is no such file, or if it ends too early."""
        self._blob = blob
        try:
            length = int.from_bytes(blob.read(0, 8), "little") if blob.size >= 8 else _MAX_HEADER + 1
            if length > min(_MAX_HEADER, blob.size - 8):
                raise ValueError("it has no header")
            header = json.loads(blob.read(8, length))
            self.texts: dict[str, str] = header.pop(_METADATA)
            self._begin = 8 + length
            self._entries: dict[str, tuple[torch.dtype, tuple[int, ...], int]] = {}
            for name, entry in header.items():
                dtype, shape = _DTYPES[entry["dtype"]], tuple(int(size) for size in entry["shape"])
                start, end = entry["data_offsets"]
                if end - start != math.prod(shape) * dtype.itemsize or not 0 <= start <= end <= blob.size - self._begin:
                    raise ValueError(f"{name} lies outside")
                self._entries[name] = (dtype, shape, start)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise BadCheckpoint(f"{blob.name} is damaged ({error})", "Use an older checkpoint.") from error

    def names(self, prefix: str = "") -> list[str]:
        """Return the names of tensors, those with a prefix."""
        return [name for name in self._entries if name.startswith(prefix)]

    def rows(self, name: str) -> int:
        """Return the length of a tensor's first dimension."""
        return self._entries[name][1][0]

    def tensor(self, name: str, start: int = 0, end: int | None = None) -> torch.Tensor:
        """Return a tensor, or rows [start, end) of it."""
        dtype, shape, offset = self._entries[name]
        if end is not None:
            row = math.prod(shape[1:]) * dtype.itemsize
            shape, offset = (end - start, *shape[1:]), offset + start * row
        size = math.prod(shape) * dtype.itemsize
        if not size:
            return torch.empty(shape, dtype=dtype)
        data = bytearray(size)
        at = 0
        for piece in self._blob.stream(self._begin + offset, self._begin + offset + size):
            data[at : at + len(piece)] = piece
            at += len(piece)
        return torch.frombuffer(data, dtype=dtype).reshape(shape)


def bytes_of(tensor: torch.Tensor) -> bytes:
    """Return a tensor's bytes in row-major order."""
    flat = tensor.detach().contiguous().reshape(-1)
    return flat.view(torch.uint8).numpy().tobytes() if flat.numel() else b""


def _lazily(tensor: torch.Tensor) -> Iterator[bytes]:
    yield bytes_of(tensor)


def _pieces(header: bytes, entries: Sequence[Entry]) -> Iterator[bytes]:
    yield header
    for entry in entries:
        yield from entry.chunks
