"""Images on a volume as a dataset. ``tidewater.elastic.data.folders`` describes the layouts.

    train = ImageFolder(Path("/data/digits/train"))
    val = ImageFolder(Path("/data/digits/val"), like=train)
    train[5]                                # (uint8 tensor [channels, height, width], label)

The decoded images of a small dataset stay in memory. Worker processes that are forked after the ImageFolder was created
share this memory. An image is read when it is first needed, so the start takes no extra time.
"""

from __future__ import annotations

import hashlib
import math
import mmap
import multiprocessing
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch.utils.data import Dataset

from tidewater import ConfigError
from tidewater.elastic.data import folders

_GREY_MODES = ("1", "L", "I", "I;16", "F")
_MIB = 2**20

Pixels = np.ndarray[tuple[int, ...], np.dtype[np.uint8]]
Transform = Callable[[torch.Tensor], torch.Tensor]


class ImageFolder(Dataset[tuple[torch.Tensor, int]]):
    """Images and labels. A label is the index of its class in ``classes``.

    Args:
        root: The folder that contains the folders of the classes.
        like: For validation data: the training data, which determines the classes and the number of channels.
        memory_mib: A dataset is kept in memory if its decoded size is at most this.

    ``transform`` converts a stored image to the dataset's item. Set it before worker processes are forked. It must use
    the global random generators, which are seeded for each sample (see ``tidewater.elastic.data.loader``).

    Raise ConfigError if there are no images, or images of other classes. Indexing raises it for an unreadable image.
    """

    transform: Transform | None = None

    def __init__(self, root: Path, *, like: ImageFolder | None = None, memory_mib: int = 0) -> None:
        self.root = root
        self.classes: tuple[str, ...] = like.classes if like else folders.classes(root)
        self.files = folders.images(root, self.classes)
        if not self.files:
            raise ConfigError(
                f"{root} holds no images (<class>/<image>.png): run `trainer dataset` first, or see --data"
            )
        mode, width, height = _header(self.files[0][0])
        self.size = (height, width)
        """Return the height and width of the first image."""
        self.channels: int = like.channels if like else 1 if mode in _GREY_MODES else 3
        """Return 1 for grey images and 3 for colour images, according to the first image."""
        shape = (height, width, self.channels)
        kept = len(self.files) * math.prod(shape) <= memory_mib * _MIB
        self._memory = _Memory(len(self.files), shape) if kept else None

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        image = torch.from_numpy(self.pixels(index)).permute(2, 0, 1)
        return (self.transform(image) if self.transform else image), self.files[index][1]

    @cached_property
    def digest(self) -> str:
        """Return a digest of the list of files and classes: workers with different data must not train together."""
        digest = hashlib.sha256()
        for file, label in self.files:
            digest.update(f"{label} {file.relative_to(self.root)}\n".encode())
        return digest.hexdigest()[:16]

    def pixels(self, index: int) -> Pixels:
        """Return one stored image, ``[height, width, channels]``. The caller must not change it."""
        if self._memory is None:
            return self._decoded(index)
        kept = self._memory.get(index)
        return kept if kept is not None else self._memory.put(index, self._decoded(index))

    def _decoded(self, index: int) -> Pixels:
        file = self.files[index][0]
        try:
            with Image.open(file) as image:
                pixels = np.array(image.convert("L" if self.channels == 1 else "RGB"), dtype=np.uint8)
        except (OSError, SyntaxError, ValueError) as error:  # PIL raises these for damaged files
            raise _unreadable(file, error) from error
        return pixels.reshape(*pixels.shape[:2], self.channels)


class _Memory:
    """Decoded images of one size, shared with processes that are forked later."""

    def __init__(self, count: int, shape: tuple[int, ...]) -> None:
        # Anonymous memory is not limited by /dev/shm, which is small in containers.
        buffer = mmap.mmap(-1, count * math.prod(shape))
        self._images: Pixels = np.frombuffer(buffer, dtype=np.uint8).reshape(count, *shape)
        self._there: Pixels = np.frombuffer(mmap.mmap(-1, count), dtype=np.uint8)
        # A reader that sees the mark must see the pixels: the lock keeps the order of the two writes.
        self._lock: Any = multiprocessing.get_context("fork").Lock()

    def get(self, index: int) -> Pixels | None:
        image: Pixels = self._images[index]
        return image if self._there[index] else None

    def put(self, index: int, image: Pixels) -> Pixels:
        """Keep ``image`` if it has the size of the others. Return it."""
        if image.shape == self._images.shape[1:]:
            self._images[index] = image
            with self._lock:
                self._there[index] = 1
        return image


def _header(file: Path) -> tuple[str, int, int]:
    """Return mode, width and height."""
    try:
        with Image.open(file) as image:
            return (image.mode, *image.size)
    except (OSError, SyntaxError, ValueError) as error:
        raise _unreadable(file, error) from error


def _unreadable(file: Path, error: Exception) -> ConfigError:
    return ConfigError(f"{file} is not a readable image ({error}): run `trainer dataset` again")
