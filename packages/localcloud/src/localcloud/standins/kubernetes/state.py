"""Property values ↔ Kubernetes objects, and the state ("checkpoint object") that the plug-in hands to the engine.

The state is the live object plus `__inputs`, `__initialApiVersion` and `__fieldManager`, as pulumi-kubernetes writes
it, so that a stack can move from this plug-in to the official one and back.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from pulumi.provider.experimental.property_value import PropertyValue

from localcloud.standins.kubernetes.metadata import Object, metadata, without_read_only
from localcloud.standins.values import has_secret, to_plain, wrap

Properties = dict[str, PropertyValue]

INPUTS: Final = "__inputs"
INITIAL_API_VERSION: Final = "__initialApiVersion"
FIELD_MANAGER: Final = "__fieldManager"
_DASHED: Final = {
    f"x_kubernetes_{suffix.replace('-', '_')}": f"x-kubernetes-{suffix}"
    for suffix in "embedded-resource int-or-string list-map-keys list-type map-type preserve-unknown-fields "
    "validations".split()
}
"""The SDKs write these keys of a CustomResourceDefinition with underscores."""
_UNDERSCORED: Final = {dashed: underscored for underscored, dashed in _DASHED.items()}


def to_object(properties: Mapping[str, PropertyValue]) -> Object:
    """Return the plain object that the properties describe; unknown values are `UNKNOWN`."""
    renamed: Object = _rename(to_plain(properties), _DASHED)
    return renamed


def from_object(obj: Mapping[str, Any], like: Mapping[str, PropertyValue]) -> Properties:
    """Return the object as properties: secret where `like` (the program's inputs) is, and in the data of a Secret."""
    properties = {key: wrap(value) for key, value in _rename(_without_nulls(obj), _UNDERSCORED).items()}
    return _mark_secrets(properties, like)


def checkpoint(
    inputs: Object, live: Object, like: Mapping[str, PropertyValue], initial_api_version: str, manager: str
) -> Properties:
    """Return the state of a resource.

    Args:
        inputs: The program's inputs.
        live: The object as the API server has it.
        like: The inputs as properties, which know what is secret.
        initial_api_version: The apiVersion that the object was created with.
        manager: The field manager that owns the applied fields.
    """
    state = from_object(live, like)
    state[INPUTS] = PropertyValue(from_object(inputs, like))
    state[INITIAL_API_VERSION] = PropertyValue(initial_api_version)
    state[FIELD_MANAGER] = PropertyValue(manager)
    return state


def split_checkpoint(state: Mapping[str, PropertyValue]) -> tuple[Object, Object]:
    """Return the inputs and the live object that a state holds."""
    live = to_object(state)
    inputs = live.pop(INPUTS, {})
    live.pop(INITIAL_API_VERSION, None)
    live.pop(FIELD_MANAGER, None)
    return (inputs if isinstance(inputs, dict) else {}), live


def imported_inputs(live: Object) -> Object:
    """Return the inputs of an object that no program has described yet: all but what only the cluster sets."""
    inputs = without_read_only({key: value for key, value in live.items() if key != "status"})
    meta = {**metadata(inputs)}
    annotations = {
        key: value
        for key, value in (meta.pop("annotations", None) or {}).items()
        if key not in ("deployment.kubernetes.io/revision", "kubectl.kubernetes.io/last-applied-configuration")
    }
    return {**inputs, "metadata": {**meta, **({"annotations": annotations} if annotations else {})}}


def text_member(state: Mapping[str, PropertyValue], key: str) -> str:
    """Return a member of the state that is a string; the empty string if there is none."""
    value = state[key].value if key in state else None
    return value if isinstance(value, str) else ""


def _mark_secrets(outs: Properties, ins: Mapping[str, PropertyValue]) -> Properties:
    kind = outs.get("kind")
    if kind is not None and kind.value == "Secret":
        return {key: value.with_secret(True) if key in ("data", "stringData") else value for key, value in outs.items()}
    return {key: _mark(value, ins[key]) if key in ins else value for key, value in outs.items()}


def _mark(out: PropertyValue, source: PropertyValue) -> PropertyValue:
    """Mark what is secret in `source`, down through maps; a list with a secret in it is secret as a whole."""
    if source.is_secret:
        return out.with_secret(True)
    if isinstance(out.value, Mapping) and isinstance(source.value, Mapping):
        return out.with_value(_mark_secrets(dict(out.value), source.value))
    return out.with_secret(True) if has_secret(source) else out


def _rename(value: Any, names: Mapping[str, str]) -> Any:
    if isinstance(value, dict):
        return {names.get(key, key): _rename(item, names) for key, item in value.items()}
    if isinstance(value, list):
        return [_rename(item, names) for item in value]
    return value


def _without_nulls(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _without_nulls(item) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [_without_nulls(item) for item in value if item is not None]
    return value
