"""Places for checkpoints: the operations of a place. ``option`` makes places from the text of the command line.

Every method of any kind of place raises OSError if the place refuses or can't be reached: ``Missing`` of the storage if
there is no such bucket. Only one thread uses a place at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

MANIFEST = "manifest.json"


@dataclass(frozen=True, order=True)
class Stored:
    """One checkpoint in a place that appears complete; the greatest is the newest."""

    step: int
    written: float
    """Time by the place's own clock. It decides between two checkpoints of one step."""
    name: str


class Stream(Protocol):
    """One file that is written to a place."""

    def write(self, data: memoryview, /) -> object:
        """Write all of ``data``."""

    def close(self) -> None:
        """Return when the file is stored durably."""


class Upload(Protocol):
    """One checkpoint that is written to a place. It is invisible before ``commit``."""

    def create(self, name: str) -> Stream:
        """Begin a file. Only one file is open at a time."""

    def commit(self, manifest: bytes) -> str:
        """Make the checkpoint visible as a whole. Return its name."""

    def abort(self) -> None:
        """Remove what was written. Never raises; does nothing after ``commit``."""


class Place(Protocol):
    """A directory or a bucket that holds the checkpoints of one job."""

    @property
    def text(self) -> str:
        """Return the name of the place as it was given."""

    def stored(self) -> list[Stored]:
        """Return the checkpoints, newest first. Raise Missing for a missing bucket; a missing directory is empty."""

    def begin(self, step: int) -> Upload:
        """Begin to write a checkpoint."""

    def manifest(self, name: str) -> bytes:
        """Return the manifest of a checkpoint."""

    def fetched(self, name: str) -> AbstractContextManager[Path]:
        """Return a context with a local directory that has a checkpoint's files while the context is open."""

    def tidy(self, doomed: Callable[[list[Stored]], Collection[str]]) -> None:
        """Remove the checkpoints that ``doomed`` returns, and the remains of dead writers."""

    def put(self, name: str, data: bytes) -> None:
        """Store a small file next to the checkpoints, atomically."""

    def has(self, name: str) -> bool:
        """Return whether a small file of that name exists."""
