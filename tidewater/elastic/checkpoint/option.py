"""The places that the option --checkpoints names.

places("/data/checkpoints/digits,s3://bucket/checkpoints/digits")      # a tuple of both
"""

from __future__ import annotations

from pathlib import Path

from tidewater.elastic.checkpoint.bucket import Bucket
from tidewater.elastic.checkpoint.directory import Directory
from tidewater.elastic.checkpoint.places import Place
from tidewater.elastic.errors import ConfigError
from tidewater.elastic.storage.errors import StorageError
from tidewater.elastic.storage.s3 import SCHEME


def places(text: str) -> tuple[Place, ...]:
    """The places of a comma-separated list. Raises ConfigError."""
    named = [each.strip() for each in text.split(",") if each.strip()]
    if not named:
        raise ConfigError(f"--checkpoints is {text!r}: name a directory, {SCHEME}bucket/prefix, or both with a comma")
    twice = sorted({each for each in named if named.count(each) > 1})
    if twice:
        raise ConfigError(f"--checkpoints names {', '.join(twice)} more than once: leave one of them")
    # Directories first: they are written sooner, and a worker that is about to die should have one done.
    return tuple(place(each) for each in sorted(named, key=lambda each: each.startswith(SCHEME)))


def place(text: str) -> Place:
    """The place that ``text`` names: a directory, or ``s3://bucket/prefix``. Raises ConfigError."""
    if text.startswith(SCHEME):
        try:
            return Bucket.open(text)
        except StorageError as error:
            raise ConfigError(f"--checkpoints names {text}: {error}") from error
    if not text or "://" in text:
        raise ConfigError(f"--checkpoints names {text!r}: it must be a directory or {SCHEME}bucket/prefix")
    return Directory(Path(text))
