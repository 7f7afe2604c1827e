"""What the engine does with the provider for each resource, in this process, against a real API server."""

from __future__ import annotations

import asyncio
import hashlib
from dataclasses import dataclass, field
from typing import Any

from localcloud.standins.kubernetes.engine import Severity
from localcloud.standins.kubernetes.provider import KubernetesProvider
from localcloud.standins.serve import DeleteRequest, DiffRequest, InitFailed
from localcloud.standins.values import from_plain, repair_property_value, to_plain
from pulumi.provider.experimental import provider as sdk
from pulumi.provider.experimental.property_value import PropertyValue

Tree = dict[str, Any]
repair_property_value()


class CheckFailed(Exception):
    """Check refused the inputs."""


@dataclass
class Resource:
    """A resource in the state file."""

    token: str
    name: str
    id: str
    inputs: dict[str, PropertyValue]
    outputs: dict[str, PropertyValue]

    @property
    def urn(self) -> str:
        return urn(self.token, self.name)

    @property
    def live(self) -> Tree:
        return to_plain(self.outputs)


def urn(token: str, name: str) -> str:
    return f"urn:pulumi:s::p::kubernetes:{token}::{name}"


@dataclass
class Engine:
    """Drives one provider and keeps its resources, by name."""

    kubeconfig: str
    settings: Tree = field(default_factory=dict)
    state: dict[str, Resource] = field(default_factory=dict)
    messages: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.provider = KubernetesProvider(self)
        args = from_plain({"kubeconfig": self.kubeconfig, **self.settings})
        asyncio.run(self.provider.configure(sdk.ConfigureRequest({}, args, True, True)))

    def log(self, urn: str, severity: Severity, message: str) -> None:
        self.messages.append(message)

    status = log

    def check(self, token: str, name: str, inputs: Tree, old: Resource | None = None) -> dict[str, PropertyValue]:
        """The inputs as the provider completes them. Seeds are stable, as a preview's and its update's are."""
        seed = hashlib.sha256(f"{name}{inputs}".encode()).digest()
        request = sdk.CheckRequest(urn(token, name), old.inputs if old else {}, from_plain(inputs), seed)
        response = asyncio.run(self.provider.check(request))
        if response.failures:
            raise CheckFailed("; ".join(f"{each.property}: {each.reason}" for each in response.failures))
        return response.inputs or {}

    def diff(self, name: str, checked: dict[str, PropertyValue], ignore: list[str]) -> sdk.DiffResponse:
        old = self.state[name]
        request = DiffRequest(old.urn, old.id, old.outputs, checked, ignore)
        request.old_inputs = old.inputs
        return asyncio.run(self.provider.diff(request))

    def preview(self, token: str, name: str, inputs: Tree, ignore: list[str] | None = None) -> str:
        """What an update would do: `create`, `same`, `update`, or `replace` and the properties that demand it."""
        return self._step(token, name, inputs, ignore or [], 0, preview=True)

    def up(self, token: str, name: str, inputs: Tree, ignore: list[str] | None = None, timeout: float = 60) -> str:
        """Do what an update does after its preview; return what the preview returned."""
        shown = self.preview(token, name, inputs, ignore)
        assert self._step(token, name, inputs, ignore or [], timeout, preview=False) == shown
        return shown

    def _step(self, token: str, name: str, inputs: Tree, ignore: list[str], timeout: float, *, preview: bool) -> str:
        old = self.state.get(name)
        checked = self.check(token, name, inputs, old)
        if old is None:
            self._create(token, name, checked, timeout, preview)
            return "create"
        diff = self.diff(name, checked, ignore)
        if not diff.changes:
            return "same"
        if not diff.replaces:
            self._update(old, checked, ignore, timeout, preview)
            return "update"
        if not preview and diff.delete_before_replace:
            self.destroy(name)
        self._create(token, name, checked, timeout, preview)
        if not preview and not diff.delete_before_replace:
            self.delete(old)
        return " ".join(["replace", *diff.replaces])

    def _create(self, token: str, name: str, checked: dict[str, PropertyValue], timeout: float, preview: bool) -> None:
        request = sdk.CreateRequest(urn(token, name), checked, timeout, preview)
        try:
            made = asyncio.run(self.provider.create(request))
        except InitFailed as error:
            self.state[name] = Resource(token, name, error.resource_id, error.inputs, error.properties)
            raise
        if not preview:
            self.state[name] = Resource(token, name, made.resource_id or "", checked, made.properties)

    def _update(
        self, old: Resource, checked: dict[str, PropertyValue], ignore: list[str], timeout: float, preview: bool
    ) -> None:
        request = sdk.UpdateRequest(old.urn, old.id, old.outputs, checked, timeout, ignore, preview)
        outputs = asyncio.run(self.provider.update(request)).properties
        if not preview:
            old.inputs, old.outputs = checked, outputs or {}

    def refresh(self, name: str) -> bool:
        """Read the resource into the state, ready or not; return whether it is still there."""
        old = self.state[name]
        try:
            found = asyncio.run(self.provider.read(sdk.ReadRequest(old.urn, old.id, old.outputs, old.inputs)))
        except InitFailed as error:
            found = sdk.ReadResponse(error.resource_id, error.properties, error.inputs)
        old.inputs, old.outputs = found.inputs, found.properties
        if not found.resource_id:
            del self.state[name]
        return bool(found.resource_id)

    def import_(self, token: str, name: str, resource_id: str) -> Resource:
        found = asyncio.run(self.provider.read(sdk.ReadRequest(urn(token, name), resource_id, {}, {})))
        self.state[name] = Resource(token, name, found.resource_id or "", found.inputs, found.properties)
        return self.state[name]

    def destroy(self, name: str) -> None:
        self.delete(self.state[name])
        del self.state[name]

    def delete(self, old: Resource) -> None:
        request = DeleteRequest(old.urn, old.id, old.outputs, timeout=60)
        request.old_inputs = old.inputs
        asyncio.run(self.provider.delete(request))
