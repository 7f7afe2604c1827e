"""A chunk of a RecordIO file: a header of 20 bytes, and records compressed together.

    data = encoded([b"first", b"second"], Compressor.SNAPPY)
    header = Header.parse(data[:HEADER_SIZE])
    decoded(header, data[HEADER_SIZE:])          # [b"first", b"second"]

A file is chunks one after the other and nothing else. The header is five little-endian numbers of 32 bits: magic,
checksum, compressor, size of the compressed records, number of records. Each record is a length of 32 bits and its
bytes. The checksum is CRC-32 (IEEE) of the compressed bytes. Snappy is in its framing format, gzip with its header.
Source of the format: https://github.com/wangkuiyi/recordio, header.go and chunk.go, from which the package
`pyrecordio` is built that ElasticDL uses.
"""

from __future__ import annotations

import gzip
import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

import cramjam

from elasticdl.errors import DamagedData, InputError

MAGIC = 0x01020304
HEADER_SIZE = 20

_HEADER = struct.Struct("<5I")
_LENGTH = struct.Struct("<I")
_LIMIT = 2**32


class Compressor(IntEnum):
    """How the records of a chunk are compressed."""

    NONE = 0
    SNAPPY = 1
    GZIP = 2


@dataclass(frozen=True)
class Header:
    """The header of a chunk."""

    checksum: int
    compressor: Compressor
    compressed_size: int
    """Bytes after the header."""
    records: int

    @staticmethod
    def parse(data: bytes) -> Header:
        """Return the header in 20 bytes; raise DamagedData that says what is wrong, but not where."""
        magic, checksum, compressor, size, records = _HEADER.unpack(data)
        if magic != MAGIC:
            raise DamagedData(f"the magic number is {magic:#010x} instead of {MAGIC:#010x}")
        if compressor not in tuple(Compressor):
            raise DamagedData(f"compressor {compressor} is unknown")
        return Header(checksum, Compressor(compressor), size, records)


def encoded(records: Sequence[bytes], compressor: Compressor) -> bytes:
    """Return a chunk of records; raise InputError if they don't fit into one."""
    raw = b"".join(part for record in records for part in (_LENGTH.pack(len(record)), record))
    body = _compressed(raw, compressor)
    if len(body) >= _LIMIT:
        raise InputError(f"a chunk of {len(body)} bytes", "a chunk holds less than 4 GiB: write smaller records")
    return _HEADER.pack(MAGIC, zlib.crc32(body), compressor, len(body), len(records)) + body


def decoded(header: Header, body: bytes) -> list[bytes]:
    """Return the records of a chunk.

    Args:
        header: of the chunk.
        body: the bytes after the header.

    Raises:
        DamagedData: Says what is wrong, but not where: the caller knows.
    """
    checksum = zlib.crc32(body)
    if checksum != header.checksum:
        raise DamagedData(f"the checksum is {checksum:#010x} instead of {header.checksum:#010x}")
    raw, offset, records = memoryview(_decompressed(body, header.compressor)), 0, []
    for number in range(header.records):
        start = offset + _LENGTH.size
        if start > len(raw):
            raise DamagedData(f"it holds {number} records, and its header says {header.records}")
        (length,) = _LENGTH.unpack_from(raw, offset)
        offset = start + length
        if offset > len(raw):
            raise DamagedData(f"its record {number} has {len(raw) - start} bytes of {length}")
        records.append(bytes(raw[start:offset]))
    if offset != len(raw):
        raise DamagedData(f"{len(raw) - offset} bytes follow the {header.records} records that its header says")
    return records


def _compressed(raw: bytes, compressor: Compressor) -> bytes:
    if compressor is Compressor.SNAPPY:
        return bytes(cramjam.snappy.compress(raw))
    if compressor is Compressor.GZIP:
        return gzip.compress(raw, mtime=0)  # the same records give the same file
    return raw


def _decompressed(body: bytes, compressor: Compressor) -> bytes:
    try:
        if compressor is Compressor.SNAPPY:
            return bytes(cramjam.snappy.decompress(body))
        if compressor is Compressor.GZIP:
            return gzip.decompress(body)
    except (OSError, EOFError, zlib.error, cramjam.DecompressionError) as error:
        raise DamagedData(f"its records do not decompress with {compressor.name.lower()}: {error}") from error
    return body
