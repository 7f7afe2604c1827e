"""Puts a dataset on the shared volume, once, and verifies it: the ``dataset`` sub-command.

    python -m tidewater.elastic dataset --name digits --out /data/digits
    python -m tidewater.elastic dataset --uri s3://bucket/images.tar.gz --out /data/images

The result is an ImageFolder, ``train/<class>/*.png`` and ``val/<class>/*.png``, and a manifest with the sha256 of every
file. It is written to a temporary directory and then renamed, so it is either complete or absent. Several processes may
do this at the same time. An existing dataset is verified, and created again if it is damaged.

An archive is stored on the volume before it is unpacked, never in memory, and needs about twice its size there. If
validation images have a val_annotations.txt, like those of tiny-imagenet, they are moved to folders for their classes.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import gzip
import hashlib
import importlib.resources
import json
import shutil
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tidewater.elastic.data.archive import Progress, fetch, make_class_folders, unpack
from tidewater.elastic.errors import ConfigError
from tidewater.elastic.observe.log import Log

MANIFEST = "manifest.json"
_VERSION = 1
_VAL_SHARE = 5
"""One of five images of each class is for validation."""


@dataclass(frozen=True)
class Source:
    """What to prepare: a named dataset, or an archive of an ImageFolder by its address."""

    name: str | None = None
    uri: str | None = None

    def __str__(self) -> str:
        return self.uri or self.name or ""


Write = Callable[[Path, Log], None]


def prepare(source: Source, out: Path, log: Log) -> None:
    """Create and verify the dataset at ``out``. Raise ConfigError that names what is wrong with the input."""
    write = _writer(source)
    out.parent.mkdir(parents=True, exist_ok=True)
    with _locked(out.parent / f".{out.name}.lock"):
        for left in out.parent.glob(f".{out.name}.draft-*"):  # from a killed process: this one has the lock
            shutil.rmtree(left, ignore_errors=True)
        problem = verify(out, source, log)
        if problem is None:
            log.event("dataset_ready", source=str(source), out=str(out), files=len(_manifest(out)["files"]))
            return
        if out.exists():
            log.event("dataset_damaged", out=str(out), problem=problem)
        log.event("dataset_writing", source=str(source), out=str(out))
        _replace(out, source, write, log)
        problem = verify(out, source, log)
        if problem:
            raise ConfigError(f"the dataset at {out} does not read back as written: {problem}")
        log.event("dataset_ready", source=str(source), out=str(out), files=len(_manifest(out)["files"]))


def verify(out: Path, source: Source, log: Log) -> str | None:
    """Return None if ``out`` contains all of ``source``, otherwise what is wrong."""
    try:
        manifest = _manifest(out)
    except (OSError, ValueError) as error:
        return f"no readable {MANIFEST} ({error})"
    if manifest.get("version") != _VERSION or manifest.get("source") != str(source):
        return f"it contains {manifest.get('source')!r}, version {manifest.get('version')}"
    progress = Progress(log, "verify")
    for name, digest in manifest["files"].items():
        try:
            found = _digest(out / name, progress)
        except OSError:
            return f"{name} is missing"
        if found != digest:
            return f"{name} is damaged"
    return None


def _manifest(out: Path) -> dict[str, Any]:
    return dict(json.loads((out / MANIFEST).read_text()))


def _digest(file: Path, progress: Progress) -> str:
    with file.open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
        progress.add(stream.tell())
    return digest


def _replace(out: Path, source: Source, write: Write, log: Log) -> None:
    draft = Path(tempfile.mkdtemp(prefix=f".{out.name}.draft-", dir=out.parent))
    try:
        write(draft, log)
        fresh = draft / "content"
        names = sorted(str(file.relative_to(fresh)) for file in fresh.rglob("*") if file.is_file())
        if not any(name.startswith("train/") for name in names) or not any(name.startswith("val/") for name in names):
            raise ConfigError(f"{source} is not an ImageFolder: it needs train/<class>/ and val/<class>/ with images")
        progress = Progress(log, "digest")
        files = {name: _digest(fresh / name, progress) for name in names}
        (fresh / MANIFEST).write_text(json.dumps({"version": _VERSION, "source": str(source), "files": files}))
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


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _writer(source: Source) -> Write:
    """Return the function that fills the ``content`` of a draft."""
    if source.uri:
        return lambda draft, log: _bring(source.uri or "", draft, log)
    if source.name == "digits":
        return lambda draft, log: _write_digits(draft / "content")
    raise ConfigError(f"--name {source.name!r} is not a known dataset: use digits, or --uri for your own")


def _bring(uri: str, draft: Path, log: Log) -> None:
    fetch(uri, draft / "archive", log)
    unpack(draft / "archive", uri, draft / "content", log)
    (draft / "archive").unlink()
    make_class_folders(draft / "content" / "val")


def _digits() -> Iterator[tuple[list[int], str]]:
    """Yield the 64 pixels, 0 to 16, and the label of each of 1,797 handwritten digits.

    E. Alpaydin and C. Kaynak, Optical Recognition of Handwritten Digits, UCI Machine Learning Repository (CC BY 4.0):
    the test set, as scikit-learn ships it. https://archive.ics.uci.edu/dataset/80
    """
    packed = importlib.resources.files("tidewater.elastic.data").joinpath("digits.csv.gz").read_bytes()
    for line in gzip.decompress(packed).decode().splitlines():
        *pixels, label = line.split(",")
        yield [int(pixel) for pixel in pixels], label


def _write_digits(out: Path) -> None:
    """Write the digits as images of 8 x 8 pixels in 17 shades."""
    import numpy as np
    from PIL import Image

    seen: dict[str, int] = {}
    for index, (pixels, label) in enumerate(_digits()):
        seen[label] = seen.get(label, 0) + 1
        part = "val" if seen[label] % _VAL_SHARE == 0 else "train"
        folder = out / part / label
        folder.mkdir(parents=True, exist_ok=True)
        grey = np.rint(np.reshape(pixels, (8, 8)) * (255 / 16)).astype(np.uint8)
        Image.fromarray(grey).save(folder / f"{index:04d}.png")
