"""Images in ImageFolder layout as tensors, with an augmentation that depends on nothing but the sample.

    data = ImageFolder(Path("/data/digits/train"))
    images, labels = data.batch((5, 17, 3), augment=Augment(seed=0, epoch=2))

Every random choice is a function of (seed, epoch, sample), so a sample looks the same whichever rank handles it,
and no random state has to move when ranks come and go.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from trainer.errors import ConfigError

SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp")


@dataclass(frozen=True)
class Augment:
    """Shift each image by up to one eighth of its size (at least one pixel) in both directions."""

    seed: int
    epoch: int

    def shift(self, sample: int, reach: int) -> tuple[int, int]:
        """Rows and columns to move this sample by, each in [-reach, reach]."""
        digest = hashlib.blake2b(f"{self.seed}/{self.epoch}/{sample}".encode(), digest_size=4).digest()
        span = 2 * reach + 1
        return digest[0] % span - reach, digest[1] % span - reach


class ImageFolder:
    """``<root>/<class>/<image>``, sorted by name; decoded images are kept in memory as bytes per pixel."""

    def __init__(self, root: Path) -> None:
        self.classes = tuple(sorted(entry.name for entry in root.iterdir() if entry.is_dir())) if root.is_dir() else ()
        self.files = tuple(
            (file, label)
            for label, name in enumerate(self.classes)
            for file in sorted((root / name).iterdir())
            if file.suffix.lower() in SUFFIXES
        )
        if not self.files:
            raise ConfigError(
                f"{root} holds no images (<class>/<image>.png): run `trainer dataset` first, or see --data"
            )
        with Image.open(self.files[0][0]) as first:
            self._mode = "L" if first.mode in ("1", "L", "I", "I;16", "F") else "RGB"
            self._size = first.size
        self._cache: dict[int, np.ndarray[tuple[int, ...], np.dtype[np.uint8]]] = {}

    def __len__(self) -> int:
        return len(self.files)

    @property
    def channels(self) -> int:
        """1 for grey images, 3 for colour."""
        return 1 if self._mode == "L" else 3

    @cached_property
    def digest(self) -> str:
        """Identifies the list of files and classes: workers with different data must not train together."""
        names = "\n".join(f"{label} {file.name}" for file, label in self.files)
        return hashlib.sha256(names.encode()).hexdigest()[:16]

    def batch(self, samples: tuple[int, ...], augment: Augment | None = None) -> tuple[torch.Tensor, torch.Tensor]:
        """Images ``[n, channels, h, w]`` as floats in [-1, 1], and labels ``[n]``."""
        pixels = [self._pixels(sample) for sample in samples]
        if augment:
            reach = max(1, min(self._size) // 8)
            shifts = [augment.shift(sample, reach) for sample in samples]
            pixels = [_shifted(image, *shift) for image, shift in zip(pixels, shifts, strict=True)]
        images = torch.from_numpy(np.stack(pixels)).permute(0, 3, 1, 2).float().div_(127.5).sub_(1)
        return images.contiguous(), torch.tensor([self.files[sample][1] for sample in samples])

    def _pixels(self, sample: int) -> np.ndarray[tuple[int, ...], np.dtype[np.uint8]]:
        if sample not in self._cache:
            file = self.files[sample][0]
            try:
                with Image.open(file) as image:
                    fitted = image.convert(self._mode).resize(self._size)
            except OSError as error:
                raise ConfigError(f"{file} is not a readable image ({error}): run `trainer dataset` again") from error
            self._cache[sample] = np.asarray(fitted, dtype=np.uint8).reshape(self._size[1], self._size[0], -1)
        return self._cache[sample]


def _shifted(
    image: np.ndarray[tuple[int, ...], np.dtype[np.uint8]], rows: int, columns: int
) -> np.ndarray[tuple[int, ...], np.dtype[np.uint8]]:
    """The image moved down by ``rows`` and right by ``columns``; black comes in at the edges."""
    moved = np.zeros_like(image)
    height, width = image.shape[:2]
    to_rows, to_columns = slice(max(rows, 0), height + min(rows, 0)), slice(max(columns, 0), width + min(columns, 0))
    from_rows, from_columns = (
        slice(max(-rows, 0), height - max(rows, 0)),
        slice(max(-columns, 0), width - max(columns, 0)),
    )
    moved[to_rows, to_columns] = image[from_rows, from_columns]
    return moved
