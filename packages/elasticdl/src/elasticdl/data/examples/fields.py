"""The fields of a record by name: arrays, texts, bytes.

    record = encode({"image": pixels, "label": 3})
    decode(record)["image"]                        # the same array

`decode` also takes a tf.Example, which is what ElasticDL's own tools wrote, so a model's `feed` reads both.

The format is ours. All numbers are little-endian. A record is the four bytes 93 45 58 31 (hexadecimal), the number of
fields (2 bytes), and the fields: length of the name (1), name (UTF-8), kind (1), number of dimensions (1), each
dimension (4), number of bytes (4), bytes. Kinds: 0 bytes, 1 text (UTF-8), and from 16 on the
arrays of `_DTYPES`, in C order. No tf.Example begins with 93.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from elasticdl.data.examples import tf_example
from elasticdl.errors import DamagedData, DataError

MAGIC = b"\x93EX1"

_BYTES, _TEXT, _ARRAYS = 0, 1, 16
_DTYPES = tuple(np.dtype(each) for each in "u1 i1 <i2 <i4 <i8 <f2 <f4 <f8 ? <u2 <u4 <u8".split())
_MOST_DIMENSIONS = 32
_LONGEST_NAME = 255
_COUNT = struct.Struct("<H")
_SHAPE_AND_SIZE = tuple(struct.Struct(f"<{dimensions}II") for dimensions in range(_MOST_DIMENSIONS + 1))
_REMEDY = "write the record with elasticdl.data.examples.fields.encode, or as a tf.Example"

Value = npt.NDArray[Any] | np.generic | int | float | bool | str | bytes
Fields = dict[str, Any]
"""Arrays, texts and bytes by name."""


def encode(fields: Mapping[str, Value]) -> bytes:
    """Return a record of fields; raise DataError for a value that a record can't hold."""
    parts = [MAGIC, _COUNT.pack(len(fields))]
    for name, value in fields.items():
        kind, shape, content = _packed(name, value)
        title = name.encode()
        if len(title) > _LONGEST_NAME:
            raise DataError(f"the name of field {name!r} has {len(title)} bytes", f"give it {_LONGEST_NAME} or fewer")
        parts += [struct.pack(f"<B{len(title)}sBB", len(title), title, kind, len(shape))]
        parts += [_SHAPE_AND_SIZE[len(shape)].pack(*shape, len(content)), content]
    return b"".join(parts)


def decode(record: bytes) -> Fields:
    """Return the fields of a record, ours or a tf.Example.

    Numbers become arrays without dimensions. Of a tf.Example, numbers become float32 and int64 arrays of one dimension,
    and bytes a list. Arrays of ours can't be written to: copy them before changing them.

    Raises:
        DamagedData: The record is cut off, or is something else.
    """
    if not record.startswith(MAGIC):
        return tf_example.decode(record)
    try:
        return _decoded(record)
    except (struct.error, ValueError, IndexError) as error:
        raise DamagedData(f"a record of {len(record)} bytes is cut off or altered: {error}", _REMEDY) from error


def _decoded(record: bytes) -> Fields:
    (count,) = _COUNT.unpack_from(record, len(MAGIC))
    offset, fields = len(MAGIC) + _COUNT.size, Fields()
    for _ in range(count):
        kind_at = offset + 1 + record[offset]
        name, kind, dimensions = record[offset + 1 : kind_at].decode(), record[kind_at], record[kind_at + 1]
        *shape, size = _SHAPE_AND_SIZE[dimensions].unpack_from(record, kind_at + 2)
        offset = kind_at + 2 + _SHAPE_AND_SIZE[dimensions].size
        if offset + size > len(record):
            raise ValueError(f"field {name} has {len(record) - offset} bytes of {size}")
        if kind >= _ARRAYS:
            fields[name] = _array(name, record, kind, (offset, size), shape)
        elif kind == _TEXT:
            fields[name] = record[offset : offset + size].decode()
        elif kind == _BYTES:
            fields[name] = record[offset : offset + size]
        else:
            raise ValueError(f"field {name} is of the unknown kind {kind}")
        offset += size
    if offset != len(record):
        raise ValueError(f"{len(record) - offset} bytes follow the last field")
    return fields


def _array(name: str, record: bytes, kind: int, place: tuple[int, int], shape: list[int]) -> npt.NDArray[Any]:
    """Return the array that is `place` in a record: its offset and its number of bytes."""
    if kind >= _ARRAYS + len(_DTYPES):
        raise ValueError(f"field {name} is of the unknown kind {kind}")
    dtype, (offset, size) = _DTYPES[kind - _ARRAYS], place
    if size != math.prod(shape) * dtype.itemsize:
        raise ValueError(f"field {name} has {size} bytes for {dtype} of shape {tuple(shape)}")
    array = np.frombuffer(record, dtype, size // dtype.itemsize, offset)
    return array if len(shape) == 1 else array.reshape(shape)


def _packed(name: str, value: Value) -> tuple[int, tuple[int, ...], bytes]:
    """Return kind, shape and bytes of a value."""
    if isinstance(value, str):
        return _TEXT, (), value.encode()
    if isinstance(value, bytes):
        return _BYTES, (), value
    array = np.asarray(value)
    wanted = array.dtype.newbyteorder("<")
    codes = [code for code, dtype in enumerate(_DTYPES, _ARRAYS) if dtype == wanted]
    if not codes or array.ndim > _MOST_DIMENSIONS:
        raise DataError(f"field {name!r} is of {array.dtype}, which a record can't hold", "convert it to numbers")
    return codes[0], array.shape, np.ascontiguousarray(array, wanted).tobytes()
