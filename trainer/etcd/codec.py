"""Records in etcd: JSON objects with a version, read back as dataclasses. Used by ``records`` and ``torchrun.rounds``.

data = encode({"id": "w-1"}, version=3)
fields = decode(data, "member", version=3, reader="worker", remedy="let all workers run the same code")
member = build(Member, fields, "member")
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, TypeVar

from trainer.errors import RecordError

T = TypeVar("T")


def encode(fields: Mapping[str, Any], *, version: int) -> bytes:
    """The record of these fields."""
    return json.dumps({"version": version, **fields}).encode()


def decode(data: bytes, what: str, *, version: int, reader: str, remedy: str) -> dict[str, Any]:
    """The inverse of ``encode``. Raises RecordError for no JSON, or for another version.

    Args:
        data: the record.
        what: what it is a record of, for the error.
        version: the one that this code knows.
        reader: who reads it, for the error.
        remedy: what to do about another version.
    """
    try:
        content = json.loads(data)
    except ValueError as error:
        raise RecordError(f"{what} record is not JSON: {data[:80]!r}") from error
    found = content.pop("version", None) if isinstance(content, dict) else None
    if found != version:
        raise RecordError(f"{what} record has version {found}, this {reader} knows {version}: {remedy}")
    return dict(content)


def build(kind: type[T], fields: Mapping[str, Any], what: str) -> T:
    """The dataclass of these fields. Raises RecordError when one is missing or not known."""
    try:
        return kind(**fields)
    except TypeError as error:
        raise RecordError(f"{what} record: {error}") from error
