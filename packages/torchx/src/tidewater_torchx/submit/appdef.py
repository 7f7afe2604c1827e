"""A TorchX application as JSON and back, with all of its fields. Pure.

    text = encoded(app)         # what the job's annotation has
    decoded(text) == app

`describe` gives back what was submitted, so the whole application is kept with the object.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, fields
from typing import Any

from torchx.specs import AppDef, BindMount, DeviceMount, Resource, RetryPolicy, Role, VolumeMount

from tidewater_torchx.errors import Refused

VERSION = 1

_TUPLE = "$tuple"
"""The only key of a mapping that stands for a tuple. In an overlay a tuple means another thing than a list."""

_MOUNTS: Mapping[str, type] = {"bind": BindMount, "volume": VolumeMount, "device": DeviceMount}
_SCALARS = (str, int, float, bool, type(None))


def encoded(app: AppDef) -> str:
    """Return the application as JSON.

    Raises:
        Refused: a value of a role's metadata, resource or another field is nothing that JSON has.
    """
    check(app.metadata, "metadata of the application")
    roles = [_role_object(role) for role in app.roles]
    found = {"version": VERSION, "name": app.name, "metadata": dict(app.metadata), "roles": roles}
    return json.dumps(_marked(found), separators=(",", ":"))


def decoded(text: str) -> AppDef:
    """Return the application.

    Raises:
        Refused: it was written by another version of this package, or is no application.
    """
    try:
        found = json.loads(text, object_hook=_unmarked)
        version = found["version"]
        if version != VERSION:
            raise Refused(f"the application was submitted by another version of this scheduler (format {version})")
        return AppDef(found["name"], [_role(each) for each in found["roles"]], dict(found["metadata"]))
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        if isinstance(error, Refused):
            raise
        raise Refused(f"the job's annotation holds no TorchX application: {error}") from None


def _role_object(role: Role) -> dict[str, Any]:
    found = {field.name: getattr(role, field.name) for field in fields(Role)}
    found["retry_policy"] = role.retry_policy.value
    found["resource"] = asdict(role.resource)
    found["mounts"] = [_mount_object(mount, role.name) for mount in role.mounts]
    for key, value in found.items():
        check(value, f"role {role.name}: {key}")
    return found


def _role(found: Mapping[str, Any]) -> Role:
    known = {field.name for field in fields(Role)}
    values = {key: value for key, value in found.items() if key in known}
    values["retry_policy"] = RetryPolicy(values["retry_policy"])
    values["resource"] = Resource(**values["resource"])
    values["mounts"] = [_mount(each) for each in values["mounts"]]
    return Role(**values)


def _mount_object(mount: object, role: str) -> dict[str, Any]:
    for name, type_ in _MOUNTS.items():
        if isinstance(mount, type_):
            return {"type": name, **asdict(mount)}  # type: ignore[call-overload] # they are dataclasses
    raise Refused(f"role {role}: {mount!r} is no mount; use BindMount, VolumeMount or DeviceMount")


def _mount(found: Mapping[str, Any]) -> object:
    values = dict(found)
    return _MOUNTS[values.pop("type")](**values)


def _marked(value: Any) -> Any:
    """Return a value with its tuples as JSON can have them."""
    if isinstance(value, Mapping):
        return {key: _marked(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        each_marked = [_marked(each) for each in value]
        return {_TUPLE: each_marked} if isinstance(value, tuple) else each_marked
    return value


def _unmarked(found: dict[str, Any]) -> Any:
    return tuple(found[_TUPLE]) if found.keys() == {_TUPLE} else found


def check(value: object, where: str) -> None:
    """Raise Refused for a value that would not be the same after JSON.

    Args:
        value: Of a field of the application.
        where: Which field, for the message.
    """
    if isinstance(value, Mapping):
        for key, each in value.items():
            if not isinstance(key, str):
                raise Refused(f"{where}: key {key!r} must be a text, since the application is kept as JSON")
            if key == _TUPLE:
                raise Refused(f"{where}: key {key!r} stands for a tuple where the application is kept; rename it")
            check(each, f"{where}[{key}]")
    elif isinstance(value, list | tuple):
        for index, each in enumerate(value):
            check(each, f"{where}[{index}]")
    elif not isinstance(value, _SCALARS):
        kind = type(value).__name__
        raise Refused(f"{where} is {kind}; use texts, numbers, lists and mappings, since it is kept as JSON")
