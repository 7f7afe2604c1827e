"""Checkpoints on the shared volume, for when all workers are gone.

    checkpoints = Checkpoints(Path("/data/checkpoints/digits"), log)
    checkpoints.save(step=120, payload=data)
    found = checkpoints.load()              # the newest that is whole, or None

A checkpoint is one file: a line of JSON with the sha256 of the rest, then the rest. It is written under another
name, flushed and renamed, so it is there whole or not at all, and what a broken disk or a full volume leaves behind
fails the checksum: it is skipped with a message, and the one before it is used.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import secrets
from dataclasses import dataclass
from pathlib import Path

from trainer.errors import RecordError
from trainer.log import Log

_VERSION = 1
_NAME = re.compile(r"step-(\d{12})\.ckpt")
_KEEP = 2
_FINISHED = "finished.json"


@dataclass(frozen=True)
class Found:
    """A checkpoint that passed its checksum."""

    step: int
    payload: bytes
    path: Path


class Checkpoints:
    """The checkpoints of one job. One process writes at a time (rank 0); any may read."""

    def __init__(self, folder: Path, log: Log) -> None:
        self._folder = folder
        self._log = log

    def save(self, step: int, payload: bytes) -> bool:
        """Write, then drop all but the newest two. A full or broken volume is reported, not raised: False."""
        path = self._folder / f"step-{step:012d}.ckpt"
        header = {"version": _VERSION, "step": step, "sha256": hashlib.sha256(payload).hexdigest()}
        try:
            _write(path, json.dumps(header).encode() + b"\n" + payload)
        except OSError as error:
            self._log.event("checkpoint_failed", step=step, path=str(path), error=str(error))
            return False
        self._log.event("checkpoint_saved", step=step, path=str(path), bytes=len(payload))
        for old in self._paths()[_KEEP:]:
            with contextlib.suppress(OSError):
                old.unlink()
        return True

    def load(self) -> Found | None:
        """The newest checkpoint that is whole; None if there is none."""
        for path in self._paths():
            try:
                return _read(path)
            except (OSError, RecordError) as error:
                self._log.event("checkpoint_skipped", path=str(path), error=str(error))
        return None

    def finish(self, record: bytes) -> None:
        """Record on the volume that the job is done. Raises OSError."""
        _write(self._folder / _FINISHED, record)

    def finished(self) -> bool:
        """Whether the job is done according to the volume."""
        return (self._folder / _FINISHED).is_file()

    def _paths(self) -> list[Path]:
        """Newest first."""
        if not self._folder.is_dir():
            return []
        return sorted((path for path in self._folder.iterdir() if _NAME.fullmatch(path.name)), reverse=True)


def _write(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        with fresh.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        fresh.rename(path)
    except OSError:
        with contextlib.suppress(OSError):
            fresh.unlink()
        raise


def _read(path: Path) -> Found:
    header, _, payload = path.read_bytes().partition(b"\n")
    try:
        fields = json.loads(header)
        version, step, digest = fields["version"], int(fields["step"]), fields["sha256"]
    except (ValueError, KeyError, TypeError) as error:
        raise RecordError(f"its header is unreadable: {header[:60]!r}") from error
    if version != _VERSION:
        raise RecordError(f"it has version {version}, this code reads {_VERSION}")
    if hashlib.sha256(payload).hexdigest() != digest:
        raise RecordError(f"its checksum does not fit ({len(payload)} bytes)")
    return Found(step, payload, path)
