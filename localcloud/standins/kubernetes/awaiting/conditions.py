"""The annotation `pulumi.com/waitFor`: what to wait for, as `kubectl wait` has it.

decider("jsonpath={.status.phase}=Running")      decider('["condition=Ready", "jsonpath={.status.address}"]')
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from localcloud.standins.kubernetes.awaiting.decision import Decision, Object, Ready, Related, Waiting, condition

_STEP: Final = re.compile(r"\.((?:[^.\[\]{}\\]|\\.)+)|\[(\d+|\*)\]|\['([^']+)'\]|\[\"([^\"]+)\"\]")


class BadExpression(ValueError):
    """The annotation's value cannot be understood."""


@dataclass(frozen=True)
class Expression:
    """One thing to wait for: at least one value at the path, and it equals `expected` unless that is None."""

    text: str
    values: Callable[[Object], list[Any]]
    expected: str | None

    def holds(self, obj: Object) -> bool:
        """Whether the object fulfils it."""
        found = self.values(obj)
        return bool(found) if self.expected is None else any(_text(value) == self.expected for value in found)


def decider(value: str) -> Callable[[Object, Related], Decision]:
    """The decider that an annotation's value asks for.

    Raises:
        BadExpression: a part is neither `jsonpath=…` nor `condition=…`, or has no path that can be followed.
    """
    try:
        parsed = json.loads(value)
    except ValueError:
        parsed = None
    texts = parsed if isinstance(parsed, list) else [value]
    if not texts:
        raise BadExpression("at least one condition must be specified")
    expressions = [_parse(str(text)) for text in texts]

    def decide(obj: Object, related: Related) -> Decision:
        open_ones = tuple(each.text for each in expressions if not each.holds(obj))
        return Waiting(f"Waiting for {', '.join(open_ones)}", open_ones) if open_ones else Ready()

    return decide


def _parse(text: str) -> Expression:
    kind, _, rest = text.partition("=")
    if kind == "condition" and rest:
        name, separator, wanted = rest.partition("=")
        return Expression(text, lambda obj: [condition(obj, name).get("status")], wanted if separator else "True")
    if kind == "jsonpath" and rest:
        path, expected = _split(rest)
        steps = _steps(path)
        return Expression(text, lambda obj: _follow(obj, steps), expected)
    raise BadExpression(f'expected a "jsonpath=" or "condition=" prefix, got "{text}"')


def _split(rest: str) -> tuple[str, str | None]:
    if rest.startswith("{"):
        path, closed, after = rest.partition("}")
        if not closed or (after and not after.startswith("=")):
            raise BadExpression(f'"{rest}" is no JSONPath expression of the form {{.path}} or {{.path}}=value')
        return path[1:], after[1:] if after else None
    path, separator, expected = rest.partition("=")
    return path, expected if separator else None


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


def _follow(obj: Any, steps: list[str]) -> list[Any]:
    values = [obj]
    for step in steps:
        values = [item for value in values for item in _children(value, step)]
    return values


def _children(value: Any, step: str) -> list[Any]:
    if isinstance(value, list):
        return value if step == "*" else value[int(step) : int(step) + 1] if step.isdigit() else []
    return [value[step]] if isinstance(value, dict) and step in value else []


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return value if isinstance(value, str) else json.dumps(value)
