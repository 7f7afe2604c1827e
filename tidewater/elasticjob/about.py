"""What the model says of a field: the text that `kubectl explain` shows, and the values that are accepted.

    backoff_limit: Annotated[int, About("Failures after which the job fails.", minimum=0)] = 20
    fields_of(JobSpec)     # one Field for each, to make a schema or to read an object

A field's type, its default and whether it is required come from the dataclass itself. The schema that the API server
validates by and the reader that the controller uses are both made from these, so that they cannot differ.
"""

from __future__ import annotations

import dataclasses
import functools
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class About:
    """Description and bounds of a field; None and empty mean: no bound.

    Args:
        text: What the field is for, in sentences.
        minimum: Smallest accepted number; of a list the smallest accepted element.
        maximum: Largest accepted number; of a list the largest accepted element.
        pattern: Regular expression of an accepted string; of a map that of its keys. OpenAPI has no such bound of
            keys, so a rule in CEL must repeat it (see `rules`).
        min_length: Fewest characters of a string.
        max_length: Most characters of a string; of a map those of its keys.
        most: Most elements of a list or a map. The API server refuses rules over a list without it, for their cost.
        list_type: `set` or `map` (with `list_key`): how server-side apply merges the list. Its elements are distinct.
        list_key: The field that identifies an element of a list of type `map`.
        blank: Whether an empty string means the default, as in manifests of the old controller.
        immutable: The value cannot change. The field must be required or have a default, since CEL compares only
            what is present before and after.
        schema: Returns the whole schema of a field, where its type says nothing.
    """

    text: str
    minimum: int | None = None
    maximum: int | None = None
    pattern: str = ""
    min_length: int | None = None
    max_length: int | None = None
    most: int | None = None
    list_type: str = ""
    list_key: str = ""
    blank: bool = False
    immutable: bool = False
    schema: Callable[[], Mapping[str, object]] | None = field(default=None, repr=False)


@dataclass(frozen=True)
class Field:
    """One field of a model.

    Args:
        name: The name in Python.
        key: The name in the API.
        type: The type without None and without the annotation.
        about: What the model says of it.
        required: Whether it has no default.
        default: The default; None where there is none.
    """

    name: str
    key: str
    type: typing.Any
    about: About
    required: bool
    default: object


@functools.cache
def fields_of(model: type) -> tuple[Field, ...]:
    """Return the fields of a dataclass that is annotated with `Annotated[..., About(...)]`."""
    hints = typing.get_type_hints(model, include_extras=True)
    return tuple(_field(own, hints[own.name]) for own in dataclasses.fields(model))


def key_of(name: str) -> str:
    """Return a field's name in the API: `min_replicas` is `minReplicas`."""
    first, *rest = name.split("_")
    return first + "".join(word.title() for word in rest)


def _field(own: dataclasses.Field[object], hint: typing.Any) -> Field:
    annotated, about = typing.get_args(hint)
    if isinstance(annotated, types.UnionType):
        (annotated,) = (argument for argument in typing.get_args(annotated) if argument is not types.NoneType)
    if own.default_factory is not dataclasses.MISSING:
        default: object = own.default_factory()
    else:
        default = None if own.default is dataclasses.MISSING else own.default
    required = own.default is dataclasses.MISSING and own.default_factory is dataclasses.MISSING
    return Field(own.name, key_of(own.name), annotated, about, required, default)
