"""Who owns which field of an object (server-side apply), read from `metadata.managedFields`.

See https://kubernetes.io/docs/reference/using-api/server-side-apply/#field-management
"""

from __future__ import annotations

import copy
import secrets
from collections.abc import Mapping, Sequence
from typing import Any, Final

from localcloud.standins.kubernetes.decide.diff import Path, value_at
from localcloud.standins.kubernetes.metadata import Object, metadata

_CLIENT_SIDE: Final = (
    ("kubectl", "Update"),
    ("kubectl", "Apply"),
    ("before-first-apply", "Update"),
    ("pulumi-kubernetes", "Update"),
    ("pulumi-resource-kubernetes", "Update"),
)
"""Managers of client-side apply, as prefix and operation. An update takes over their fields."""


def new_manager_name() -> str:
    """Return a name for the field manager of a new resource; the state keeps it."""
    return f"pulumi-kubernetes-{secrets.token_hex(4)}"


def adopt_client_side(live: Mapping[str, Any], manager: str) -> list[Any] | None:
    """Return the managedFields with what `kubectl apply` or `edit` set given to `manager`; None if that is nothing.

    Fields set through a subresource (`kubectl scale`) keep their owner.
    """
    entries = metadata(live).get("managedFields") or []
    adopted = [entry for entry in entries if _is_client_side(entry) and entry.get("manager") != manager]
    if not adopted:
        return None
    kept = [copy.deepcopy(entry) for entry in entries if entry not in adopted]
    ours = next(
        (entry for entry in kept if entry.get("manager") == manager and entry.get("operation") == "Apply"), None
    )
    if ours is None:
        ours = {**copy.deepcopy(adopted[0]), "manager": manager, "operation": "Apply"}
        kept.append(ours)
    for entry in adopted:
        ours["fieldsV1"] = _merge(ours.get("fieldsV1") or {}, entry.get("fieldsV1") or {})
    return kept


def _is_client_side(entry: Mapping[str, Any]) -> bool:
    if entry.get("subresource"):
        return False
    return any(
        str(entry.get("manager", "")).startswith(prefix) and entry.get("operation") == operation
        for prefix, operation in _CLIENT_SIDE
    )


def _merge(left: Mapping[str, Any], right: Mapping[str, Any]) -> dict[str, Any]:
    return {key: _merge(left.get(key) or {}, right.get(key) or {}) for key in left.keys() | right.keys()}


def keep_ignored(inputs: Object, live: Object, ignore: Sequence[Path], manager: str) -> Object:
    """Return the inputs to apply when paths are ignored.

    A path that only others own is left out; any other keeps its live value.
    """
    inputs = copy.deepcopy(inputs)
    entries = metadata(live).get("managedFields") or []
    for path in ignore:
        if not all(isinstance(step, str) for step in path):
            continue
        ours = any(_owns(entry, path) for entry in entries if entry.get("manager") == manager)
        theirs = any(_owns(entry, path) for entry in entries if entry.get("manager") != manager)
        live_value = value_at(live, path)
        if theirs and not ours:
            _remove(inputs, path)
        elif live_value is not None:
            _set(inputs, path, live_value)
    return inputs


def _owns(entry: Mapping[str, Any], path: Path) -> bool:
    fields = entry.get("fieldsV1")
    for step in path:
        fields = fields.get(f"f:{step}") if isinstance(fields, dict) else None
        if fields is None:
            return False
    return True


def _remove(obj: Any, path: Path) -> None:
    parent = value_at(obj, path[:-1])
    if isinstance(parent, dict):
        parent.pop(path[-1], None)


def _set(obj: Any, path: Path, value: Any) -> None:
    for step in path[:-1]:
        obj = obj.setdefault(step, {})
        if not isinstance(obj, dict):
            return
    obj[path[-1]] = copy.deepcopy(value)


def identity(obj: Object) -> Object:
    """Return an object that claims no field: applying it gives up all that a manager owns."""
    meta = metadata(obj)
    kept = {key: meta[key] for key in ("name", "namespace") if key in meta}
    return {"apiVersion": obj.get("apiVersion"), "kind": obj.get("kind"), "metadata": kept}
