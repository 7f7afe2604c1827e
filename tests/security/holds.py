"""What is asked of a rule over some stacks. An empty list is a pass; otherwise each line says what is wrong."""

from __future__ import annotations

from collections.abc import Mapping

from tests.security.rules import RULES
from tests.security.stack import Stack
from tests.security.waivers import WAIVERS, unwaived

Stacks = Mapping[str, Stack]


def broken(stacks: Stacks, rule: str) -> list[str]:
    """Return the findings of a rule that no waiver covers."""
    return [
        f"{name}: {finding.urn}: {finding.what}"
        for name, stack in stacks.items()
        for finding in unwaived(name, rule, list(RULES[rule].check(stack)))
    ]


def overlooked(stacks: Stacks, rule: str) -> list[str]:
    """Return the changes that a rule does not report, and those that change nothing in any of the stacks."""
    return unreported(stacks, rule) + [
        f"change {number} finds nothing to turn off in {', '.join(stacks)}"
        for number, change in enumerate(RULES[rule].turned_off)
        if not any(True for stack in stacks.values() for _ in change(stack))
    ]


def unreported(stacks: Stacks, rule: str) -> list[str]:
    """Return the changes that a rule does not report."""
    wrong: list[str] = []
    for number, change in enumerate(RULES[rule].turned_off):
        for name, stack in stacks.items():
            before = set(RULES[rule].check(stack))
            wrong += [
                f"{name}: change {number} is not reported: {difference(stack, changed)}"
                for changed in change(stack)
                if not set(RULES[rule].check(changed)) - before
            ]
    return wrong


def difference(stack: Stack, changed: Stack) -> str:
    """Return the URNs of the resources that a change is about."""
    one, other = set(stack.resources), set(changed.resources)
    return ", ".join(sorted({each.urn for each in one ^ other}))


def unneeded_waivers(stacks: Stacks) -> list[str]:
    """Return the waivers that cover nothing in one of these stacks."""
    return [
        f"{waiver.rule} {waiver.resource} in {name}"
        for waiver in WAIVERS
        for name, stack in stacks.items()
        if name in waiver.stacks
        and not any(waiver.covers(waiver.rule, each) for each in RULES[waiver.rule].check(stack))
    ]
