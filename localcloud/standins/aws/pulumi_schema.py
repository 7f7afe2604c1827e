"""The Pulumi package schema of the types that the stand-in covers: `pulumi import` needs it to write code. Pure."""

from __future__ import annotations

from typing import Any

from localcloud.standins.aws import schema

_NAME = "aws"


def package_schema(version: str) -> dict[str, Any]:
    """The package schema, as `pulumi package get-schema` prints it, of the covered types and nothing else."""
    content = schema.load()
    return {
        "name": _NAME,
        "version": version,
        "description": "The part of pulumi-aws that localcloud's stand-in covers.",
        "provider": {},
        "resources": {token: _resource(resource) for token, resource in content["resources"].items()},
        "types": {_token(name): _object(item) for name, item in content["objects"].items()},
    }


def _resource(resource: dict[str, Any]) -> dict[str, Any]:
    inputs = {name: _type(kind) for name, kind in resource["inputs"].items()}
    outputs = {name: inputs.get(name, {"$ref": "pulumi.json#/Any"}) for name in resource["outputs"]}
    return {"inputProperties": inputs, "requiredInputs": resource["required"], "properties": outputs}


def _object(item: dict[str, Any]) -> dict[str, Any]:
    properties = {name: _type(kind) for name, kind in item["fields"].items()}
    return {"type": "object", "properties": properties, "required": item["required"]}


def _token(name: str) -> str:
    module, _, member = name.rpartition(".")
    return f"{_NAME}:{module}/{member}:{member}"


def _type(kind: str) -> dict[str, Any]:
    if kind.startswith("["):
        return {"type": "array", "items": _type(kind[1:-1])}
    if kind.startswith("{"):
        return {"type": "object", "additionalProperties": _type(kind[1:-1])}
    if kind in ("string", "number", "boolean"):
        return {"type": kind}
    return {"$ref": "pulumi.json#/Any"} if kind == "any" else {"$ref": f"#/types/{_token(kind)}"}
