"""The annotation `pulumi.com/waitFor`: what to wait for, in the syntax of `kubectl wait`.

decider("jsonpath={.status.phase}=Running")      decider('["condition=Ready", "jsonpath={.status.address}"]')

While it waits, it passes on what the object's events warn of, as the official plug-in does.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from typing import Any, Final

from localcloud.standins.kubernetes.awaiting.decision import (
    Decide,
    Decision,
    Object,
    Ready,
    Related,
    Waiting,
    condition,
)
from localcloud.standins.kubernetes.metadata import metadata

_EXPRESSION: Final = re.compile(
    r"condition=(?P<condition>[^=]+)(=(?P<status>.*))?"
    r"|jsonpath=(\{(?P<braced>[^}]*)\}|(?P<bare>[^={][^=]*))(=(?P<expected>.*))?"
)
_STEP: Final = re.compile(r"\.((?:[^.\[\]{}\\]|\\.)+)|\[(\d+|\*)\]|\['([^']+)'\]|\[\"([^\"]+)\"\]")


class BadExpression(ValueError):
    """The annotation's value cannot be understood."""


def decider(value: str) -> Decide:
    """Return the decider that an annotation's value asks for.

    Raises:
        BadExpression: A part is neither `jsonpath=…` nor `condition=…`, or has a path that cannot be followed.
    """
    try:
        parsed = json.loads(value)
    except ValueError:
        parsed = None
    texts = [str(text) for text in parsed] if isinstance(parsed, list) else [value]
    if not texts:
        raise BadExpression("at least one condition must be specified")
    expressions = {text: _parse(text) for text in texts}

    def decide(obj: Object, related: Related) -> Decision:
        missing = tuple(text for text, holds in expressions.items() if not holds(obj))
        if not missing:
            return Ready()
        return Waiting(f"Waiting for {', '.join(missing)}", missing, warnings(obj, related.get("Event", ())))

    return decide


def warnings(obj: Object, events: Iterable[Object]) -> tuple[str, ...]:
    """Return what the warnings among the events say about the object, each text once, the oldest first."""
    uid = metadata(obj).get("uid")
    found = [
        event
        for event in events
        if event.get("type") == "Warning" and (event.get("involvedObject") or {}).get("uid") == uid
    ]
    found.sort(key=lambda event: str(event.get("lastTimestamp") or event.get("eventTime") or ""))
    return tuple(dict.fromkeys(f"[{event.get('reason')}] {event.get('message')}" for event in found))


def _parse(text: str) -> Callable[[Object], bool]:
    match = _EXPRESSION.fullmatch(text)
    if match is None:
        raise BadExpression(f'expected "jsonpath={{.path}}[=value]" or "condition=type[=status]", got "{text}"')
    if match["condition"]:
        return lambda obj: condition(obj, match["condition"]).get("status") == (match["status"] or "True")
    steps, expected = _steps(match["braced"] or match["bare"] or ""), match["expected"]

    def holds(obj: Object) -> bool:
        values: list[Any] = [obj]
        for step in steps:
            values = [item for value in values for item in _children(value, step)]
        return bool(values) if expected is None else expected in map(_text, values)

    return holds


def _steps(path: str) -> list[str]:
    steps: list[str] = []
    rest = path if path.startswith((".", "[")) else f".{path}"
    while rest:
        match = _STEP.match(rest)
        if match is None:
            raise BadExpression(f'cannot follow the JSONPath "{path}" at "{rest}"')
        steps.append(next(group for group in match.groups() if group is not None).replace("\\.", "."))
        rest = rest[match.end() :]
    return steps


def _children(value: Any, step: str) -> list[Any]:
    if isinstance(value, list):
        return value if step == "*" else value[int(step) : int(step) + 1] if step.isdigit() else []
    return [value[step]] if isinstance(value, dict) and step in value else []


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
