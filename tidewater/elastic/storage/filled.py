"""A folder of the shared volume that a program fills once: it is complete, or it is absent.

    folder = Filled(Path("/data/digits"), "digits", log, kind="dataset")
    folder.fill(write)             # does nothing if the folder is there, intact and of this source
    folder.problem()               # None, or what is wrong with the folder

`write` gets a draft next to the folder and makes `content` in it, which is then renamed. What a killed program has left
counts for nothing, and the next one removes it. Several processes may fill a folder at the same time. A manifest in the
folder has the sha256 of every file; a damaged folder is filled again.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import json
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tidewater.elastic.errors import ConfigError
from tidewater.elastic.observe.log import Log

MANIFEST = "manifest.json"
CONTENT = "content"
_VERSION = 1
_MIB = 2**20
_SAY_SECONDS = 5.0


class Progress:
    """Logs from time to time how much of an operation is done, as the event ``KIND_progress``."""

    def __init__(
        self, log: Log, kind: str, doing: str, total: int | None = None, *, every_seconds: float = _SAY_SECONDS
    ) -> None:
        self._log, self._kind, self._doing, self._total, self._every = log, kind, doing, total, every_seconds
        self.done = 0
        self._began = self._said = time.monotonic()

    def add(self, size: int) -> None:
        """Count further bytes as done."""
        self.done += size
        now = time.monotonic()
        if now - self._said < self._every:
            return
        self._said = now
        self._log.event(
            f"{self._kind}_progress",
            doing=self._doing,
            mib=self.done // _MIB,
            of_mib=None if self._total is None else self._total // _MIB,
            seconds=round(now - self._began, 1),
        )


class Filled:
    """The folder `out`, which contains what is made of `source`. The names of its events begin with `kind`."""

    def __init__(self, out: Path, source: str, log: Log, *, kind: str) -> None:
        self._out, self._source, self._log, self._kind = out, source, log, kind
        self.size = 0
        """Bytes of the files, once they have been verified."""

    def fill(self, write: Callable[[Path], None]) -> None:
        """Fill the folder, unless it is there and intact.

        Raises:
            ConfigError: what was written is not what is read back, or the volume is full; and what `write` raises.
        """
        out = self._out
        out.parent.mkdir(parents=True, exist_ok=True)
        with _locked(out.parent / f".{out.name}.lock"):
            for left in out.parent.glob(f".{out.name}.draft-*"):  # from a killed process: this one has the lock
                shutil.rmtree(left, ignore_errors=True)
            problem = self.problem()
            if problem:
                if out.exists():
                    self._log.event(f"{self._kind}_damaged", out=str(out), problem=problem)
                self._log.event(f"{self._kind}_writing", source=self._source, out=str(out))
                self._replace(write)
                if problem := self.problem():
                    raise ConfigError(f"the {self._kind} at {out} does not read back as written: {problem}")
            files = len(self._manifest()["files"])
            self._log.event(f"{self._kind}_ready", source=self._source, out=str(out), files=files)

    def problem(self) -> str | None:
        """Return None if the folder contains all of its source, otherwise what is wrong."""
        try:
            manifest = self._manifest()
        except (OSError, ValueError) as error:
            return f"no readable {MANIFEST} ({error})"
        if manifest.get("version") != _VERSION or manifest.get("source") != self._source:
            return f"it contains {manifest.get('source')!r}, version {manifest.get('version')}"
        progress = Progress(self._log, self._kind, "verify")
        for name, digest in manifest["files"].items():
            try:
                found = _digest(self._out / name, progress)
            except OSError:
                return f"{name} is missing"
            if found != digest:
                return f"{name} is damaged"
        self.size = progress.done
        return None

    def _manifest(self) -> dict[str, Any]:
        return dict(json.loads((self._out / MANIFEST).read_text()))

    def _replace(self, write: Callable[[Path], None]) -> None:
        out = self._out
        draft = Path(tempfile.mkdtemp(prefix=f".{out.name}.draft-", dir=out.parent))
        try:
            write(draft)
            fresh = draft / CONTENT
            progress = Progress(self._log, self._kind, "digest")
            files = {name: _digest(fresh / name, progress) for name in names(fresh)}
            (fresh / MANIFEST).write_text(json.dumps({"version": _VERSION, "source": self._source, "files": files}))
            fresh.chmod(0o755)
            if out.exists():
                shutil.rmtree(out)
            fresh.rename(out)
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            raise ConfigError(f"the volume of {out} is full: make room there or use a larger one") from error
        finally:
            shutil.rmtree(draft, ignore_errors=True)


def names(folder: Path) -> list[str]:
    """Return the paths of all files in a folder, from the folder."""
    return sorted(str(file.relative_to(folder)) for file in folder.rglob("*") if file.is_file())


def _digest(file: Path, progress: Progress) -> str:
    with file.open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
        progress.add(stream.tell())
    return digest


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
