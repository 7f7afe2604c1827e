"""What a decider says about an object: it is ready, it is not ready yet, or it never will be."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Object = Mapping[str, Any]
Related = Mapping[str, Sequence[Object]]
"""The objects in the same namespace that a decider looks at, by kind."""


@dataclass(frozen=True)
class Ready:
    """There is nothing left to wait for."""


@dataclass(frozen=True)
class Waiting:
    """Not yet.

    Args:
        message: The progress.
        problems: What the error at the time-out says; `message` if empty.
        pods: What the object's pods lack, or its events warn of; shown as warnings, at the time-out after the
            problems.
    """

    message: str
    problems: tuple[str, ...] = ()
    pods: tuple[str, ...] = ()

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why the object isn't ready."""
        return (self.problems or (self.message,)) + self.pods


@dataclass(frozen=True)
class Failed:
    """Waiting will not help."""

    reasons: tuple[str, ...]


Decision = Ready | Waiting | Failed
Decide = Callable[[Object, Related], Decision]


def status(obj: Object) -> Mapping[str, Any]:
    """Return the object's status; empty when there is none."""
    return obj.get("status") or {}


def spec(obj: Object) -> Mapping[str, Any]:
    """Return the object's spec; empty when there is none."""
    return obj.get("spec") or {}


def condition(obj: Object, kind: str) -> Mapping[str, Any]:
    """Return the condition of a type; empty when there is none."""
    return next((each for each in status(obj).get("conditions") or () if each.get("type") == kind), {})


def is_true(obj: Object, kind: str) -> bool:
    """Return whether the object has the condition, and it is True."""
    return condition(obj, kind).get("status") == "True"


def full_name(obj: Object) -> str:
    """Return the name, after the namespace unless that is `default`."""
    meta = obj.get("metadata", {})
    where = meta.get("namespace", "")
    return f"{where}/{meta.get('name')}" if where not in ("", "default") else str(meta.get("name"))
