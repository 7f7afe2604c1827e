"""The engine's requests to the provider, step by step, over an account that keeps state."""

from __future__ import annotations

import asyncio
import hashlib
from dataclasses import dataclass, field
from typing import Any

from localcloud.standins.aws.provider import AwsProvider
from localcloud.standins.serve import DeleteRequest, DiffRequest, UpdateRequest
from localcloud.standins.values import from_plain, repair_property_value, to_plain
from pulumi.provider.experimental import provider as sdk

Tree = dict[str, Any]
repair_property_value()


class CheckFailed(Exception):
    """Check refused the inputs; `failures` maps each property to the reason."""

    def __init__(self, failures: dict[str, str]) -> None:
        super().__init__(str(failures))
        self.failures = failures


@dataclass
class Resource:
    """A resource in the state file."""

    token: str
    name: str
    id: str
    inputs: Tree
    outputs: Tree

    @property
    def urn(self) -> str:
        return f"urn:pulumi:s::p::{self.token}::{self.name}"


@dataclass
class Engine:
    """Drive one provider."""

    provider: AwsProvider
    made: list[Resource] = field(default_factory=list)

    def check(self, token: str, name: str, inputs: Tree, olds: Tree | None = None) -> Tree:
        seed = hashlib.sha256(f"{token}{name}{len(self.made)}".encode()).digest()
        request = sdk.CheckRequest(
            f"urn:pulumi:s::p::{token}::{name}", from_plain(olds or {}), from_plain(inputs), seed
        )
        response = asyncio.run(self.provider.check(request))
        if response.failures:
            raise CheckFailed({failure.property: failure.reason for failure in response.failures})
        return to_plain(response.inputs or {})

    def preview(self, token: str, name: str, inputs: Tree) -> Tree:
        checked = from_plain(self.check(token, name, inputs))
        request = sdk.CreateRequest(f"urn:pulumi:s::p::{token}::{name}", checked, 0, preview=True)
        return to_plain(asyncio.run(self.provider.create(request)).properties)

    def create(self, token: str, name: str, inputs: Tree) -> Resource:
        checked = self.check(token, name, inputs)
        request = sdk.CreateRequest(f"urn:pulumi:s::p::{token}::{name}", from_plain(checked), 60, preview=False)
        response = asyncio.run(self.provider.create(request))
        made = Resource(token, name, response.resource_id or "", checked, to_plain(response.properties))
        self.made.append(made)
        return made

    def diff(self, resource: Resource, inputs: Tree) -> sdk.DiffResponse:
        checked = self.check(resource.token, resource.name, inputs, resource.inputs)
        request = DiffRequest(resource.urn, resource.id, from_plain(resource.outputs), from_plain(checked), [])
        request.old_inputs = from_plain(resource.inputs)
        return asyncio.run(self.provider.diff(request))

    def update(self, resource: Resource, inputs: Tree) -> None:
        checked = self.check(resource.token, resource.name, inputs, resource.inputs)
        news, olds = from_plain(checked), from_plain(resource.outputs)
        request = UpdateRequest(resource.urn, resource.id, olds, news, 60, [], preview=False)
        request.old_inputs = from_plain(resource.inputs)
        response = asyncio.run(self.provider.update(request))
        resource.inputs, resource.outputs = checked, to_plain(response.properties)

    def refresh(self, resource: Resource) -> bool:
        """Read the resource into the state; return False if it doesn't exist."""
        inputs, outputs = from_plain(resource.inputs), from_plain(resource.outputs)
        response = asyncio.run(self.provider.read(sdk.ReadRequest(resource.urn, resource.id, outputs, inputs)))
        if not response.resource_id:
            return False
        resource.inputs, resource.outputs = to_plain(response.inputs), to_plain(response.properties)
        return True

    def import_(self, token: str, name: str, resource_id: str) -> Resource | None:
        urn = f"urn:pulumi:s::p::{token}::{name}"
        response = asyncio.run(self.provider.read(sdk.ReadRequest(urn, resource_id, {}, {})))
        if not response.resource_id:
            return None
        return Resource(token, name, response.resource_id, to_plain(response.inputs), to_plain(response.properties))

    def delete(self, resource: Resource) -> None:
        request = DeleteRequest(resource.urn, resource.id, from_plain(resource.outputs), timeout=60)
        request.old_inputs = from_plain(resource.inputs)
        asyncio.run(self.provider.delete(request))

    def invoke(self, token: str, **arguments: Any) -> Tree:
        response = asyncio.run(self.provider.invoke(sdk.InvokeRequest(token, from_plain(arguments))))
        if response.failures:
            raise CheckFailed({failure.property: failure.reason for failure in response.failures})
        return to_plain(response.return_value or {})
