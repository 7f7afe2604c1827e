"""RecordIO files made by hand, from the description of the formats alone: nothing of the package makes them.

RecordIO: https://github.com/wangkuiyi/recordio. Snappy's framing format and its blocks:
https://github.com/google/snappy/blob/main/framing_format.txt and format_description.txt.
"""

from __future__ import annotations

import struct
import zlib

RECORDS = [b"first", b"", b"third and the last one", b"a" * 40]


def chunk(records: list[bytes], compressor: int) -> bytes:
    """Return a chunk, its records compressed as Go's packages do it: each length and each record written apart."""
    parts = [part for record in records for part in (struct.pack("<I", len(record)), record)]
    body = {0: b"".join, 1: _snappy, 2: _gzip}[compressor](parts)
    return bytes.fromhex("04030201") + struct.pack("<4I", zlib.crc32(body), compressor, len(body), len(records)) + body


def _gzip(parts: list[bytes]) -> bytes:
    """Return a gzip member made of its header, a raw deflate stream, and its trailer."""
    raw = b"".join(parts)
    deflate = zlib.compressobj(9, zlib.DEFLATED, -15)
    stream = deflate.compress(raw) + deflate.flush()
    # The header that Go writes: no name, no time, operating system unknown.
    return bytes.fromhex("1f8b08000000000000ff") + stream + struct.pack("<II", zlib.crc32(raw), len(raw))


def _snappy(parts: list[bytes]) -> bytes:
    """Return a stream with one frame for each part that is not empty, as Go's unbuffered writer makes it.

    Parts of the same byte repeated are compressed by a copy, the others are stored.
    """
    stream = b"\xff\x06\x00\x00sNaPpY"
    for part in parts:
        if not part:
            continue
        repeated = len(part) >= 5 and part == part[:1] * len(part)
        content = _block(part) if repeated else part
        data = struct.pack("<I", _masked_crc32c(part)) + content
        stream += bytes([0 if repeated else 1]) + len(data).to_bytes(3, "little") + data
    return stream


def _block(part: bytes) -> bytes:
    """Return a Snappy block of one byte repeated: its length, a literal of one byte, copies from one byte before."""
    block, left = bytes([len(part), 0]) + part[:1], len(part) - 1
    while left:
        length = min(left, 64)
        block += bytes([(length - 1) << 2 | 2]) + (1).to_bytes(2, "little")  # a copy with an offset of two bytes
        left -= length
    return block


def _masked_crc32c(data: bytes) -> int:
    """Return the checksum of the framing format: CRC-32C (Castagnoli), rotated and shifted by a constant."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF
