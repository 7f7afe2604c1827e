"""Files at an address: all of them in the same order, or an error that names what is wrong."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.elastic.storage.stores import STORE, Damaged, Missing, Wrong
from tidewater.elastic.storage.blob import BLOCK, BlobFile


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with files; some are not data."""
    for name in ("b", "a/2", "a/1", ".hidden", ".git/config", "lost+found/x"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(name.encode())
    return tmp_path


@pytest.mark.parametrize("form", ["{}", "{}/", "file://{}", "file://localhost{}"])
def test_files_are_listed_sorted_without_what_is_hidden(folder: Path, form: str) -> None:
    found = STORE.files(form.format(folder))
    assert [(entry.path, entry.size) for entry in found] == [("a/1", 3), ("a/2", 3), ("b", 1)]
    assert Path(found[0].name) == folder / "a/1"


def test_a_file_is_its_own_only_file(folder: Path) -> None:
    (entry,) = STORE.files(str(folder / "b"))
    assert (entry.name, entry.path, entry.size) == (str(folder / "b"), "b", 1)


def test_an_address_with_escapes_is_a_path(tmp_path: Path) -> None:
    (tmp_path / "with space").write_bytes(b"x")
    with STORE.opened(f"file://{tmp_path}/with%20space") as blob:
        assert blob.read(0, 1) == b"x"


@pytest.mark.parametrize(
    ("address", "error", "said"),
    [
        ("{}/nothing", Missing, "no such file or folder"),
        ("{}/empty", Missing, "there are no files"),
        ("http://host/file", Wrong, "unknown kind of address"),
        ("hdfs://host/file", Wrong, "unknown kind of address"),
        ("file://host/file", Wrong, "unknown kind of address"),
        ("s3:///key", Wrong, "names no bucket"),
    ],
)
def test_a_wrong_address_is_named(tmp_path: Path, address: str, error: type[Wrong], said: str) -> None:
    (tmp_path / "empty").mkdir()
    named = address.format(tmp_path)
    with pytest.raises(error, match=said) as caught:
        STORE.files(named)
    assert named in str(caught.value)
    assert caught.value.remedy


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(Wrong, match="is a folder"):
        STORE.opened(str(tmp_path))


def test_a_file_that_shrinks_while_it_is_open_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "data"
    path.write_bytes(b"0123456789")
    with STORE.opened(str(path)) as blob:
        os.truncate(path, 4)
        with pytest.raises(Damaged, match="ended at byte 4; it had 10 bytes"):
            blob.read(2, 8)


def test_a_stream_gives_every_byte_once(tmp_path: Path) -> None:
    content = bytes(range(256)) * (BLOCK // 256 + 3)
    (tmp_path / "data").write_bytes(content)
    with STORE.opened(str(tmp_path / "data")) as blob:
        assert b"".join(blob.stream()) == content
        assert b"".join(blob.stream(10, BLOCK + 20)) == content[10 : BLOCK + 20]


def test_a_blob_is_a_file_for_libraries(tmp_path: Path) -> None:
    (tmp_path / "data").write_bytes(b"0123456789")
    with STORE.opened(str(tmp_path / "data")) as blob:
        file = BlobFile(blob).buffered(4)
        assert (file.seek(-3, os.SEEK_END), file.read(), file.read()) == (7, b"789", b"")
        assert (file.seek(2), file.read(3), file.tell()) == (2, b"234", 5)


def test_a_link_to_a_folder_is_followed_but_not_in_a_circle(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data/1").touch()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere/2").touch()
    (tmp_path / "data/more").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "data/again").symlink_to(tmp_path / "data")
    assert [entry.path for entry in STORE.files(str(tmp_path / "data"))] == ["1", "more/2"]


def test_a_link_to_nothing_is_named(tmp_path: Path) -> None:
    (tmp_path / "lost").symlink_to(tmp_path / "nothing")
    with pytest.raises(Missing, match=f"{tmp_path}/lost"):
        STORE.files(str(tmp_path))


def test_what_is_no_file_is_named(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(Wrong, match=f"{tmp_path}/pipe is neither a file nor a folder"):
        STORE.files(str(tmp_path))
