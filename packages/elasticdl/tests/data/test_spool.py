"""A compressed file reads as what is in it, and a damaged one is named."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
from elasticdl.data.spool import unpacked
from elasticdl.errors import DamagedData

from tidewater.elastic.storage.local import LocalBlob

CONTENT = b"".join(b"%d," % number for number in range(5000))


def test_a_compressed_file_is_read_at_any_offset(tmp_path: Path) -> None:
    path = tmp_path / "data.gz"
    path.write_bytes(gzip.compress(CONTENT))
    with unpacked(LocalBlob(path)) as blob:
        assert (blob.name, blob.size) == (str(path), len(CONTENT))
        assert blob.read(1000, 50) == CONTENT[1000:1050]


def test_another_file_stays_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "data").write_bytes(b"x")
    blob = LocalBlob(tmp_path / "data")
    assert unpacked(blob) is blob


@pytest.mark.parametrize("damage", ["cut-off", "altered", "something-else"])
def test_a_damaged_file_is_named(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "data.gz"
    whole = bytearray(gzip.compress(CONTENT))
    if damage == "cut-off":
        del whole[-9:]
    elif damage == "altered":
        whole[len(whole) // 2] ^= 0xFF
    else:
        whole[:] = b"no compressed file"
    path.write_bytes(whole)
    with pytest.raises(DamagedData, match=f"{path}.*does not unpack"):
        unpacked(LocalBlob(path))


def test_the_case_of_a_name_does_not_matter(tmp_path: Path) -> None:
    path = tmp_path / "DATA.CSV.GZ"
    path.write_bytes(gzip.compress(CONTENT))
    with unpacked(LocalBlob(path)) as blob:
        assert blob.size == len(CONTENT)
