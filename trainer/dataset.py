"""Puts a dataset on the shared volume, once, and verifies it: the ``dataset`` sub-command.

    python -m trainer dataset --name digits --out /data/digits
    python -m trainer dataset --uri s3://bucket/images.tar.gz --out /data/images

The result is an ImageFolder, ``train/<class>/*.png`` and ``val/<class>/*.png``, beside a manifest with the sha256
of every file. It is made in a directory next to its place and renamed into it, so it is there whole or not at all;
several processes may try at the same time. What is there already is verified, and made anew if it is damaged.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import io
import json
import os
import shutil
import tarfile
import tempfile
import urllib.request
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from trainer.errors import ConfigError
from trainer.log import Log

MANIFEST = "manifest.json"
_VERSION = 1
_VAL_SHARE = 5
"""One image in five of each class is for validation."""


@dataclass(frozen=True)
class Source:
    """What to put there: a named dataset, or an archive of an ImageFolder by its address."""

    name: str | None = None
    uri: str | None = None

    def __str__(self) -> str:
        return self.uri or self.name or ""


def prepare(source: Source, out: Path, log: Log) -> None:
    """Have the dataset at ``out``, whole and verified. Raises ConfigError naming what is wrong with the input."""
    write = _writer(source)
    out.parent.mkdir(parents=True, exist_ok=True)
    with _locked(out.parent / f".{out.name}.lock"):
        problem = verify(out, source)
        if problem is None:
            log.event("dataset_ready", source=str(source), out=str(out), files=len(_manifest(out)["files"]))
            return
        if out.exists():
            log.event("dataset_damaged", out=str(out), problem=problem)
        log.event("dataset_writing", source=str(source), out=str(out))
        _replace(out, source, write)
        problem = verify(out, source)
        if problem:
            raise ConfigError(f"the dataset at {out} does not read back as written: {problem}")
        log.event("dataset_ready", source=str(source), out=str(out), files=len(_manifest(out)["files"]))


def verify(out: Path, source: Source) -> str | None:
    """None if ``out`` holds all of ``source``, else what is wrong."""
    try:
        manifest = _manifest(out)
    except (OSError, ValueError) as error:
        return f"no readable {MANIFEST} ({error})"
    if manifest.get("version") != _VERSION or manifest.get("source") != str(source):
        return f"it holds {manifest.get('source')!r}, version {manifest.get('version')}"
    for name, digest in manifest["files"].items():
        try:
            found = hashlib.sha256((out / name).read_bytes()).hexdigest()
        except OSError:
            return f"{name} is missing"
        if found != digest:
            return f"{name} is damaged"
    return None


def _manifest(out: Path) -> dict[str, Any]:
    return dict(json.loads((out / MANIFEST).read_text()))


def _replace(out: Path, source: Source, write: Callable[[Path], None]) -> None:
    fresh = Path(tempfile.mkdtemp(prefix=f".{out.name}.", dir=out.parent))
    try:
        write(fresh)
        names = sorted(str(file.relative_to(fresh)) for file in fresh.rglob("*") if file.is_file())
        if not any(name.startswith("train/") for name in names) or not any(name.startswith("val/") for name in names):
            raise ConfigError(f"{source} is not an ImageFolder: it needs train/<class>/ and val/<class>/ with images")
        files = {name: hashlib.sha256((fresh / name).read_bytes()).hexdigest() for name in names}
        (fresh / MANIFEST).write_text(json.dumps({"version": _VERSION, "source": str(source), "files": files}))
        fresh.chmod(0o755)
        if out.exists():
            shutil.rmtree(out)
        fresh.rename(out)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _writer(source: Source) -> Callable[[Path], None]:
    if source.uri:
        return lambda out: _unpack(_fetch(source.uri or ""), source.uri or "", out)
    if source.name == "digits":
        return _write_digits
    raise ConfigError(f"--name {source.name!r} is not a dataset that is known here: use digits, or --uri for your own")


def _write_digits(out: Path) -> None:
    """The 1,797 handwritten digits, 8 x 8 pixels in 17 shades, that scikit-learn carries (UCI ML repository)."""
    import numpy as np
    from PIL import Image
    from sklearn.datasets import load_digits

    digits = load_digits()
    seen: dict[int, int] = {}
    for index, (pixels, label) in enumerate(zip(digits.images, digits.target.tolist(), strict=True)):
        seen[label] = seen.get(label, 0) + 1
        part = "val" if seen[label] % _VAL_SHARE == 0 else "train"
        folder = out / part / str(label)
        folder.mkdir(parents=True, exist_ok=True)
        grey = np.rint(pixels * (255 / 16)).astype(np.uint8)
        Image.fromarray(grey).save(folder / f"{index:04d}.png")


def _fetch(uri: str) -> bytes:
    scheme = urlsplit(uri).scheme
    try:
        if scheme == "s3":
            import boto3

            parts = urlsplit(uri)
            body = boto3.client("s3").get_object(Bucket=parts.netloc, Key=parts.path.lstrip("/"))["Body"]
            return bytes(body.read())
        if scheme in ("https", "http", "file"):
            with urllib.request.urlopen(uri, timeout=60) as response:
                return bytes(response.read())
    except Exception as error:  # boto3 and urllib have no common base; each says what failed
        raise ConfigError(f"--uri {uri}: {error}") from error
    raise ConfigError(f"--uri {uri!r}: use s3://bucket/key, https://... or file:///...")


def _unpack(data: bytes, uri: str, out: Path) -> None:
    """A zip or tar archive; a single directory at its top is left away."""
    stream = io.BytesIO(data)
    try:
        if zipfile.is_zipfile(stream):
            with zipfile.ZipFile(stream) as archive:
                archive.extractall(out)  # drops leading slashes and .. by itself
        else:
            stream.seek(0)
            with tarfile.open(fileobj=stream) as tar:
                tar.extractall(out, filter="data")
    except (tarfile.TarError, zipfile.BadZipFile) as error:
        raise ConfigError(f"--uri {uri} is neither a zip nor a tar archive: {error}") from error
    inner = [entry for entry in out.iterdir() if not entry.name.startswith(".")]
    if len(inner) == 1 and inner[0].is_dir() and inner[0].name != "train":
        for entry in list(inner[0].iterdir()):
            os.rename(entry, out / entry.name)
        inner[0].rmdir()
