"""What a rule is: an id, a promise, a pure function over a stack, and changes that break the promise."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NamedTuple

from tests.security.changes import Change
from tests.security.stack import Resource, Stack


class Finding(NamedTuple):
    """What is wrong with a resource."""

    urn: str
    what: str


Check = Callable[[Stack], Iterable[Finding]]


@dataclass(frozen=True)
class Rule:
    """One rule. `turned_off` has at least one change, and the rule reports each."""

    id: str
    promise: str
    check: Check
    turned_off: tuple[Change, ...]
    own_source: str = ""

    @property
    def source(self) -> str:
        """Return where the rule comes from."""
        if self.own_source:
            return self.own_source
        if self.id.startswith("CKV"):
            return f"https://www.checkov.io/5.Policy%20Index/terraform.html ({self.id})"
        return f"https://hub.prowler.com/check/{self.id}"


def each(type_: str, wrong: Callable[[Resource], str | None]) -> Check:
    """Return a check of every resource of a type; `wrong` says what is wrong with one, if anything."""
    return each_in(type_, lambda _, resource: wrong(resource))


def each_in(type_: str, wrong: Callable[[Stack, Resource], str | None]) -> Check:
    """Return a check of every resource of a type, in view of the stack that it is in."""

    def check(stack: Stack) -> list[Finding]:
        found = [(resource.urn, wrong(stack, resource)) for resource in stack.of(type_)]
        return [Finding(urn, what) for urn, what in found if what]

    return check


def both(*checks: Check) -> Check:
    """Return a check that finds what any of them finds."""
    return lambda stack: [finding for check in checks for finding in check(stack)]


def must(holds: object, otherwise: str) -> str | None:
    """Return None if something holds, else what is wrong."""
    return None if holds else otherwise
