"""Writes a dataset as RecordIO: what `elasticdl data write` does.

    write("digits", "/data/digits", Options())
    # /data/digits/train/data-00000, /data/digits/train/_manifest.json, /data/digits/test/…

Without a part for testing the files are directly in the folder. A folder appears when it is complete. In S3 the
manifest of each part comes last.
"""

from __future__ import annotations

import hashlib
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from elasticdl.data.recordio import manifest
from elasticdl.data.recordio.writer import RecordWriter
from elasticdl.data.storage import STORE
from elasticdl.data.writing.sources import Asked, open_source
from elasticdl.errors import DataError, InputError
from tidewater.elastic.storage.local import explained
from tidewater.elastic.storage.s3 import SCHEME
from tidewater.elastic.storage.store import joined

TRAIN, TEST = "train", "test"
_SHARE_STEPS = 2**32


@dataclass(frozen=True)
class Options:
    """How to write."""

    records_per_shard: int = 16 * 1024
    """Records in a file. The default is ElasticDL's."""
    test_share: float | None = None
    """What part of the records goes to `test/`, from 0 to 1; None: 0.2 of a dataset with a name, 0 of an address."""
    asked: Asked = field(default_factory=Asked)
    """Of the source."""


@dataclass(frozen=True)
class Part:
    """A folder that was written."""

    address: str
    files: int
    records: int
    bytes: int


def write(source: str, out: str, options: Options) -> list[Part]:
    """Write a source to a folder or an `s3://` prefix, which must be empty.

    Args:
        source: `digits`, `generated-clicks`, or an address that `open_reader` knows.
        out: where to.
        options: how.

    Raises:
        InputError: An option is wrong, the source can't be read, or something is at `out`. Nothing is left there.
    """
    if options.records_per_shard < 1:
        raise InputError(f"records_per_shard is {options.records_per_shard}", "give at least 1")
    opened = open_source(source, options.asked)
    share = opened.test_share if options.test_share is None else options.test_share
    if not 0 <= share < 1:
        raise InputError(f"test_share is {share}", "give a number from 0 up to, but not, 1")
    with _draft(out) as draft:
        writers = {
            name: _Files(draft / name, options.records_per_shard) for name in ((TRAIN, TEST) if share else ("",))
        }
        for index, record in enumerate(opened.records()):
            part = "" if not share else TEST if _is_test(index, share) else TRAIN
            writers[part].write(record)
        return [_finished(name, files, out, opened.about) for name, files in writers.items()]


class _Files:
    """Files data-00000, data-00001, … of one part."""

    def __init__(self, folder: Path, records_per_shard: int) -> None:
        self.folder = folder
        self.written: dict[str, manifest.Written] = {}
        self._records_per_shard = records_per_shard
        self._writer: RecordWriter | None = None
        folder.mkdir(parents=True, exist_ok=True)

    def write(self, record: bytes) -> None:
        if self._writer is None:
            path = self.folder / f"data-{len(self.written):05}"
            self._writer = RecordWriter(path)
        self._writer.write(record)
        if self._writer.records == self._records_per_shard:
            self.close()

    def close(self) -> None:
        if self._writer is not None:
            self.written[f"data-{len(self.written):05}"] = self._writer.close()
            self._writer = None


def _finished(name: str, files: _Files, out: str, about: str) -> Part:
    """Write a part's manifest; return what to say of the part."""
    files.close()
    if not files.written:
        raise DataError(f"{about}: there are no records for {name or out}", "choose another test_share or source")
    (files.folder / manifest.NAME).write_bytes(manifest.to_json(files.written, about))
    said = files.written.values()
    address = f"{out.rstrip('/')}/{name}" if name else out
    return Part(address, len(said), sum(each.records for each in said), sum(each.bytes for each in said))


@contextmanager
def _draft(out: str) -> Iterator[Path]:
    """Yield an empty folder; afterwards put its content at an address, all or nothing."""
    if out.startswith(SCHEME):
        if STORE.sizes(out):
            raise DataError(f"{out} is not empty", "choose another prefix, or remove what is there")
        with tempfile.TemporaryDirectory(prefix="elasticdl-data-") as folder:
            yield Path(folder)
            paths = [path for path in Path(folder).rglob("*") if path.is_file()]
            for path in sorted(paths, key=lambda path: path.name == manifest.NAME):
                STORE.uploaded(path, joined(out, path.relative_to(folder).as_posix()))
        return
    target = STORE.path(out).absolute()
    with explained(out, STORE.errors):
        if target.exists() and (not target.is_dir() or any(target.iterdir())):
            raise DataError(f"{out} is there already, and not empty", "choose another folder, or remove it")
        target.parent.mkdir(parents=True, exist_ok=True)
        draft = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
        try:
            yield draft
            draft.chmod(0o755)  # mkdtemp's is for its user alone, and pods have another one
            draft.rename(target)
        except BaseException:
            shutil.rmtree(draft, ignore_errors=True)
            raise


def _is_test(index: int, share: float) -> bool:
    """Return whether a record is for testing: by its index alone, without any order in it."""
    drawn = int.from_bytes(hashlib.sha256(b"test %d" % index).digest()[:4], "little")
    return drawn < share * _SHARE_STEPS
