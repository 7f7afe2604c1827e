"""A stack as the engine knows it: every resource with its inputs, children of components included.

    stack = Stack.of_state(json.loads(exported))     # of `pulumi stack export --show-secrets`
    stack.of("aws:efs/fileSystem:FileSystem")

Rules read it, and changes make another one of it, as if a setting had been turned off.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

SIGNATURE = "4dabf18193072939515e22adb298388d"
"""The key with which Pulumi's state marks a value of a special kind: a secret, an asset, a reference to a resource."""
SECRET = "1b47061264138c4ac30d75fd1eb44270"
"""The mark of a secret."""

Path = tuple[str | int, ...]


@dataclass(frozen=True, eq=False)
class Resource:
    """One resource. `outputs` are what the provider answered, the inputs among them."""

    type: str
    name: str
    urn: str
    parent: str = ""
    id: str = ""
    inputs: Mapping[str, Any] = field(default_factory=dict)
    outputs: Mapping[str, Any] = field(default_factory=dict)

    def get(self, path: str) -> Any:
        """Return the input at a path (`spec.ports.0`), or None."""
        found: Any = self.inputs
        for part in steps(path):
            if isinstance(part, int):
                found = found[part] if isinstance(found, list) and part < len(found) else None
            else:
                found = found.get(part) if isinstance(found, Mapping) else None
        return found

    def put(self, path: str, value: Any) -> Resource:
        """Return this resource with another input at a path; None removes the input."""
        inputs = copy.deepcopy(dict(self.inputs))
        *outer, last = steps(path)
        inner: Any = inputs
        for part in outer:
            inner = inner.setdefault(part, {}) if isinstance(part, str) else inner[part]
        if value is None:
            del inner[last]
        else:
            inner[last] = value
        return replace(self, inputs=inputs)

    @property
    def arn(self) -> str:
        """The ARN, if AWS gave one."""
        return str(self.outputs.get("arn", ""))


@dataclass(frozen=True)
class Stack:
    """All resources."""

    resources: tuple[Resource, ...]

    @classmethod
    def of_state(cls, exported: Mapping[str, Any]) -> Stack:
        """Return the stack of a state file with its secrets in plain text."""
        listed = exported["deployment"]["resources"]
        return cls(
            tuple(
                Resource(
                    type=each["type"],
                    name=each["urn"].rpartition("::")[2],
                    urn=each["urn"],
                    parent=each.get("parent", ""),
                    id=each.get("id", ""),
                    inputs=shown(each.get("inputs") or {}),
                    outputs=shown(each.get("outputs") or {}),
                )
                for each in listed
                if not each.get("delete")
            )
        )

    def of(self, *types: str) -> list[Resource]:
        """Return the resources of these types."""
        return [each for each in self.resources if each.type in types]

    def attached(self, type_: str, key: str, to: Resource) -> list[Resource]:
        """Return the resources of a type that name another one, by its id or its ARN, in the input `key`."""
        return [each for each in self.of(type_) if each.get(key) in {to.id, to.arn} - {""}]

    def has_key(self, arn: object) -> bool:
        """Return whether an ARN is that of a KMS key of this stack: a customer's own."""
        return bool(arn) and arn in {key.arn for key in self.of("aws:kms/key:Key")}

    def public_subnets(self) -> set[str]:
        """Return the ids of the subnets with a route table that leads to an internet gateway."""
        tables = {each.get("routeTableId") for each in self.of("aws:ec2/route:Route") if each.get("gatewayId")}
        links = self.of("aws:ec2/routeTableAssociation:RouteTableAssociation")
        return {str(each.get("subnetId")) for each in links if each.get("routeTableId") in tables}

    def replacing(self, old: Resource, new: Resource) -> Stack:
        """Return the stack with one resource changed."""
        return Stack(tuple(new if each is old else each for each in self.resources))

    def without(self, gone: Resource) -> Stack:
        """Return the stack without one resource."""
        return Stack(tuple(each for each in self.resources if each is not gone))

    def adding(self, more: Iterable[Resource]) -> Stack:
        """Return the stack with more resources."""
        return Stack((*self.resources, *more))


def steps(path: str) -> Path:
    """Return the parts of a path; numbers are positions in lists."""
    return tuple(int(part) if part.isdecimal() else part for part in path.split("."))


def shown(value: Any) -> Any:
    """Return a value of the state with its secrets in plain text.

    Raises:
        ValueError: a secret is encrypted.
    """
    if isinstance(value, list):
        return [shown(each) for each in value]
    if not isinstance(value, Mapping):
        return value
    if value.get(SIGNATURE) == SECRET:
        if "plaintext" not in value:
            raise ValueError("the state's secrets are encrypted: export it with --show-secrets")
        return shown(json.loads(value["plaintext"]))
    return {key: shown(each) for key, each in value.items()}
