"""Chunks are those of ElasticDL's RecordIO, and no altered byte goes unnoticed."""

from __future__ import annotations

import gzip
import struct
import zlib

import cramjam
import pytest
from elasticdl.data.recordio.chunk import HEADER_SIZE, Compressor, Header, decoded, encoded
from elasticdl.errors import DamagedData
from hypothesis import given
from hypothesis import strategies as st

from packages.elasticdl.tests.data.recordio import by_hand

COMPRESSORS = list(Compressor)
NAMES = [each.name for each in COMPRESSORS]


def read(data: bytes) -> list[bytes]:
    return decoded(Header.parse(data[:HEADER_SIZE]), data[HEADER_SIZE:])


@pytest.mark.parametrize("compressor", COMPRESSORS, ids=NAMES)
def test_a_chunk_made_by_hand_gives_its_records(compressor: Compressor) -> None:
    assert read(by_hand.chunk(by_hand.RECORDS, compressor)) == by_hand.RECORDS


def test_an_uncompressed_chunk_has_exactly_these_bytes() -> None:
    body = "0300000061626300000000"
    header = "04030201" + zlib.crc32(bytes.fromhex(body)).to_bytes(4, "little").hex() + "000000000b00000002000000"
    assert encoded([b"abc", b""], Compressor.NONE).hex() == header + body


def test_a_snappy_chunk_is_in_the_framing_format() -> None:
    data = encoded([b"abc"], Compressor.SNAPPY)
    assert data[HEADER_SIZE:].startswith(b"\xff\x06\x00\x00sNaPpY")
    assert bytes(cramjam.snappy.decompress(data[HEADER_SIZE:])) == b"\x03\x00\x00\x00abc"


def test_a_gzip_chunk_is_the_same_at_any_time() -> None:
    data = encoded([b"abc"], Compressor.GZIP)
    assert data[HEADER_SIZE + 4 : HEADER_SIZE + 8] == bytes(4), "the time in gzip's header"
    assert gzip.decompress(data[HEADER_SIZE:]) == b"\x03\x00\x00\x00abc"


@given(st.lists(st.binary(max_size=300), min_size=1, max_size=30), st.sampled_from(COMPRESSORS))
def test_records_come_back_as_they_were(records: list[bytes], compressor: Compressor) -> None:
    assert read(encoded(records, compressor)) == records


@pytest.mark.parametrize("compressor", COMPRESSORS, ids=NAMES)
def test_any_altered_byte_is_noticed(compressor: Compressor) -> None:
    whole = by_hand.chunk(by_hand.RECORDS, compressor)
    for offset in range(len(whole)):
        for flip in (0x01, 0x80):
            altered = bytearray(whole)
            altered[offset] ^= flip
            # Of the header's size of the records, the reader of the file notices it: it knows what follows.
            if 12 <= offset < 16:
                continue
            with pytest.raises(DamagedData):
                read(bytes(altered))


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        pytest.param(0, 0x04030201, "magic number is 0x04030201 instead of 0x01020304", id="magic"),
        pytest.param(1, 7, "checksum is", id="checksum"),
        pytest.param(2, 3, "compressor 3 is unknown", id="compressor"),
        pytest.param(4, 3, "bytes follow the 3 records that its header says", id="too-few-records"),
        pytest.param(4, 5, "it holds 4 records, and its header says 5", id="too-many-records"),
    ],
)
def test_an_error_says_what_is_altered_in_the_header(field: int, value: int, said: str) -> None:
    whole = by_hand.chunk(by_hand.RECORDS, 0)
    header = list(struct.unpack("<5I", whole[:HEADER_SIZE]))
    header[field] = value
    with pytest.raises(DamagedData, match=said):
        read(struct.pack("<5I", *header) + whole[HEADER_SIZE:])


def test_a_record_longer_than_its_chunk_is_named() -> None:
    body = struct.pack("<I", 9) + b"abc"
    header = Header(zlib.crc32(body), Compressor.NONE, len(body), 1)
    with pytest.raises(DamagedData, match="record 0 has 3 bytes of 9"):
        decoded(header, body)
