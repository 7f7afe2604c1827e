"""Checkpoints in a directory on any file system with rename and fsync: a local disk, EFS or NFS.

    step-000000000120/                            a checkpoint
    .step-000000000140-3f2a9c1d.writing/          a checkpoint that is being written
    .step-000000000140-3f2a9c1d.lock              locked as long as its writer is alive
    .step-000000000100-77b0e1f2.gone/             a checkpoint that is being removed

The kernel releases the lock when the writer dies, on any machine and without a clock. So the remains of a dead writer
are distinguished from a checkpoint that another one is writing. On a file system without locks, files that have not
changed for a while count as abandoned.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import secrets
import shutil
from collections.abc import Callable, Collection, Iterator
from io import FileIO
from pathlib import Path
from typing import Literal

from tidewater.elastic.checkpoint.manifest import name_of, step_of, unique_name_of
from tidewater.elastic.checkpoint.places import MANIFEST, Stored
from tidewater.elastic.storage import local

_WRITING, _GONE, _LOCK = ".writing", ".gone", ".lock"
_UNTOUCHED_SECONDS = 900.0
_TAKEN = (errno.ENOTEMPTY, errno.EEXIST)
_HELD = (errno.EWOULDBLOCK, errno.EACCES)


class Directory:
    """A place for checkpoints. The directory is created with the first checkpoint."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.text = str(folder)

    def stored(self) -> list[Stored]:
        """See ``Place``."""
        found = []
        for name in self._entries():
            step = step_of(name)
            if step is not None:
                with contextlib.suppress(FileNotFoundError, NotADirectoryError):
                    found.append(Stored(step, (self._folder / name / MANIFEST).stat().st_mtime, name))
        return sorted(found, reverse=True)

    def begin(self, step: int) -> _Upload:
        """See ``Place``. First removes the remains of dead writers, which may fill the volume."""
        self._folder.mkdir(parents=True, exist_ok=True)
        self._sweep()
        return _Upload(self._folder, step)

    def manifest(self, name: str) -> bytes:
        """See ``Place``."""
        return (self._folder / name / MANIFEST).read_bytes()

    @contextlib.contextmanager
    def fetched(self, name: str) -> Iterator[Path]:
        """See ``Place``."""
        yield self._folder / name

    def tidy(self, doomed: Callable[[list[Stored]], Collection[str]]) -> None:
        """See ``Place``."""
        for name in doomed(self.stored()):
            # Rename it first: a checkpoint that is partly removed must not look complete.
            gone = self._folder / f".{unique_name_of(step_of(name) or 0)}{_GONE}"
            with contextlib.suppress(FileNotFoundError):
                (self._folder / name).rename(gone)
                shutil.rmtree(gone)

    def put(self, name: str, data: bytes) -> None:
        """See ``Place``."""
        self._folder.mkdir(parents=True, exist_ok=True)
        local.write(self._folder / name, lambda file: file.write(data))

    def has(self, name: str) -> bool:
        """See ``Place``."""
        return name in self._entries()

    def _entries(self) -> list[str]:
        try:
            return os.listdir(self._folder)
        except FileNotFoundError:
            return []

    def _sweep(self) -> None:
        """Remove the remains of dead writers. Another process may do the same at the same time."""
        for name in self._entries():
            path = self._folder / name
            with contextlib.suppress(OSError):
                if name.startswith(".step-") and name.endswith(_GONE):
                    shutil.rmtree(path)
                elif name.startswith(".step-") and name.endswith((_WRITING, _LOCK)):
                    self._sweep_writer(path.with_suffix(""))

    def _sweep_writer(self, stem: Path) -> None:
        lock, writing = stem.with_suffix(_LOCK), stem.with_suffix(_WRITING)
        try:
            file = _Lock(lock, "rb+")
        except FileNotFoundError:  # another process is removing this one
            shutil.rmtree(writing)
            return
        try:
            if file.take() or (file.unsupported and self._untouched(stem)):
                with contextlib.suppress(FileNotFoundError):
                    shutil.rmtree(writing)
                lock.unlink(missing_ok=True)
        finally:
            file.close()

    def _untouched(self, stem: Path) -> bool:
        """Return the time by the file system's own clock, which may differ from the clocks of its clients."""
        probe = self._folder / f".{secrets.token_hex(4)}.clock"
        try:
            probe.touch()
            now = probe.stat().st_mtime
        finally:
            probe.unlink(missing_ok=True)
        writing = stem.with_suffix(_WRITING)
        paths = [writing, *writing.iterdir()] if writing.is_dir() else [stem.with_suffix(_LOCK)]
        return now - max(path.stat().st_mtime for path in paths) > _UNTOUCHED_SECONDS


class _Lock:
    """A lock on a file. Its holder is alive."""

    def __init__(self, path: Path, mode: Literal["xb", "rb+"]) -> None:
        self._file = path.open(mode)
        self.unsupported = False
        """Whether the file system has no locks; set by ``take``."""

    def take(self) -> bool:
        """Lock the file unless another process has locked it. Return whether it is locked now."""
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            self.unsupported = error.errno not in _HELD
            return False
        return True

    def is_at(self, path: Path) -> bool:
        """Return whether the file still exists. Another process may have removed it just before it was locked."""
        with contextlib.suppress(FileNotFoundError):
            return os.path.samestat(os.fstat(self._file.fileno()), path.stat())
        return False

    def close(self) -> None:
        """Unlock, also for forked processes that have inherited the file."""
        if not self._file.closed:
            with contextlib.suppress(OSError):
                fcntl.flock(self._file, fcntl.LOCK_UN)
            self._file.close()


class _File(FileIO):
    """A file; ``close`` waits until the data is on the disk."""

    def write(self, data: memoryview, /) -> int:  # type: ignore[override]
        """Write all of ``data``. A nearly full volume accepts a part first, and fails at the next call."""
        written = 0
        while written < len(data):
            written += super().write(data[written:]) or 0
        return written

    def close(self) -> None:
        """Close the file. Raise OSError if the disk did not store it."""
        if not self.closed:
            try:
                os.fsync(self.fileno())
            finally:
                super().close()


class _Upload:
    """One checkpoint, in a hidden directory until it is complete."""

    def __init__(self, folder: Path, step: int) -> None:
        self._folder, self._step = folder, step
        while True:
            self._stem = folder / f".{unique_name_of(step)}"
            self._lock = _Lock(self._stem.with_suffix(_LOCK), "xb")
            # Create the lock before the directory, so that `sweep` never finds a directory without a lock.
            if (self._lock.take() or self._lock.unsupported) and self._lock.is_at(self._stem.with_suffix(_LOCK)):
                break
            self._lock.close()
        self._writing = self._stem.with_suffix(_WRITING)
        self._files: list[_File] = []
        try:
            self._writing.mkdir()
        except OSError:
            self._release()
            raise

    def create(self, name: str) -> _File:
        """See ``Upload``."""
        self._files.append(_File(self._writing / name, "xb"))
        return self._files[-1]

    def commit(self, manifest: bytes) -> str:
        """See ``Upload``."""
        local.write(self._writing / MANIFEST, lambda file: file.write(manifest))
        name = name_of(self._step)
        try:
            self._writing.rename(self._folder / name)
        except OSError as error:
            if error.errno not in _TAKEN:
                raise
            # A checkpoint of this step from before a resume stays until this one is complete, and may be of another
            # lineage. The manifests tell them apart.
            name = unique_name_of(self._step)
            self._writing.rename(self._folder / name)
        local.sync(self._folder)
        self._release()
        return name

    def abort(self) -> None:
        """See ``Upload``."""
        for file in self._files:
            with contextlib.suppress(OSError):
                FileIO.close(file)  # without fsync
        shutil.rmtree(self._writing, ignore_errors=True)
        self._release()

    def _release(self) -> None:
        with contextlib.suppress(OSError):
            self._stem.with_suffix(_LOCK).unlink(missing_ok=True)
        self._lock.close()
