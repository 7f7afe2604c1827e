"""Fields come back as they were, and a damaged record is an error."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from elasticdl.data.examples.fields import MAGIC, decode, encode
from elasticdl.errors import DamagedData, DataError
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

DTYPES = ["u1", "i1", "i2", "i4", "i8", "f2", "f4", "f8", "?", "u2", "u4", "u8", ">i4", ">f8"]


def test_a_record_has_exactly_the_documented_bytes() -> None:
    record = encode({"label": np.int64(-2), "text": "ü"})
    label = b"\x05label" + bytes([20, 0]) + struct.pack("<I", 8) + struct.pack("<q", -2)
    text = b"\x04text" + bytes([1, 0]) + struct.pack("<I", 2) + b"\xc3\xbc"
    assert record == bytes.fromhex("93455831") + b"\x02\x00" + label + text


@given(st.data(), st.sampled_from(DTYPES))
def test_arrays_come_back_to_the_bit(data: st.DataObject, dtype: str) -> None:
    array = data.draw(arrays.arrays(np.dtype(dtype), arrays.array_shapes(min_dims=0, max_dims=3, min_side=0)))
    found = decode(encode({"x": array}))["x"]
    assert (found.shape, found.dtype) == (array.shape, array.dtype.newbyteorder("<"))
    assert found.tobytes() == array.astype(found.dtype).tobytes()


def test_texts_bytes_and_numbers_come_back() -> None:
    found = decode(encode({"text": "ü\n", "bytes": b"\x00\xff", "int": 3, "float": 0.5, "bool": True}))
    assert (found["text"], found["bytes"]) == ("ü\n", b"\x00\xff")
    assert (found["int"].item(), found["float"].item(), found["bool"].item()) == (3, 0.5, True)


def test_a_record_cut_off_anywhere_is_an_error() -> None:
    record = encode({"image": np.zeros((2, 3), np.uint8), "label": 3, "text": "abc"})
    for length in range(len(MAGIC), len(record)):
        with pytest.raises(DamagedData, match=f"a record of {length} bytes"):
            decode(record[:length])
    with pytest.raises(DamagedData, match="1 bytes follow the last field"):
        decode(record + b"\x00")


def test_an_array_whose_size_is_not_that_of_its_shape_is_an_error() -> None:
    record = bytearray(encode({"x": np.zeros(4, np.uint8)}))
    record[10:14] = struct.pack("<I", 3)
    with pytest.raises(DamagedData, match=r"field x has 4 bytes for uint8 of shape \(3,\)"):
        decode(bytes(record))


def test_a_kind_that_is_unknown_is_an_error() -> None:
    record = bytearray(encode({"x": b""}))
    record[8] = 9
    with pytest.raises(DamagedData, match="field x is of the unknown kind 9"):
        decode(bytes(record))


def test_a_value_that_a_record_cannot_hold_is_named() -> None:
    with pytest.raises(DataError, match="field 'x' is of complex128"):
        encode({"x": np.zeros(2, np.complex128)})


def test_a_name_that_is_too_long_is_refused() -> None:
    with pytest.raises(DataError, match=r"'x+' has 300 bytes"):
        encode({"x" * 300: 1})
