"""The manifest of a checkpoint: its step, history and score, and the size and sha256 of each of its files.

    data = Manifest(history, {".metadata": Entry(812, "9f…")}).encode()
    manifest = Manifest.decode(data)          # RecordError unless it is complete and of this version
    manifest.verify(folder)                   # RecordError unless the files are unchanged

The manifest contains its own sha256, so damage to the manifest is found too. This module also defines the names of
checkpoints.
"""

from __future__ import annotations

import hashlib
import json
import re
import secrets
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from tidewater.elastic.checkpoint.lineage import History
from tidewater.elastic.checkpoint.places import MANIFEST
from tidewater.elastic.errors import RecordError

TREE = "tree.json"
"""The file with everything except the tensors, see ``tree``."""
CHUNK = 4 << 20
"""Bytes to hash or write in one call. Both release the GIL, and a chunk takes a few milliseconds."""

_FORMAT = "tidewater-checkpoint"
_VERSION = 2
_NAME = re.compile(r"step-(\d{12})(?:-[0-9a-f]{8})?")


@dataclass(frozen=True)
class Entry:
    """One file of a checkpoint."""

    size: int
    sha256: str


@dataclass(frozen=True)
class Score:
    """The score of a state, where the best one is kept."""

    value: float
    mode: str
    """Whether the highest (``max``) or the lowest (``min``) one is the best."""

    def beats(self, other: Score) -> bool:
        """Return whether this one is better, by its own mode."""
        return self.value > other.value if self.mode == "max" else self.value < other.value


@dataclass(frozen=True)
class Manifest:
    """How the state of a checkpoint came about, and the list of its files."""

    history: History
    files: Mapping[str, Entry]
    score: Score | None = None

    def encode(self) -> bytes:
        """Return the manifest as JSON that people can read too."""
        fields = {
            "format": _FORMAT,
            "version": _VERSION,
            "step": self.history.step,
            "history": self.history.values(),
            "files": {name: {"size": each.size, "sha256": each.sha256} for name, each in self.files.items()},
            "score": asdict(self.score) if self.score else None,
        }
        return json.dumps({**fields, "sha256": _digest(fields)}, indent=1).encode()

    @classmethod
    def decode(cls, data: bytes) -> Manifest:
        """Return the manifest in ``data``. Raise RecordError if it is damaged or of another version."""
        try:
            fields = json.loads(data)
            version, digest = fields["version"], fields.pop("sha256")
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise RecordError(f"its {MANIFEST} is unreadable: {data[:40]!r}") from error
        if version != _VERSION:
            raise RecordError(f"it has version {version}, this code reads {_VERSION}")
        if digest != _digest(fields):
            raise RecordError(f"its {MANIFEST} does not match its own checksum")
        files = {name: Entry(int(each["size"]), str(each["sha256"])) for name, each in fields["files"].items()}
        score = fields.get("score")
        return cls(History.of(fields["history"]), files, Score(**score) if score else None)

    @classmethod
    def of(cls, folder: Path) -> Manifest:
        """Return the manifest in a local directory. Raise RecordError, or OSError if it can't be read."""
        try:
            return cls.decode((folder / MANIFEST).read_bytes())
        except FileNotFoundError as error:
            raise RecordError(f"it has no {MANIFEST}: it was never finished") from error

    def verify(self, folder: Path) -> None:
        """Compare the files with the manifest. Raise RecordError, or OSError if they can't be read."""
        for name, entry in self.files.items():
            try:
                size = (folder / name).stat().st_size
                if size != entry.size:
                    raise RecordError(f"{name} has {size} bytes instead of {entry.size}")
                if hash_of(folder / name) != entry.sha256:
                    raise RecordError(f"{name} does not match its checksum ({size} bytes)")
            except FileNotFoundError as error:
                raise RecordError(f"{name} is missing") from error


def hash_of(path: Path) -> str:
    """Return a file's sha256, without reading all of it into memory."""
    digest = hashlib.sha256()
    with path.open("rb", buffering=0) as file:
        while chunk := file.read(CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


def name_of(step: int) -> str:
    """Return the name of the checkpoint of a step."""
    return f"step-{step:012d}"


def unique_name_of(step: int) -> str:
    """Return a name for the step that no other writer uses."""
    return f"{name_of(step)}-{secrets.token_hex(4)}"


def step_of(name: str) -> int | None:
    """Return the step of the checkpoint of that name; None if it is not the name of one."""
    found = _NAME.fullmatch(name)
    return int(found[1]) if found else None


def _digest(fields: object) -> str:
    return hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()
