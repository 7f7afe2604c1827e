"""Which files a folder of RecordIO holds, with their records and bytes: `_manifest.json`.

RecordIO itself has no end mark, so a file that was cut off exactly between two chunks looks whole, and so does a folder
from which a file is missing. The manifest that our writer leaves shows both. ElasticDL's folders have none, and are
read without.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass

from elasticdl.errors import DamagedData
from tidewater.elastic.storage.blob import Entry

NAME = "_manifest.json"
_VERSION = 1


@dataclass(frozen=True)
class Written:
    """What a manifest says of a file."""

    records: int
    bytes: int


def to_json(files: Mapping[str, Written], about: str) -> bytes:
    """Return a manifest of files by name, with words on what they are."""
    content = {"version": _VERSION, "about": about, "files": {name: asdict(files[name]) for name in sorted(files)}}
    return json.dumps(content, indent=1).encode() + b"\n"


def from_json(name: str, data: bytes) -> dict[str, Written]:
    """Return the files that a manifest lists; raise DamagedData if it is none."""
    try:
        content = json.loads(data)
        if content["version"] != _VERSION:
            raise DamagedData(f"{name} has version {content['version']}, this program knows {_VERSION}", "upgrade it")
        return {file: Written(**said) for file, said in content["files"].items()}
    except (ValueError, KeyError, TypeError) as error:
        raise DamagedData(f"{name} is no manifest of a dataset: {error!r}", "write the dataset again") from error


def check(folder: str, said: Mapping[str, Written], found: Iterable[Entry]) -> None:
    """Raise DamagedData if a folder doesn't hold exactly the files of its manifest, each of its size."""
    sizes = {entry.path: entry.size for entry in found}
    missing, strange = sorted(set(said) - set(sizes)), sorted(set(sizes) - set(said))
    remedy = f"write or copy the dataset again; if the change is meant, remove {NAME}"
    if missing:
        raise DamagedData(f"{folder}: {', '.join(missing[:3])} of its {NAME} is missing", remedy)
    if strange:
        raise DamagedData(f"{folder}: {', '.join(strange[:3])} is not in its {NAME}", remedy)
    for name, size in sizes.items():
        if size != said[name].bytes:
            raise DamagedData(f"{folder}/{name} has {size} bytes, and {NAME} says {said[name].bytes}", remedy)
