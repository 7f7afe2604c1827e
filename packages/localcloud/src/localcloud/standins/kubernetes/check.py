"""Completes the inputs of a resource: its kind, its name, its namespace."""

from __future__ import annotations

from collections.abc import Callable

from localcloud.standins.kubernetes import metadata
from localcloud.standins.kubernetes.cluster.kinds import Token, UnsupportedType
from localcloud.standins.kubernetes.metadata import Object


def checked_inputs(
    token: Token, new: Object, old: Object, *, name: str, seed: bytes, namespace: Callable[[Object], str]
) -> Object:
    """Return the inputs to compare and apply.

    Args:
        token: The resource's type.
        new: The inputs that the program gives.
        old: The inputs of the last run; empty for a new resource.
        name: The resource's name in the program, from which an unnamed object gets its name.
        seed: Makes the generated part of a name.
        namespace: Returns the namespace for an object that has none.

    Raises:
        UnsupportedType: The metadata asks for something that server-side apply does not do.
    """
    inputs = metadata.without_read_only({"apiVersion": token.api_version, "kind": token.kind, **new})
    inputs["apiVersion"] = str(inputs["apiVersion"]).removeprefix("core/")
    if metadata.metadata(inputs).get("generateName") and not metadata.has_name(inputs):
        raise UnsupportedType("the `.metadata.generateName` field is not supported in Server-Side Apply mode")
    if token.patch and not metadata.has_name(inputs):
        raise UnsupportedType("patch resources require the `.metadata.name` field to be set")
    metadata.assign_name(inputs, old, name, seed)
    if isinstance(inputs.get("metadata"), dict) and "namespace" not in inputs["metadata"]:
        default = namespace(inputs)
        if default:
            metadata.set_metadata(inputs, "namespace", default)
    return inputs
