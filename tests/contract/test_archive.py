"""Zips of sources: the same bytes for the same files, and Python reads them."""

from __future__ import annotations

import io
import zipfile

from tidewater.contract import archive

FILES = {"b.py": b"x = 1\n" * 100, "a/c.py": b""}


def test_the_order_of_the_files_does_not_matter() -> None:
    assert archive.to_zip(FILES) == archive.to_zip(dict(reversed(FILES.items())))


def test_it_contains_the_files_readable_by_all() -> None:
    with zipfile.ZipFile(io.BytesIO(archive.to_zip(FILES))) as found:
        assert {name: found.read(name) for name in found.namelist()} == FILES
        assert {entry.external_attr >> 16 for entry in found.infolist()} == {0o644}
