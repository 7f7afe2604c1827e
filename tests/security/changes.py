"""Changes of a stack's graph, as if a setting had been turned off: what a rule must report.

    put(FILE_SYSTEM, "encrypted", False)(stack)     # yields one changed stack for each file system

A change is made to one resource at a time, so a rule that looks at only some of them is found out.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from tests.security.stack import Resource, Stack

Change = Callable[[Stack], Iterator[Stack]]
Which = Callable[[Resource], bool]
Statement = dict[str, Any]


def every(_: Resource) -> bool:
    """Return whether a resource is meant: each is."""
    return True


def put(type_: str, path: str, value: Any, which: Which = every) -> Change:
    """Set an input to another value."""

    def change(stack: Stack) -> Iterator[Stack]:
        for each in filter(which, stack.of(type_)):
            if each.get(path) != value:
                yield stack.replacing(each, each.put(path, value))

    return change


def unset(type_: str, path: str, which: Which = every) -> Change:
    """Remove an input."""

    def change(stack: Stack) -> Iterator[Stack]:
        for each in filter(which, stack.of(type_)):
            if each.get(path) is not None:
                yield stack.replacing(each, each.put(path, None))

    return change


def drop(type_: str, which: Which = every) -> Change:
    """Remove a resource."""

    def change(stack: Stack) -> Iterator[Stack]:
        for each in filter(which, stack.of(type_)):
            yield stack.without(each)

    return change


def add(type_: str, **inputs: Any) -> Change:
    """Add a resource that is wrong from the start, of a type that a stack need not have."""

    def change(stack: Stack) -> Iterator[Stack]:
        yield stack.adding([Resource(type_, "added", f"urn:pulumi:s::p::{type_}::added", id="added", inputs=inputs)])

    return change


def into_public_subnet(type_: str, path: str, form: Callable[[str], Any]) -> Change:
    """Move a resource into a public subnet; `form` makes the input of the subnet's id."""

    def change(stack: Stack) -> Iterator[Stack]:
        public = min(stack.public_subnets())
        for each in stack.of(type_):
            yield stack.replacing(each, each.put(path, form(public)))

    return change


def documents(resource: Resource) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the policy documents of a resource, each with its input's name."""
    for key in ("policy", "assumeRolePolicy"):
        text = resource.inputs.get(key)
        if isinstance(text, str) and text.startswith("{"):
            yield key, json.loads(text)


def statements(document: dict[str, Any]) -> list[Statement]:
    """Return the statements of a policy document."""
    found = document["Statement"]
    return found if isinstance(found, list) else [found]


def edit(types: Sequence[str], key: str, change_it: Callable[[Statement], None], effect: str = "Allow") -> Change:
    """Change one statement of a policy document."""

    def change(stack: Stack) -> Iterator[Stack]:
        for each in stack.of(*types):
            for name, document in documents(each):
                for number, statement in enumerate(statements(document)):
                    if name == key and statement["Effect"] == effect:
                        changed = copy.deepcopy(document)
                        change_it(statements(changed)[number])
                        if changed != document:
                            yield stack.replacing(each, each.put(key, json.dumps(changed)))

    return change
