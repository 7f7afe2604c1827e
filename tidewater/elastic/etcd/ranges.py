"""Ranges of etcd's keys, for reads and watches.

store.read_ranges([only("/tidewater/digits/generation"), Range("/a", "/b", oldest=3)])
store.watch({under("/tidewater/digits/"): revision})
"""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import Any

MOST_KEYS = 64
"""Ranges in one request: by default etcd refuses more than 128."""


@dataclass(frozen=True)
class Range:
    """The keys from ``first`` on, before ``end``."""

    first: str
    end: str
    oldest: int | None = None
    """For a read: at most so many of them, those that were created first; 0 if only their number is asked for."""


def under(prefix: str) -> Range:
    """Return the range of all keys with this prefix."""
    data = prefix.encode()
    return Range(prefix, (data[:-1] + bytes([data[-1] + 1])).decode())


def only(key: str) -> Range:
    """Return the range of one key."""
    return Range(key, f"{key}\0")


def request(keys: Range) -> dict[str, Any]:
    """Return the fields with which etcd's requests name the range."""
    fields: dict[str, Any] = {"key": encoded(keys.first), "range_end": encoded(keys.end)}
    if keys.oldest is None:
        return fields
    if not keys.oldest:
        return {**fields, "count_only": True}
    return {**fields, "limit": str(keys.oldest), "sort_order": "ASCEND", "sort_target": "CREATE"}


def encoded(data: str | bytes) -> str:
    """Return keys and values as the gateway's JSON has them."""
    return base64.b64encode(data.encode() if isinstance(data, str) else data).decode()
