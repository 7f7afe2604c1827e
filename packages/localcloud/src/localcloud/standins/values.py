"""Property values between the plug-in protocol and plain Python.

    tree = to_plain(request.new_inputs)         # dicts, lists, strings, ints, floats, bools, assets and UNKNOWN
    outputs = from_plain(tree, secret={"token"})

The SDK's `PropertyValue` (pulumi 3.250) loses unknown values: it reads the unknown marker as an ordinary string,
refuses output values that have no value yet, cannot write `Computed`, and its `Computed.__eq__` raises.
It drops the hashes of assets, and refuses assets known by their hash alone, as old ones are in a diff.
`repair_property_value()` corrects reading and writing once, when a plug-in starts, so that the SDK's own server
(construct, call) keeps them too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, MutableMapping, Sequence
from typing import Any, Final

import pulumi
from google.protobuf import struct_pb2
from pulumi.provider.experimental.property_value import Computed, PropertyValue, ResourceReference
from pulumi.runtime import rpc

_UNKNOWN_MARKER: Final[str] = rpc.UNKNOWN
_SIGNATURE: Final[str] = rpc._special_sig_key
_OUTPUT: Final[str] = rpc._special_output_value_sig
_ASSET: Final[str] = rpc._special_asset_sig
_ARCHIVE: Final[str] = rpc._special_archive_sig
_HASH: Final = "hash"
_CONTENT: Final = frozenset({"path", "text", "uri", "assets"})


class Unknown:
    """A value that is not known before the update runs. There is one instance, `UNKNOWN`."""

    def __repr__(self) -> str:
        return "UNKNOWN"

    def __deepcopy__(self, memo: dict[int, Any]) -> Unknown:
        return self


UNKNOWN: Final = Unknown()


def to_plain(values: Mapping[str, PropertyValue]) -> dict[str, Any]:
    """The map as plain Python: secrets are unwrapped, dependencies dropped, whole numbers are ints, unknowns UNKNOWN.

    A null member is left out, as the engine treats null and absent alike.
    """
    return {key: plain(value) for key, value in values.items() if value.value is not None}


def plain(value: PropertyValue) -> Any:
    """One value as plain Python; see `to_plain`."""
    inner = value.value
    if isinstance(inner, Computed):
        return UNKNOWN
    if isinstance(inner, float) and inner.is_integer():
        return int(inner)
    if isinstance(inner, ResourceReference):
        return UNKNOWN if inner.resource_id is None else plain(inner.resource_id)
    if isinstance(inner, Mapping):
        return to_plain(inner)
    if isinstance(inner, Sequence) and not isinstance(inner, str):
        return [plain(item) for item in inner]
    return inner


def from_plain(tree: Mapping[str, Any], secret: Iterable[str] = ()) -> dict[str, PropertyValue]:
    """The inverse of `to_plain`; the members named in `secret` are marked secret, those that are None left out."""
    marked = frozenset(secret)
    return {key: wrap(value).with_secret(key in marked) for key, value in tree.items() if value is not None}


def wrap(value: Any) -> PropertyValue:
    """One plain value as a property value.

    Raises:
        TypeError: the protocol has no such type.
    """
    if value is UNKNOWN:
        return PropertyValue.computed()
    if isinstance(value, bool):
        return PropertyValue(value)
    if isinstance(value, int):
        return PropertyValue(float(value))
    if isinstance(value, Mapping):
        return PropertyValue({str(key): wrap(item) for key, item in value.items()})
    if isinstance(value, (list, tuple)):
        return PropertyValue([wrap(item) for item in value])
    return PropertyValue(value)


def has_secret(value: PropertyValue) -> bool:
    """Whether the value, or anything within it, is secret."""
    if value.is_secret:
        return True
    inner = value.value
    if isinstance(inner, Mapping):
        return any(has_secret(item) for item in inner.values())
    if isinstance(inner, Sequence) and not isinstance(inner, str):
        return any(has_secret(item) for item in inner)
    return False


def secret_keys(values: Mapping[str, PropertyValue]) -> frozenset[str]:
    """The top-level members that are secret or hold a secret."""
    return frozenset(key for key, value in values.items() if has_secret(value))


def has_unknown(tree: Any) -> bool:
    """Whether a plain tree holds an unknown anywhere."""
    if tree is UNKNOWN:
        return True
    if isinstance(tree, Mapping):
        return any(has_unknown(item) for item in tree.values())
    if isinstance(tree, (list, tuple)):
        return any(has_unknown(item) for item in tree)
    return isinstance(tree, pulumi.Output)


def repair_property_value() -> None:
    """Make `PropertyValue.marshal` and `unmarshal` keep unknowns. Safe to call twice."""
    if getattr(PropertyValue, "_keeps_unknowns", False):
        return
    unmarshal_known, marshal_known = PropertyValue.unmarshal, PropertyValue.marshal

    def unmarshal(value: struct_pb2.Value) -> PropertyValue:
        kind = value.WhichOneof("kind")
        if kind == "string_value" and value.string_value == _UNKNOWN_MARKER:
            return PropertyValue.computed()
        if kind == "struct_value":
            fields = value.struct_value.fields
            # Looking up a missing key in a protobuf map adds the key, so test for it first.
            signature = fields[_SIGNATURE].string_value if _SIGNATURE in fields else ""
            if signature == _OUTPUT:
                return _unmarshal_output(fields)
            if signature in (_ASSET, _ARCHIVE):
                return _unmarshal_asset(fields, lambda: unmarshal_known(value))
        return unmarshal_known(value)

    def marshal(self: PropertyValue) -> struct_pb2.Value:
        if isinstance(self.value, Computed):
            return PropertyValue(_UNKNOWN_MARKER).marshal()
        if asset_hash(self.value) and not self.is_secret and not self.dependencies:
            return _marshal_asset(self.value, lambda: marshal_known(self))
        return marshal_known(self)

    PropertyValue.unmarshal = staticmethod(unmarshal)  # type: ignore[method-assign]
    PropertyValue.marshal = marshal  # type: ignore[method-assign]
    PropertyValue._keeps_unknowns = True  # type: ignore[attr-defined]


def asset_hash(value: Any) -> str:
    """Return the hash that the engine computed for an asset's or archive's content, or an empty string."""
    return str(getattr(value, _HASH, "")) if isinstance(value, (pulumi.Asset, pulumi.Archive)) else ""


def _unmarshal_asset(
    fields: MutableMapping[str, struct_pb2.Value], known: Callable[[], PropertyValue]
) -> PropertyValue:
    """Return an asset or archive with its hash; in a diff the engine sends the hash without the content."""
    signature = fields[_SIGNATURE].string_value
    asset: Any = known().value if _CONTENT & set(fields) else _hashed(signature)
    asset.hash = fields[_HASH].string_value if _HASH in fields else ""
    return PropertyValue(asset)


def _hashed(signature: str) -> pulumi.Asset | pulumi.Archive:
    return pulumi.Asset() if signature == _ASSET else pulumi.Archive()


def _marshal_asset(asset: Any, known: Callable[[], struct_pb2.Value]) -> struct_pb2.Value:
    marshalled = known()
    marshalled.struct_value.fields[_HASH].string_value = asset_hash(asset)
    return marshalled


def _unmarshal_output(fields: Mapping[str, struct_pb2.Value]) -> PropertyValue:
    """An output value: without a member `value` it is unknown; `dependencies` and `secret` may be left out."""
    inner = PropertyValue.unmarshal(fields["value"]) if "value" in fields else PropertyValue.computed()
    urns = fields["dependencies"].list_value.values if "dependencies" in fields else []
    dependencies = [urn.string_value for urn in urns]
    secret = "secret" in fields and fields["secret"].bool_value
    return inner.with_dependencies(dependencies).with_secret(secret or inner.is_secret)
