"""Evaluate IAM policy documents: is this principal allowed to do this action on this resource? No side effects.

    evaluate([document], Query(action="s3:GetObject", resource="arn:aws:s3:::bucket/key"))   # Decision.ALLOW

moto has an evaluator too, but it refuses a call as soon as the condition of one statement isn't met, so policies with
conditions don't work with it.
Source: https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_policies_evaluation-logic.html
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import lru_cache
from typing import Any

Document = Mapping[str, Any]
UNKNOWN_RESOURCE = ""


class Decision(Enum):
    """The result of an evaluation. Only ALLOW permits the call; SILENT means that no statement applies."""

    ALLOW = "allow"
    DENY = "deny"
    SILENT = "silent"


@dataclass(frozen=True)
class Query:
    """One question to the policies.

    Args:
        resource: An ARN, or UNKNOWN_RESOURCE if the gateway doesn't determine one. Then an Allow matches whatever
            resource it names, and a Deny matches only if it names every resource (`*`).
        context: Condition keys in lower case with their values.
        principals: Every name of the caller (ARNs, account, `service:NAME`), for resource-based policies.
    """

    action: str
    resource: str = UNKNOWN_RESOURCE
    context: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    principals: tuple[str, ...] = ()


def evaluate(documents: Iterable[Document], query: Query) -> Decision:
    """Return DENY if a statement denies, else ALLOW if a statement allows, else SILENT."""
    decision = Decision.SILENT
    for document in documents:
        for statement in _listed(document.get("Statement")):
            if not _applies(statement, query):
                continue
            if statement.get("Effect") == "Deny":
                return Decision.DENY
            decision = Decision.ALLOW
    return decision


def _applies(statement: Document, query: Query) -> bool:
    return (
        _principal_matches(statement, query)
        and _action_matches(statement, query)
        and _resource_matches(statement, query)
        and _conditions_hold(statement, query)
    )


def _principal_matches(statement: Document, query: Query) -> bool:
    if "NotPrincipal" in statement:
        return not _names_principal(statement["NotPrincipal"], query.principals)
    return "Principal" not in statement or _names_principal(statement["Principal"], query.principals)


def _names_principal(named: Any, principals: tuple[str, ...]) -> bool:
    if named == "*":
        return True
    for kind, values in named.items():
        for value in _listed(values):
            wanted = f"service:{value}" if kind == "Service" else value
            if value == "*" or wanted in principals:
                return True
    return False


def _action_matches(statement: Document, query: Query) -> bool:
    if "NotAction" in statement:
        return not _any_like(statement["NotAction"], query.action, re.IGNORECASE)
    return _any_like(statement.get("Action", ()), query.action, re.IGNORECASE)


def _resource_matches(statement: Document, query: Query) -> bool:
    if query.resource == UNKNOWN_RESOURCE:
        return statement.get("Effect") == "Allow" or "*" in _listed(statement.get("Resource", "*"))
    if "NotResource" in statement:
        return not _any_like(statement["NotResource"], query.resource)
    return "Resource" not in statement or _any_like(statement["Resource"], query.resource)


def _conditions_hold(statement: Document, query: Query) -> bool:
    for operator, keys in statement.get("Condition", {}).items():
        for key, wanted in keys.items():
            held = _condition_holds(operator, query.context.get(key.lower(), ()), _listed(wanted))
            if held is None:
                # An unknown operator must never allow a call: an Allow with one doesn't apply, a Deny with one does.
                return statement.get("Effect") == "Deny"
            if not held:
                return False
    return True


def _condition_holds(operator: str, actual: tuple[str, ...], wanted: list[Any]) -> bool | None:
    quantifier, _, name = operator.rpartition(":")
    optional = name.endswith("IfExists")
    name = name.removesuffix("IfExists")
    texts = [str(value).lower() if isinstance(value, bool) else str(value) for value in wanted]
    if name == "Null":
        return (not actual) == (texts[0].lower() == "true")
    test = _OPERATORS.get(name.replace("Not", "", 1) if name in _NEGATED else name)
    if test is None:
        return None
    negated = name in _NEGATED
    if not actual:
        return optional or negated or quantifier == "ForAllValues"
    hits = [any(test(value, text) for text in texts) for value in actual]
    if negated:
        hits = [not hit for hit in hits]
    return any(hits) if quantifier == "ForAnyValue" else all(hits)


def _number(compare: Callable[[float, float], bool]) -> Callable[[str, str], bool]:
    def test(actual: str, wanted: str) -> bool:
        try:
            return compare(float(actual), float(wanted))
        except ValueError:
            return False

    return test


def _in_network(actual: str, wanted: str) -> bool:
    try:
        return ipaddress.ip_address(actual) in ipaddress.ip_network(wanted, strict=False)
    except ValueError:
        return False


def _like(actual: str, wanted: str) -> bool:
    return _pattern(wanted, 0).fullmatch(actual) is not None


_OPERATORS: Mapping[str, Callable[[str, str], bool]] = {
    "StringEquals": lambda actual, wanted: actual == wanted,
    "StringEqualsIgnoreCase": lambda actual, wanted: actual.lower() == wanted.lower(),
    "StringLike": _like,
    "ArnEquals": _like,
    "ArnLike": _like,
    "Bool": lambda actual, wanted: actual.lower() == wanted.lower(),
    "IpAddress": _in_network,
    "NumericEquals": _number(lambda actual, wanted: actual == wanted),
    "NumericLessThan": _number(lambda actual, wanted: actual < wanted),
    "NumericLessThanEquals": _number(lambda actual, wanted: actual <= wanted),
    "NumericGreaterThan": _number(lambda actual, wanted: actual > wanted),
    "NumericGreaterThanEquals": _number(lambda actual, wanted: actual >= wanted),
}
_NEGATED = {
    "StringNotEquals",
    "StringNotEqualsIgnoreCase",
    "StringNotLike",
    "ArnNotEquals",
    "ArnNotLike",
    "NotIpAddress",
    "NumericNotEquals",
}


def _any_like(patterns: Any, text: str, flags: int = 0) -> bool:
    return any(_pattern(pattern, flags).fullmatch(text) for pattern in _listed(patterns))


@lru_cache(maxsize=4096)
def _pattern(pattern: str, flags: int) -> re.Pattern[str]:
    escaped = "".join({"*": ".*", "?": "."}.get(char, re.escape(char)) for char in pattern)
    return re.compile(escaped, flags | re.DOTALL)


def _listed(value: Any) -> list[Any]:
    if value is None:
        return []
    return list(value) if isinstance(value, list | tuple) else [value]
