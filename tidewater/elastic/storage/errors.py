"""What can go wrong with a file. Each error says what is wrong with which address, and what to do about it.

StorageError(OSError)
└── Missing            there is no such file, folder, object or bucket

A program that has errors of its own gives them to `Store`: `Errors(missing=NoDataset, …)`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


class StorageError(OSError):
    """A file can't be read or written."""

    def __init__(self, message: str, remedy: str) -> None:
        super().__init__(f"{message}: {remedy}")


class Missing(StorageError):
    """The file, folder, object or bucket does not exist, so it contains nothing."""


Make = Callable[[str, str], Exception]
"""Make an exception of what is wrong and of the remedy."""


@dataclass(frozen=True)
class Errors:
    """The exceptions of a program."""

    wrong: Make = StorageError
    """The address is wrong, or access is denied: trying again gives the same error."""
    missing: Make = Missing
    damaged: Make = StorageError
    """The file has changed since it was opened."""
    unavailable: Make = StorageError
    """Trying again may help."""


PLAIN = Errors()
"""For programs that handle every OSError in the same way."""
