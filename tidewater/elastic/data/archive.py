"""Downloads an archive of images to the volume and unpacks it there, without loading it into memory.

    fetch("s3://bucket/tiny-imagenet-200.zip", draft / "archive", log)
    unpack(draft / "archive", uri, draft / "content", log)
    make_class_folders(draft / "content" / "val")

Long operations log their progress in ``event=dataset_progress`` lines.
"""

from __future__ import annotations

import contextlib
import http.client
import lzma
import shutil
import tarfile
import urllib.request
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

from tidewater.elastic.data.folders import ANNOTATIONS, annotated
from tidewater.elastic.errors import ConfigError, TrainerError
from tidewater.elastic.observe.log import Log
from tidewater.elastic.storage.filled import Progress
from tidewater.elastic.storage.store import Store

KIND = "dataset"
"""The names of the events begin with it."""
_CHUNK = 4 * 2**20
_REQUEST = 32 * 2**20
"""Bytes of one request to S3: with fewer, the time until an answer begins would count."""
_MIB = 2**20
_TIMEOUT_SECONDS = 60
_IGNORED = ("__MACOSX",)
_DAMAGED = (
    tarfile.TarError,
    zipfile.BadZipFile,
    EOFError,
    zlib.error,
    lzma.LZMAError,
    RuntimeError,  # from zipfile, if a password is needed
    NotImplementedError,  # from zipfile, for an unknown compression
)


def fetch(uri: str, file: Path, log: Log) -> None:
    """Download ``uri`` to ``file``.

    Raise ConfigError if there is nothing at ``uri`` or no room for it. Raise TrainerError if the download breaks off; a
    retry may succeed.
    """
    with _opened(uri) as (chunks, length):
        if length is not None:
            require_space(file.parent, 2 * length, f"{uri} has {_in_words(length)}, and needs as much again unpacked")
        progress, done = Progress(log, KIND, "download", length), 0
        with file.open("wb") as target:
            while chunk := _next_chunk(chunks, uri, done):
                target.write(chunk)
                done += len(chunk)
                progress.add(len(chunk))
    if length is not None and done != length:
        raise TrainerError(f"--uri {uri} broke off after {done} of {length} bytes: run it again")


def unpack(file: Path, uri: str, out: Path, log: Log) -> None:
    """Unpack a zip or tar archive to ``out``, without a single top directory. Raise ConfigError."""
    out.mkdir()
    try:
        if zipfile.is_zipfile(file):
            _unpack_zip(file, uri, out, log)
        else:
            _unpack_tar(file, out, log)
    except _DAMAGED as error:
        raise ConfigError(f"--uri {uri} is neither a zip nor a tar archive, or damaged: {error}") from error
    for name in _IGNORED:
        shutil.rmtree(out / name, ignore_errors=True)
    inner = [entry for entry in out.iterdir() if not entry.name.startswith(".")]
    if len(inner) == 1 and inner[0].is_dir() and inner[0].name != "train":
        top = inner[0].rename(out / ".top")  # it may contain an entry of the same name
        for entry in list(top.iterdir()):
            entry.rename(out / entry.name)
        top.rmdir()


def make_class_folders(part: Path) -> None:
    """Move ``part/images/*`` to folders for their classes, if ``part`` has a val_annotations.txt."""
    if not (part / ANNOTATIONS).is_file():
        return
    for name, class_name in annotated(part):
        folder = part / class_name
        folder.mkdir(exist_ok=True)
        try:
            (part / "images" / name).rename(folder / name)
        except FileNotFoundError as error:
            raise ConfigError(f"{part.name}/{ANNOTATIONS} names images/{name}, which the archive lacks") from error
    left = [entry.name for entry in (part / "images").iterdir()]
    if left:
        raise ConfigError(f"{part.name}/{ANNOTATIONS} has no line for {len(left)} of the images, such as {left[0]}")
    (part / "images").rmdir()
    (part / ANNOTATIONS).unlink()


def require_space(folder: Path, needed: int, why: str) -> None:
    """Raise ConfigError if the volume has less than ``needed`` bytes."""
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise ConfigError(
            f"the volume of {folder.parent} has {_in_words(free)} free and {_in_words(needed)} are needed ({why}): "
            "make room or use a larger one"
        )


def _unpack_zip(file: Path, uri: str, out: Path, log: Log) -> None:
    with zipfile.ZipFile(file) as archive:
        members = archive.infolist()
        total = sum(member.file_size for member in members)
        require_space(out, total, f"the content of {uri}")
        progress = Progress(log, KIND, "unpack", total)
        for member in members:
            archive.extract(member, out)  # drops leading slashes and .. by itself
            progress.add(member.file_size)


def _unpack_tar(file: Path, out: Path, log: Log) -> None:
    progress = Progress(log, KIND, "unpack")
    with tarfile.open(file) as archive:
        for member in archive:
            archive.extract(member, out, filter="data")
            progress.add(member.size)


@contextlib.contextmanager
def _opened(uri: str) -> Iterator[tuple[Iterator[bytes], int | None]]:
    """Yield the content of ``uri`` in pieces, and its length if that is known."""
    scheme = urlsplit(uri).scheme
    if scheme not in ("s3", "https", "http", "file"):
        raise ConfigError(f"--uri {uri!r}: use s3://bucket/key, https://... or file:///...")
    with contextlib.ExitStack() as stack:
        try:
            if scheme in ("s3", "file"):
                blob = stack.enter_context(Store().opened(uri))
                chunks = blob.stream(block=_REQUEST if scheme == "s3" else _CHUNK)
                opened: tuple[Iterator[bytes], int | None] = chunks, blob.size
            else:
                response = stack.enter_context(urllib.request.urlopen(uri, timeout=_TIMEOUT_SECONDS))
                length = response.headers.get("Content-Length")
                opened = iter(lambda: response.read(_CHUNK), b""), int(length) if length else None
        except (OSError, ValueError, http.client.HTTPException) as error:
            raise ConfigError(f"--uri {uri}: {error}") from error
        yield opened


def _next_chunk(chunks: Iterator[bytes], uri: str, done: int) -> bytes:
    """Return the next piece, empty at the end."""
    try:
        return next(chunks, b"")
    except (OSError, http.client.HTTPException) as error:
        raise TrainerError(f"--uri {uri} broke off after {done} bytes ({error}): run it again") from error


def _in_words(size: int) -> str:
    return f"{size / _MIB:,.0f} MiB" if size < 10 * 2**30 else f"{size / 2**30:,.0f} GiB"
