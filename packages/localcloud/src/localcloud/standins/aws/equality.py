"""Decide whether two values of an input are equivalent, so that no update is needed. Pure.

Lists are compared as sets unless their order matters. Equivalent JSON documents are equal; in IAM policies a string
equals a list of that string. A zero value equals an absent one, as in Terraform's SDK.
"""

from __future__ import annotations

import json
from typing import Any

from localcloud.standins.values import UNKNOWN, asset_hash, has_unknown


def same(old: Any, new: Any, *, ordered: bool = False, document: bool = False) -> bool:
    """Return whether two plain values of an input are equivalent. An unknown differs from everything."""
    if has_unknown(old) or has_unknown(new):
        return False
    if document:
        return bool(canonical_document(old) == canonical_document(new))
    return bool(canonical(old, ordered) == canonical(new, ordered))


def project(found: Any, like: Any) -> Any:
    """Remove from `found` the members that the program doesn't set: AWS adds defaults of its own."""
    if isinstance(found, dict) and isinstance(like, dict):
        return {key: project(found[key], like[key]) for key in like if key in found}
    if isinstance(found, list) and isinstance(like, list) and len(found) == len(like):
        return [project(item, model) for item, model in zip(found, like, strict=True)]
    return found


def canonical(value: Any, ordered: bool = False) -> Any:
    """Normalise a value so that equivalent values are equal; empty ones become None."""
    if isinstance(value, dict):
        items = {key: canonical(item, ordered) for key, item in value.items() if not key.startswith("__")}
        return {key: item for key, item in items.items() if item is not None} or None
    if isinstance(value, (list, tuple)):
        members = [canonical(item, ordered) for item in value]
        return (members if ordered else sorted(members, key=_sort_key)) or None
    if asset_hash(value):
        return asset_hash(value)
    if hasattr(value, "path") or hasattr(value, "text") or hasattr(value, "assets"):
        return _asset(value)
    if value is UNKNOWN or value:
        return value
    return None


def canonical_document(text: Any) -> Any:
    """Normalise JSON so that equivalent documents are equal; leave other text unchanged."""
    if isinstance(text, str):
        try:
            return _policy(json.loads(text)) if text.strip() else None
        except ValueError:
            return text
    return _policy(text) if text else None


def _policy(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _policy(item) for key, item in value.items() if not (key == "Sid" and item == "")}
    if isinstance(value, list):
        members = sorted((_policy(item) for item in value), key=_sort_key)
        return members[0] if len(members) == 1 else members
    return str(value).lower() if isinstance(value, bool) else value


def _sort_key(value: Any) -> str:
    return json.dumps(value, sort_keys=True, default=str)


def _asset(value: Any) -> Any:
    """Return the content's hash of an asset or archive if the engine sent one, else its source."""
    if getattr(value, "hash", None):
        return {"hash": value.hash}
    if hasattr(value, "assets"):
        return {"assets": {key: _asset(item) for key, item in value.assets.items()}}
    return {name: getattr(value, name) for name in ("path", "text", "uri") if getattr(value, name, None) is not None}
