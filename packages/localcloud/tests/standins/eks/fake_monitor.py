"""A resource monitor that keeps what was registered, and answers as AWS would."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from localcloud.standins.algebra import NULL
from localcloud.standins.components import Constructed
from localcloud.standins.eks.__main__ import construct
from localcloud.standins.monitor import Registration, Resource
from localcloud.standins.values import UNKNOWN, from_plain, plain, repair_property_value, to_plain, wrap
from pulumi.provider.experimental.property_value import PropertyValue, ResourceReference
from pulumi.runtime.proto import provider_pb2

from packages.localcloud.tests.standins.eks.recording_provider import COMPUTED, FUNCTIONS

repair_property_value()


class FakeMonitor:
    """Registrations by name; with `preview` nothing has an id, and what AWS computes is unknown."""

    def __init__(self, *, preview: bool = False) -> None:
        self.preview = preview
        self.registrations: list[Registration] = []
        self.resources: dict[str, Resource] = {}
        self.invoked: list[tuple[str, dict[str, Any]]] = []
        self.outputs: dict[str, Mapping[str, PropertyValue]] = {}

    async def register(self, registration: Registration) -> Resource:
        await asyncio.sleep(0)
        self.registrations.append(registration)
        urn = f"urn:pulumi:s::p::{registration.type}::{registration.name}"
        computed = COMPUTED.get(registration.type, {})
        if self.preview:
            computed = dict.fromkeys(computed, UNKNOWN)
        outputs = _outputs(from_plain(computed), registration.inputs) if registration.custom else {}
        resource_id = PropertyValue.computed() if self.preview else PropertyValue(f"id-{registration.name}")
        resource = Resource(urn, resource_id if registration.custom else NULL, outputs)
        self.resources[urn] = resource
        return resource

    async def register_outputs(self, urn: str, outputs: Mapping[str, PropertyValue]) -> None:
        self.outputs[urn] = outputs
        self.resources[urn] = Resource(urn, NULL, outputs)

    async def invoke(
        self, token: str, arguments: Mapping[str, PropertyValue], provider: str, version: str
    ) -> dict[str, PropertyValue]:
        self.invoked.append((token, to_plain(arguments)))
        return from_plain(FUNCTIONS[token])

    async def read_back(self, urn: str) -> Resource:
        return self.resources[urn]

    def given(self, urn: str, **outputs: Any) -> PropertyValue:
        """A reference to a resource that the program made itself."""
        self.resources[urn] = Resource(urn, PropertyValue("id"), from_plain(outputs))
        return PropertyValue(ResourceReference(urn, PropertyValue("id"), None))

    def named(self, name: str) -> Registration:
        """The one registration of this name; of a component and its child with the same name, the child."""
        return [registration for registration in self.registrations if registration.name == name][-1]

    def inputs(self, name: str) -> dict[str, Any]:
        """Its inputs, plain."""
        return to_plain(self.named(name).inputs)

    def tree(self) -> set[tuple[str, str, str]]:
        """Parent's name, type, name."""
        return {(r.parent.rsplit("::", 1)[-1], r.type, r.name) for r in self.registrations}

    def construct(
        self,
        token: str,
        name: str,
        inputs: Mapping[str, Any],
        *,
        config: Mapping[str, str] | None = None,
        **options: Any,
    ) -> Constructed:
        """Construct `eks:index:TOKEN`; inputs may be plain or property values; options as in the request."""
        values = {key: value if isinstance(value, PropertyValue) else wrap(value) for key, value in inputs.items()}
        request = provider_pb2.ConstructRequest(
            type=f"eks:index:{token}",
            name=name,
            inputs=PropertyValue.marshal_map(values),
            inputDependencies={
                key: provider_pb2.ConstructRequest.PropertyDependencies(urns=value.all_dependencies())
                for key, value in values.items()
            },
            providers={"aws": "urn:pulumi:s::p::pulumi:providers:aws::explicit::1"},
            config=config or {},
            dryRun=self.preview,
            **options,
        )
        return asyncio.run(construct(self, request))


def _outputs(computed: Mapping[str, PropertyValue], inputs: Mapping[str, PropertyValue]) -> dict[str, PropertyValue]:
    """The inputs, and what AWS adds to them and to their members."""
    made = {**computed, **inputs}
    for name, value in computed.items():
        given = inputs.get(name, NULL).value
        if isinstance(value.value, Mapping) and isinstance(given, Mapping):
            made[name] = PropertyValue({**value.value, **given})
    return made


def plain_outputs(made: Constructed) -> dict[str, Any]:
    """A component's outputs, plain; references to resources are their ids."""
    return {key: plain(value) for key, value in made.outputs.items()}


API_CLUSTER: dict[str, Any] = {
    "authenticationMode": "API",
    "skipDefaultNodeGroup": True,
    "skipDefaultSecurityGroups": True,
    "vpcId": "vpc-1",
    "privateSubnetIds": ["subnet-1", "subnet-2"],
    "publicSubnetIds": ["subnet-3"],
}
