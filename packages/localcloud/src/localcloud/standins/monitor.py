"""The interface to the engine's resource monitor: register resources, invoke functions, read resources back.

Everything above takes the `Monitor` protocol, so tests pass a fake that keeps what was registered.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

import grpc.aio
from google.protobuf import struct_pb2
from pulumi.provider.experimental.property_value import Computed, PropertyValue, ResourceReference
from pulumi.runtime.proto import alias_pb2, resource_pb2, resource_pb2_grpc
from typing_extensions import override

from localcloud.standins.algebra import NULL, depending, is_unknown, without_dependencies
from localcloud.standins.serve import PluginError, server_options

GET_RESOURCE: Final = "pulumi:pulumi:getResource"


@dataclass(frozen=True, kw_only=True)
class Registration:
    """The registration of one resource."""

    type: str
    name: str
    parent: str
    custom: bool
    inputs: Mapping[str, PropertyValue] = field(default_factory=dict)
    depends_on: frozenset[str] = frozenset()
    provider: str = ""
    version: str = ""
    providers: Mapping[str, str] = field(default_factory=dict)
    ignore_changes: tuple[str, ...] = ()
    protect: bool | None = None
    retain_on_delete: bool | None = None
    deleted_with: str = ""
    aliases: tuple[alias_pb2.Alias, ...] = ()


@dataclass(frozen=True)
class Resource:
    """A resource as the engine returned it. It has no URN if a preview doesn't know it yet."""

    urn: str
    id: PropertyValue = NULL
    outputs: Mapping[str, PropertyValue] = field(default_factory=dict)
    package_version: str | None = None
    passed_through: frozenset[str] = frozenset()
    """Further URNs that its values depend on: the components that the resource was passed through."""

    @property
    def origins(self) -> frozenset[str]:
        """The URNs that its values depend on."""
        return self.passed_through | ({self.urn} if self.urn else frozenset())

    @property
    def reference(self) -> PropertyValue:
        """The resource as a value, which the SDKs turn into a resource object."""
        if not self.urn:
            return PropertyValue(Computed(), dependencies=self.origins)
        resource_id = self.id if self.id.value is not None else None
        reference = ResourceReference(self.urn, resource_id, self.package_version)
        return PropertyValue(reference, dependencies=self.origins)

    @property
    def identity(self) -> PropertyValue:
        """The resource's id, depending on the resource."""
        return depending(self.id, self.origins)

    def output(self, name: str) -> PropertyValue:
        """An output, depending on the resource. One that's missing before the resource exists is unknown, else null."""
        missing = PropertyValue.computed() if is_unknown(self.id) else NULL
        return depending(self.outputs.get(name, missing), self.origins)


class Monitor(Protocol):
    """The requests to the engine that an expansion needs."""

    async def register(self, registration: Registration) -> Resource:
        """Register a resource and returns when the engine has made, changed or previewed it."""

    async def register_outputs(self, urn: str, outputs: Mapping[str, PropertyValue]) -> None:
        """Set the outputs of a component."""

    async def invoke(
        self, token: str, arguments: Mapping[str, PropertyValue], provider: str, version: str
    ) -> dict[str, PropertyValue]:
        """Call a provider's function; its arguments must be known."""

    async def read_back(self, urn: str) -> Resource:
        """A resource of this deployment by its URN."""


class EngineMonitor(Monitor):
    """The monitor of a running engine."""

    def __init__(self, endpoint: str, preview: bool) -> None:
        self._stub: Any = resource_pb2_grpc.ResourceMonitorStub(
            grpc.aio.insecure_channel(endpoint, options=server_options())
        )
        self._preview = preview

    @override
    async def register(self, registration: Registration) -> Resource:
        response = await self._stub.RegisterResource(register_request(registration))
        return Resource(
            response.urn,
            self._id(response.id) if registration.custom else NULL,
            PropertyValue.unmarshal_map(response.object),
            registration.version or None,
        )

    @override
    async def register_outputs(self, urn: str, outputs: Mapping[str, PropertyValue]) -> None:
        await self._stub.RegisterResourceOutputs(
            resource_pb2.RegisterResourceOutputsRequest(urn=urn, outputs=_struct(outputs))
        )

    @override
    async def invoke(
        self, token: str, arguments: Mapping[str, PropertyValue], provider: str, version: str
    ) -> dict[str, PropertyValue]:
        request = resource_pb2.ResourceInvokeRequest(
            tok=token,
            args=_struct(arguments),
            provider=provider,
            version="" if provider else version,
            acceptResources=True,
        )
        response = await self._stub.Invoke(request)
        if response.failures:
            raise PluginError(
                "; ".join(f"{token}: {failure.property}: {failure.reason}" for failure in response.failures)
            )
        return PropertyValue.unmarshal_map(getattr(response, "return"))

    @override
    async def read_back(self, urn: str) -> Resource:
        answer = await self.invoke(GET_RESOURCE, {"urn": PropertyValue(urn)}, "", "")
        resource_id = answer.get("id", NULL).value
        state = answer.get("state", NULL).value
        return Resource(
            urn,
            self._id(resource_id if isinstance(resource_id, str) else ""),
            state if isinstance(state, Mapping) else {},
        )

    def _id(self, resource_id: str) -> PropertyValue:
        """The engine has no id yet for what a preview would make."""
        return (
            PropertyValue.unmarshal(struct_pb2.Value(string_value=resource_id))
            if resource_id or not self._preview
            else PropertyValue.computed()
        )


def register_request(registration: Registration) -> resource_pb2.RegisterResourceRequest:
    """Return the engine's message for a registration, in which dependencies are separate from the inputs."""
    by_input = {key: sorted(value.all_dependencies()) for key, value in registration.inputs.items()}
    every = sorted({urn for urns in by_input.values() for urn in urns} | registration.depends_on)
    request = resource_pb2.RegisterResourceRequest(
        type=registration.type,
        name=registration.name,
        parent=registration.parent,
        custom=registration.custom,
        object=_struct(registration.inputs),
        dependencies=every,
        propertyDependencies={
            key: resource_pb2.RegisterResourceRequest.PropertyDependencies(urns=urns) for key, urns in by_input.items()
        },
        provider=registration.provider,
        providers=dict(registration.providers),
        # With an explicit provider the engine takes the version from it.
        version="" if registration.provider else registration.version,
        ignoreChanges=registration.ignore_changes,
        deletedWith=registration.deleted_with,
        acceptSecrets=True,
        acceptResources=True,
        supportsPartialValues=True,
        aliases=registration.aliases,
        aliasSpecs=True,
    )
    if registration.protect is not None:
        request.protect = registration.protect
    if registration.retain_on_delete is not None:
        request.retainOnDelete = registration.retain_on_delete
    return request


def _struct(values: Mapping[str, PropertyValue]) -> struct_pb2.Struct:
    return PropertyValue.marshal_map({key: without_dependencies(value) for key, value in values.items()})
