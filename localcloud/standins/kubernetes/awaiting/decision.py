"""What a decider says about an object: it is ready, it isn't yet, or it never will be."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

Object = Mapping[str, Any]


@dataclass(frozen=True)
class Ready:
    """Nothing to wait for any more. A note is shown as progress."""

    note: str = ""


@dataclass(frozen=True)
class Waiting:
    """Not yet: `message` is the progress, `problems` is what the user is told if it stays like that to the end."""

    message: str
    problems: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class Failed:
    """It will not get ready by waiting."""

    problems: tuple[str, ...]


Decision = Ready | Waiting | Failed


@dataclass(frozen=True)
class Related:
    """The other objects that a decision looks at; each decider names those that it needs."""

    pods: tuple[Object, ...] = ()
    replica_sets: tuple[Object, ...] = ()
    claims: tuple[Object, ...] = ()
    endpoint_slices: tuple[Object, ...] = ()
    storage_class: Object | None = None


def status(obj: Object) -> Mapping[str, Any]:
    """The object's status; empty when there is none."""
    value = obj.get("status")
    return value if isinstance(value, Mapping) else {}


def spec(obj: Object) -> Mapping[str, Any]:
    """The object's spec; empty when there is none."""
    value = obj.get("spec")
    return value if isinstance(value, Mapping) else {}


def condition(obj: Object, kind: str) -> Mapping[str, Any]:
    """The condition of a type; empty when there is none."""
    conditions: Iterable[Mapping[str, Any]] = status(obj).get("conditions") or []
    return next((each for each in conditions if each.get("type") == kind), {})


def is_true(obj: Object, kind: str) -> bool:
    """Whether the object has the condition, and it is True."""
    return condition(obj, kind).get("status") == "True"


def settled(obj: Object) -> bool:
    """Whether the controller has seen the object as it is now."""
    return bool(status(obj).get("observedGeneration") == obj.get("metadata", {}).get("generation"))


def full_name(obj: Object) -> str:
    """The name, after the namespace unless that is the default one."""
    meta = obj.get("metadata", {})
    where = meta.get("namespace", "")
    return f"{where}/{meta.get('name')}" if where not in ("", "default") else str(meta.get("name"))
