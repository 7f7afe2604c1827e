"""A store with errors of a program's own."""

from __future__ import annotations

from tidewater.elastic.storage.errors import Errors
from tidewater.elastic.storage.store import Store


class Wrong(Exception):
    """An address or an access."""

    def __init__(self, message: str, remedy: str) -> None:
        super().__init__(message, remedy)
        self.remedy = remedy


class Missing(Wrong):
    """Nothing is there."""


class Damaged(Wrong):
    """A file has changed."""


class Unavailable(Exception):
    """Later it may be read."""


STORE = Store(Errors(Wrong, Missing, Damaged, Unavailable))
