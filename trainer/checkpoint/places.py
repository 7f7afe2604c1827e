"""Where checkpoints are kept: what a place must be able to do. ``option`` makes places from text.

Every method of a place raises OSError when the place refuses or can't be reached, whatever it is made of. A place
is used by one thread at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

MANIFEST = "manifest.json"
SCHEME = "s3://"


class Missing(OSError):
    """The place itself does not exist, so there is nothing in it either."""


@dataclass(frozen=True, order=True)
class Stored:
    """One checkpoint in a place, complete by its looks; the greatest is the newest."""

    step: int
    written: float
    """By the place's own clock: decides between two checkpoints of one step."""
    name: str


class Stream(Protocol):
    """One file on its way to a place."""

    def write(self, data: memoryview, /) -> object:
        """Take all of ``data``."""

    def close(self) -> None:
        """Return when the place has it for good."""


class Upload(Protocol):
    """One checkpoint on its way to a place: nobody sees it before ``commit``."""

    def create(self, name: str) -> Stream:
        """Begin a file; one at a time."""

    def commit(self, manifest: bytes) -> str:
        """Make it visible, all at once. Returns its name."""

    def abort(self) -> None:
        """Remove what is there of it. Never raises; no-op after ``commit``."""


class Place(Protocol):
    """A directory or a bucket that holds the checkpoints of one job."""

    @property
    def text(self) -> str:
        """The place as it was named."""

    def stored(self) -> list[Stored]:
        """What it holds, newest first. Raises Missing if there is no such place; a missing directory is empty."""

    def begin(self, step: int) -> Upload:
        """Begin to write one."""

    def fetched(self, name: str) -> AbstractContextManager[Path]:
        """A checkpoint's files in a local directory, for as long as the context lasts."""

    def tidy(self, doomed: Callable[[list[Stored]], Collection[str]]) -> None:
        """Remove what ``doomed`` names of what is stored, and what writers left behind that have died."""

    def put(self, name: str, data: bytes) -> None:
        """Keep a small file beside the checkpoints; it appears whole."""

    def has(self, name: str) -> bool:
        """Whether there is a small file of that name."""


def outdated(stored: Sequence[Stored], step: int, keep: int, broken: Collection[str] = ()) -> set[str]:
    """Names of those that need not be kept once that of ``step`` is written.

    Args:
        stored: newest first.
        step: the step just written. Newer ones, of a run that got further, are none of its business.
        keep: how many to keep up to and with this step; at least that one stays.
        broken: known to be of no use.
    """
    whole = [each for each in stored if each.step <= step and each.name not in broken]
    return {each.name for each in whole[max(keep, 1) :]} | {each.name for each in stored if each.name in broken}
