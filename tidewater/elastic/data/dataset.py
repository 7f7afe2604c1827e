"""Puts a dataset on the shared volume, once, and verifies it: the ``dataset`` sub-command.

    python -m tidewater.elastic dataset --name digits --out /data/digits
    python -m tidewater.elastic dataset --uri s3://bucket/images.tar.gz --out /data/images

The result is an ImageFolder, ``train/<class>/*.png`` and ``val/<class>/*.png``. An existing dataset is verified, and
created again if it is damaged: see `storage.filled`.

An archive is stored on the volume before it is unpacked, never in memory, and needs about twice its size there. If
validation images have a val_annotations.txt, like those of tiny-imagenet, they are moved to folders for their classes.
"""

from __future__ import annotations

import gzip
import importlib.resources
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tidewater.elastic.data.archive import KIND, fetch, make_class_folders, unpack
from tidewater.elastic.errors import ConfigError
from tidewater.elastic.observe.log import Log
from tidewater.elastic.storage.filled import CONTENT, Filled, names

EFS_READ = 0.03
"""US dollars for a GB that is read with elastic throughput: https://aws.amazon.com/efs/pricing/"""
EFS_DAY = "2026-11-27"
EFS_GB = 2**30
"""EFS meters in binary units: https://docs.aws.amazon.com/efs/latest/ug/metered-sizes.html"""

_VAL_SHARE = 5
"""One of five images of each class is for validation."""


@dataclass(frozen=True)
class Source:
    """What to prepare: a named dataset, or an archive of an ImageFolder by its address."""

    name: str | None = None
    uri: str | None = None

    def __str__(self) -> str:
        return self.uri or self.name or ""


def prepare(source: Source, out: Path, log: Log) -> None:
    """Create and verify the dataset at ``out``. Raise ConfigError that names what is wrong with the input."""
    write = _writer(source, log)

    def checked(draft: Path) -> None:
        write(draft)
        found = names(draft / CONTENT)
        if not all(any(name.startswith(part) for name in found) for part in ("train/", "val/")):
            raise ConfigError(f"{source} is not an ImageFolder: it needs train/<class>/ and val/<class>/ with images")

    made = folder(source, out, log)
    made.fill(checked)
    log.event(f"{KIND}_cost", **cost(made.size))


def cost(size: int) -> dict[str, str | float]:
    """Return what one epoch reads of a dataset of so many bytes, and what EFS bills for it, for the log."""
    read = size / EFS_GB
    return {
        "gb_per_epoch": round(read, 3),
        "usd_per_epoch": round(read * EFS_READ, 4),
        "note": f"if the volume is EFS with elastic throughput, at ${EFS_READ} for each GB read ({EFS_DAY}, us-west-2; "
        "check yours); a folder in S3 (datasetStorage: s3) has no price by the byte",
    }


def folder(source: Source, out: Path, log: Log) -> Filled:
    """Return the dataset's folder."""
    return Filled(out, str(source), log, kind=KIND)


def _writer(source: Source, log: Log) -> Callable[[Path], None]:
    """Return the function that fills the ``content`` of a draft."""
    if source.uri:
        return lambda draft: _bring(source.uri or "", draft, log)
    if source.name == "digits":
        return lambda draft: _write_digits(draft / CONTENT)
    raise ConfigError(f"--name {source.name!r} is not a known dataset: use digits, or --uri for your own")


def _bring(uri: str, draft: Path, log: Log) -> None:
    fetch(uri, draft / "archive", log)
    unpack(draft / "archive", uri, draft / CONTENT, log)
    (draft / "archive").unlink()
    make_class_folders(draft / CONTENT / "val")


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
