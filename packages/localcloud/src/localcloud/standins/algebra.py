"""Functions of property values that may be unknown or secret and that carry their dependencies.

    arn = combine(lambda account, name: f"arn:aws:iam::{account}:role/{name}", account, name)

`combine` is what `Output.apply` is to a program, without tasks: an unknown argument gives an unknown result, a secret
one a secret result, and the result depends on all that the arguments depend on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from pulumi.provider.experimental.property_value import Computed, PropertyValue

from localcloud.standins.values import has_secret, has_unknown, plain, wrap

NULL: Final = PropertyValue.null()


def combine(function: Callable[..., Any], *values: PropertyValue) -> PropertyValue:
    """The value of `function` for the plain values; None becomes null."""
    arguments = [None if value.value is None else plain(value) for value in values]
    secret = any(has_secret(value) for value in values)
    if any(has_unknown(argument) for argument in arguments):
        result = PropertyValue.computed()
    else:
        outcome = function(*arguments)
        result = NULL if outcome is None else wrap(outcome)
    return depending(result.with_secret(secret), dependencies(*values))


def dependencies(*values: PropertyValue) -> frozenset[str]:
    """The URNs that the values depend on, those of nested values included."""
    return frozenset(urn for value in values for urn in value.all_dependencies())


def depending(value: PropertyValue, urns: Iterable[str]) -> PropertyValue:
    """Return the value with `urns` added to its dependencies."""
    return value.with_dependencies(frozenset(value.dependencies) | frozenset(urns))


def is_unknown(value: PropertyValue) -> bool:
    """Whether the value itself (not a member of it) is unknown."""
    return isinstance(value.value, Computed)


def is_set(value: PropertyValue) -> bool:
    """Return whether there is a value, known or unknown."""
    return value.value is not None


def is_truthy(value: PropertyValue) -> bool:
    """Return whether the value is true in JavaScript. An unknown is true, as an Output object is."""
    inner = value.value
    return is_unknown(value) or (isinstance(inner, (Mapping, Sequence)) and not isinstance(inner, str)) or bool(inner)


def text(value: PropertyValue) -> str | None:
    """The value if it is a known string. (Comparing an unknown with anything raises an error in the SDK.)"""
    return value.value if isinstance(value.value, str) else None


def member(value: PropertyValue, key: str | int) -> PropertyValue:
    """Return a member of a map or an item of a list: unknown for an unknown, null if there is none."""
    inner = value.value
    if is_unknown(value):
        found = PropertyValue.computed()
    elif isinstance(inner, Mapping) and isinstance(key, str):
        found = inner.get(key, NULL)
    elif isinstance(inner, Sequence) and not isinstance(inner, str) and isinstance(key, int) and key < len(inner):
        found = inner[key]
    else:
        found = NULL
    return depending(found.with_secret(value.is_secret or found.is_secret), value.dependencies)


def path(value: PropertyValue, *keys: str | int) -> PropertyValue:
    """Apply `member` once for each key."""
    for key in keys:
        value = member(value, key)
    return value


def first_set(*values: PropertyValue) -> PropertyValue:
    """Return the first value that is set, else null, as JavaScript's `??` does."""
    return next((value for value in values if is_set(value)), NULL)


def record(fields: Mapping[str, PropertyValue | str | float | bool | None]) -> PropertyValue:
    """A map of the fields that are set."""
    members = {
        key: value if isinstance(value, PropertyValue) else wrap(value)
        for key, value in fields.items()
        if value is not None
    }
    return PropertyValue({key: value for key, value in members.items() if is_set(value)})


def without_dependencies(value: PropertyValue) -> PropertyValue:
    """Return the value as a registration needs it: the engine gets the dependencies separately."""
    inner = value.value
    if isinstance(inner, Mapping):
        inner = {key: without_dependencies(item) for key, item in inner.items()}
    elif isinstance(inner, Sequence) and not isinstance(inner, str):
        inner = [without_dependencies(item) for item in inner]
    return PropertyValue(inner, is_secret=value.is_secret)
