"""The model as a structural OpenAPI v3 schema, as a CustomResourceDefinition contains it.

    schema.of(JobSpec, defaults=True)      # {"type": "object", "properties": {"rdzvEndpoint": ...}, ...}

Defaults of single values become defaults of the API, so that `kubectl get -o yaml` shows them. A default that depends
on other fields (None in the model) stays absent.
https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/custom-resource-definitions/
"""

from __future__ import annotations

import dataclasses
import inspect
import typing
from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum

from tidewater.elasticjob import rules
from tidewater.elasticjob.about import About, Field, fields_of

_SIMPLE: Mapping[type, Mapping[str, object]] = {
    str: {"type": "string"},
    bool: {"type": "boolean"},
    int: {"type": "integer", "format": "int64"},
    datetime: {"type": "string", "format": "date-time"},
}
_INT32_MAX = 2**31 - 1


def of(model: type, *, defaults: bool) -> dict[str, object]:
    """Return the schema of a dataclass.

    Args:
        model: A dataclass with fields that are `Annotated[..., About(...)]`.
        defaults: Whether the API server fills in defaults. It should not in a status, where an absent field says that
            the controller has not looked yet.
    """
    fields = fields_of(model)
    required = sorted(one.key for one in fields if one.required)
    validations = rules.of(model)
    return {
        "type": "object",
        "description": inspect.cleandoc(model.__doc__ or ""),
        "properties": {one.key: _property(one, defaults) for one in fields},
        **({"required": required} if required else {}),
        **({"x-kubernetes-validations": validations} if validations else {}),
    }


def _property(one: Field, defaults: bool) -> dict[str, object]:
    """Return the schema of one field, with its description."""
    about = one.about
    result: dict[str, object] = {} if about.schema is None else dict(about.schema())
    if about.schema is None:
        result.update(_type(one.type, about, defaults))
    result["description"] = about.text
    if defaults and isinstance(one.default, str | int):
        result["default"] = one.default.value if isinstance(one.default, StrEnum) else one.default
    if about.immutable:
        result["x-kubernetes-validations"] = [rules.immutable(one.key)]
    return result


def _type(type_: typing.Any, about: About, defaults: bool) -> dict[str, object]:
    """Return the schema of a type, with the bounds that apply to it."""
    if dataclasses.is_dataclass(type_):
        return of(typing.cast(type, type_), defaults=defaults)
    origin = typing.get_origin(type_)
    if origin is tuple:
        return _list(typing.get_args(type_)[0], about, defaults)
    if origin is not None:
        return _map(typing.get_args(type_)[1], about, defaults)
    if issubclass(type_, StrEnum):
        return {"type": "string", "enum": [*(member.value for member in type_), *([""] if about.blank else [])]}
    return {**_SIMPLE[type_], **_bounds(type_, about)}


def _list(element: typing.Any, about: About, defaults: bool) -> dict[str, object]:
    """Return the schema of a list; bounds of a number are those of its elements."""
    result: dict[str, object] = {"type": "array", "items": _type(element, about, defaults)}
    if about.most is not None:
        result["maxItems"] = about.most
    if about.list_type:
        result["x-kubernetes-list-type"] = about.list_type
    if about.list_key:
        result["x-kubernetes-list-map-keys"] = [about.list_key]
    return result


def _map(value: typing.Any, about: About, defaults: bool) -> dict[str, object]:
    """Return the schema of a map from strings; of the keys OpenAPI can say nothing."""
    result: dict[str, object] = {"type": "object", "additionalProperties": _type(value, About(""), defaults)}
    if about.most is not None:
        result["maxProperties"] = about.most
    return result


def _bounds(type_: type, about: About) -> dict[str, object]:
    """Return the bounds of a single value that the model gives."""
    if type_ is int:
        found: dict[str, object] = {"minimum": about.minimum, "maximum": about.maximum}
        if about.maximum is not None and about.maximum <= _INT32_MAX:
            found["format"] = "int32"
    else:
        found = {"minLength": about.min_length, "maxLength": about.max_length, "pattern": about.pattern or None}
    return {key: bound for key, bound in found.items() if bound is not None}
