"""Find fields that a kind does not have, in the cluster's own OpenAPI v3 document.

A server-side dry run finds them too, but cannot run while a value is unknown.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from localcloud.standins.kubernetes.cluster.kinds import group_of
from localcloud.standins.kubernetes.decide.diff import Path, render_path


def unknown_fields(document: Mapping[str, Any], api_version: str, kind: str, obj: Mapping[str, Any]) -> list[str]:
    """Return the paths in the object that its schema doesn't declare; none when the document lacks the kind."""
    schemas = document.get("components", {}).get("schemas", {})
    wanted = {"group": group_of(api_version), "version": api_version.rpartition("/")[2], "kind": kind}
    schema = next(
        (each for each in schemas.values() if wanted in each.get("x-kubernetes-group-version-kind", [])), None
    )
    found: list[str] = []
    if schema is not None:
        _walk(schemas, schema, obj, (), found)
    return found


def _walk(schemas: Mapping[str, Any], schema: Mapping[str, Any], value: Any, path: Path, found: list[str]) -> None:
    schema = _resolve(schemas, schema)
    if isinstance(value, list) and "items" in schema:
        for index, item in enumerate(value):
            _walk(schemas, schema["items"], item, (*path, index), found)
    if not isinstance(value, dict):
        return
    properties, extra = schema.get("properties"), schema.get("additionalProperties")
    for key, item in value.items():
        if properties and key in properties:
            _walk(schemas, properties[key], item, (*path, key), found)
        elif isinstance(extra, dict):
            _walk(schemas, extra, item, (*path, key), found)
        elif properties and not extra and not schema.get("x-kubernetes-preserve-unknown-fields"):
            found.append(render_path((*path, key)))


def _resolve(schemas: Mapping[str, Any], schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """Follow `$ref`, also as the one member of an `allOf` (which lets a schema add a default to it)."""
    while True:
        reference = schema.get("$ref") or next(
            (each["$ref"] for each in schema.get("allOf", []) if "$ref" in each), None
        )
        if reference is None:
            return schema
        schema = schemas.get(reference.rpartition("/")[2], {})
