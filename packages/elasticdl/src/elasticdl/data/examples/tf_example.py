"""Decodes a tf.Example without TensorFlow, so that files made by ElasticDL's own tools can be used.

The message, as protobuf's wire format has it (https://protobuf.dev/programming-guides/encoding/, and tensorflow's
core/example/example.proto and feature.proto):

    Example  1: Features          Features  1: map<string, Feature>, that is, repeated (1: name, 2: Feature)
    Feature  one of 1: BytesList, 2: FloatList, 3: Int64List, each with 1: the values; numbers packed or one by one
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from elasticdl.errors import DamagedData

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_BYTES_LIST, _FLOAT_LIST, _INT64_LIST = 1, 2, 3


def decode(record: bytes) -> dict[str, Any]:
    """Return the features of a tf.Example by name: lists of bytes, float32 arrays, int64 arrays.

    A feature without values is an empty list. Raise DamagedData if the record is no tf.Example.
    """
    found: dict[str, Any] = {}
    try:
        for features in _messages(memoryview(record), 1):
            for entry in _messages(features, 1):
                parts = {number: value for number, _, value in _fields(entry)}
                found[bytes(parts[1]).decode()] = _feature(parts.get(2, memoryview(b"")))
    except (ValueError, IndexError, KeyError, TypeError) as error:
        raise DamagedData(
            f"a record of {len(record)} bytes is no tf.Example, and none of ours: {error}",
            "look at the record in feed(), and decode it there; or write the data with `elasticdl data write`",
        ) from error
    return found


def _feature(message: memoryview) -> Any:
    for number, _, content in _fields(message):
        if number == _BYTES_LIST:
            return [bytes(value) for value in _messages(content, 1)]
        if number == _FLOAT_LIST:
            return _floats(content)
        if number == _INT64_LIST:
            return _integers(content)
    return []


def _floats(message: memoryview) -> Any:
    values = [np.frombuffer(value, "<f4") for number, _, value in _fields(message) if number == 1]
    return np.concatenate(values).astype(np.float32) if values else np.zeros(0, np.float32)


def _integers(message: memoryview) -> Any:
    found: list[int] = []
    for number, wire, value in _fields(message):
        if number == 1:
            found += [value] if wire == _VARINT else _varints(value)
    # Negative numbers are the 64 bits of their two's complement.
    return np.array(found, np.uint64).astype(np.int64)


def _messages(message: memoryview, wanted: int) -> Iterator[memoryview]:
    """Yield the parts of a message with a field's number, which must be messages, texts or bytes."""
    for number, wire, value in _fields(message):
        if number == wanted:
            if wire != _BYTES:
                raise ValueError(f"field {number} has wire type {wire}")
            yield value


def _fields(message: memoryview) -> Iterator[tuple[int, int, Any]]:
    """Yield number, wire type and value of each field of a message."""
    offset = 0
    while offset < len(message):
        key, offset = _varint(message, offset)
        number, wire = key >> 3, key & 7
        if wire == _VARINT:
            value, offset = _varint(message, offset)
            yield number, wire, value
            continue
        if wire == _BYTES:
            size, offset = _varint(message, offset)
        elif wire in (_FIXED32, _FIXED64):
            size = 4 if wire == _FIXED32 else 8
        else:
            raise ValueError(f"wire type {wire} at byte {offset}")
        if not number or offset + size > len(message):
            raise ValueError(f"field {number} has {len(message) - offset} bytes of {size}")
        yield number, wire, message[offset : offset + size]
        offset += size


def _varints(content: memoryview) -> list[int]:
    found, offset = [], 0
    while offset < len(content):
        value, offset = _varint(content, offset)
        found.append(value)
    return found


def _varint(content: memoryview, offset: int) -> tuple[int, int]:
    """Return the number at an offset, and the offset after it."""
    value, shift = 0, 0
    while True:
        byte = content[offset]
        offset += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & 0xFFFF_FFFF_FFFF_FFFF, offset
        shift += 7
        if shift > 63:
            raise ValueError(f"a number of more than 10 bytes before byte {offset}")
