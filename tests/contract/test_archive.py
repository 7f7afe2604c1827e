"""Zips of sources: the same bytes for the same files, and Python reads them."""

from __future__ import annotations

import io
import zipfile

import pytest

from tidewater.contract import archive

FILES = {"b.py": b"x = 1\n" * 100, "a/c.py": b""}


@pytest.mark.parametrize("compressed", [False, True])
def test_the_order_of_the_files_does_not_matter(compressed: bool) -> None:
    turned = dict(reversed(FILES.items()))
    assert archive.to_zip(FILES, compressed=compressed) == archive.to_zip(turned, compressed=compressed)


@pytest.mark.parametrize("compressed", [False, True])
def test_it_contains_the_files_readable_by_all(compressed: bool) -> None:
    with zipfile.ZipFile(io.BytesIO(archive.to_zip(FILES, compressed=compressed))) as found:
        assert {name: found.read(name) for name in found.namelist()} == FILES
        assert {entry.external_attr >> 16 for entry in found.infolist()} == {0o644}


def test_compression_makes_it_smaller() -> None:
    assert len(archive.to_zip(FILES, compressed=True)) < len(archive.to_zip(FILES, compressed=False))
