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
    wrong: list[str] = []
    for number, change in enumerate(RULES[rule].turned_off):
        made = 0
        for name, stack in stacks.items():
            before = set(RULES[rule].check(stack))
            for changed in change(stack):
                made += 1
                if not set(RULES[rule].check(changed)) - before:
                    wrong.append(f"{name}: change {number} is not reported: {difference(stack, changed)}")
        if not made:
            wrong.append(f"change {number} finds nothing to turn off in {', '.join(stacks)}")
    return wrong


def difference(stack: Stack, changed: Stack) -> str:
    """Return the URNs of the resources that a change is about."""
    one, other = set(stack.resources), set(changed.resources)
    return ", ".join(sorted({each.urn for each in one ^ other}))


def unneeded_waivers(stacks: Stacks) -> list[str]:
    """Return the waivers that cover nothing in one of their stacks."""
    return [
        f"{waiver.rule} {waiver.resource} in {name}"
        for waiver in WAIVERS
        for name in waiver.stacks
        if not any(waiver.covers(waiver.rule, finding) for finding in RULES[waiver.rule].check(stacks[name]))
    ]
