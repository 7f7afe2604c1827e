"""Names, ids and the `pulumi.com/…` annotations of a Kubernetes object, as plain functions on its dict."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Mapping
from typing import Any, Final

Object = dict[str, Any]

AUTONAMED: Final = "pulumi.com/autonamed"
SKIP_AWAIT: Final = "pulumi.com/skipAwait"
TIMEOUT_SECONDS: Final = "pulumi.com/timeoutSeconds"
WAIT_FOR: Final = "pulumi.com/waitFor"
PATCH_FORCE: Final = "pulumi.com/patchForce"
PATCH_FIELD_MANAGER: Final = "pulumi.com/patchFieldManager"
DELETION_PROPAGATION: Final = "pulumi.com/deletionPropagationPolicy"
REPLACE_UNREADY: Final = "pulumi.com/replaceUnready"
_READ_ONLY: Final = frozenset(
    "creationTimestamp deletionGracePeriodSeconds deletionTimestamp generation managedFields resourceVersion "
    "uid".split()
)


def metadata(obj: Mapping[str, Any]) -> dict[str, Any]:
    """Return the object's metadata; an empty dict (not part of the object) where there is none or it is unknown."""
    value = obj.get("metadata")
    return value if isinstance(value, dict) else {}


def name(obj: Mapping[str, Any]) -> str:
    """Return the name; empty while there is none or it is unknown."""
    value = metadata(obj).get("name")
    return value if isinstance(value, str) else ""


def namespace(obj: Mapping[str, Any]) -> str:
    """Return the namespace; empty while there is none or it is unknown."""
    value = metadata(obj).get("namespace")
    return value if isinstance(value, str) else ""


def annotation(obj: Mapping[str, Any], key: str) -> str:
    """Return the value of an annotation; empty where there is none."""
    annotations = metadata(obj).get("annotations")
    value = annotations.get(key) if isinstance(annotations, dict) else None
    return value if isinstance(value, str) else ""


def annotated_true(obj: Mapping[str, Any], key: str) -> bool:
    """Return whether an annotation is `true`."""
    return annotation(obj, key) == "true"


def set_metadata(obj: Object, key: str, value: Any) -> None:
    """Set `metadata.KEY`; make the metadata where there is none."""
    inner = obj.get("metadata")
    obj["metadata"] = {**(inner if isinstance(inner, dict) else {}), key: value}


def object_id(obj: Mapping[str, Any]) -> str:
    """Return the Pulumi id: `namespace/name`, or `name` outside namespaces."""
    return f"{namespace(obj)}/{name(obj)}" if namespace(obj) else name(obj)


def parse_id(resource_id: str) -> tuple[str, str]:
    """Return the namespace (perhaps empty) and name that an id or an import id means."""
    first, separator, rest = resource_id.partition("/")
    return (first, rest) if separator else ("", first)


def has_name(obj: Mapping[str, Any]) -> bool:
    """Return whether the program gives a name, known or unknown; metadata that is unknown as a whole counts as one."""
    inner = obj.get("metadata")
    if inner is None:
        return False
    return not isinstance(inner, dict) or inner.get("name") not in (None, "")


def assign_name(obj: Object, old: Mapping[str, Any], base: str, seed: bytes) -> None:
    """Name an unnamed object: as an earlier run did, or `BASE-8hex`, where the same seed makes the same name."""
    if has_name(obj):
        return
    suffix = hashlib.sha256(seed).hexdigest()[:8] if seed else secrets.token_hex(4)
    set_metadata(obj, "name", name(old) if annotated_true(old, AUTONAMED) else f"{base}-{suffix}")
    annotations = metadata(obj).get("annotations")
    obj["metadata"]["annotations"] = {**(annotations if isinstance(annotations, dict) else {}), AUTONAMED: "true"}


def without_read_only(obj: Object) -> Object:
    """Return the object without the metadata that only the API server sets."""
    if not isinstance(obj.get("metadata"), dict):
        return obj
    return {**obj, "metadata": {key: value for key, value in obj["metadata"].items() if key not in _READ_ONLY}}


def timeout_seconds(custom: float, inputs: Mapping[str, Any], default: float) -> float:
    """Return how long to wait: the resource option `customTimeouts`, else the annotation, else the kind's default."""
    if custom:
        return custom
    text = annotation(inputs, TIMEOUT_SECONDS)
    return float(text) if text.isdigit() else default


def deletion_propagation(inputs: Mapping[str, Any]) -> str:
    """Return the propagation policy: dependents are deleted first (`Foreground`) unless the annotation differs."""
    return {"orphan": "Orphan", "background": "Background"}.get(
        annotation(inputs, DELETION_PROPAGATION).lower(), "Foreground"
    )


def owned_by(obj: Mapping[str, Any], owner: Mapping[str, Any]) -> bool:
    """Return whether the owner is among the object's owner references."""
    uid = metadata(owner).get("uid")
    references = metadata(obj).get("ownerReferences")
    return uid is not None and isinstance(references, list) and any(item.get("uid") == uid for item in references)
