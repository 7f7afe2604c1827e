"""Records in etcd: JSON objects with a version, read back as dataclasses. Used by ``records`` and ``torchrun.rounds``.

data = encode({"id": "w-1"}, version=3)
fields = decode(data, "member", version=3, reader="worker", remedy="let all workers run the same code")
member = build(Member, fields, "member")
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import Any, TypeVar

from tidewater.elastic.errors import RecordError

T = TypeVar("T")


def encode(fields: Mapping[str, Any], *, version: int) -> bytes:
    """Return the record of these fields."""
    return json.dumps({"version": version, **fields}).encode()


def decode(
    data: bytes, what: str, *, version: int, reader: str, remedy: str, older: Collection[int] = ()
) -> dict[str, Any]:
    """Return the fields of a record. Raise RecordError if it is not JSON or has another version.

    Args:
        data: The record.
        what: The kind of record, for the error.
        version: The version that this code knows.
        reader: The process that reads it, for the error.
        remedy: What to do about another version.
        older: Versions that lack only fields with a default.
    """
    try:
        content = json.loads(data)
    except ValueError as error:
        raise RecordError(f"{what} record is not JSON: {data[:80]!r}") from error
    found = content.pop("version", None) if isinstance(content, dict) else None
    if found != version and found not in older:
        raise RecordError(f"{what} record has version {found}, this {reader} knows {version}: {remedy}")
    return dict(content)


def build(kind: type[T], fields: Mapping[str, Any], what: str) -> T:
    """Return the dataclass of these fields. Raise RecordError if a field is missing or unknown."""
    try:
        return kind(**fields)
    except TypeError as error:
        raise RecordError(f"{what} record: {error}") from error
