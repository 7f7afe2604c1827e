"""The graph of a stack without an engine: what the program registers against mocks, and what pulumi-eks adds to it.

    stack = registered(graph.stack_config("Pulumi.local.yaml"), "local")

The children of pulumi-eks's components come from the stand-in for its plug-in, which registers what the official one
was seen to register. Charts have no children here: Helm renders them only for an engine.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from localcloud.standins.algebra import NULL
from localcloud.standins.eks.__main__ import construct
from localcloud.standins.monitor import Registration
from localcloud.standins.monitor import Resource as Made
from localcloud.standins.values import from_plain, repair_property_value, to_plain, wrap
from pulumi.provider.experimental.property_value import PropertyValue
from pulumi.runtime.proto import provider_pb2

from tests import graph
from tests.security.stack import Resource, Stack

FUNCTIONS: dict[str, dict[str, Any]] = {
    "aws:index/getPartition:getPartition": {"partition": "aws"},
    "aws:eks/getAddonVersion:getAddonVersion": {"version": "v1.20.4-eksbuild.2"},
}


class _Children:
    """A resource monitor that keeps what is registered, and answers as AWS would."""

    def __init__(self) -> None:
        self.found: list[Resource] = []
        self._made: dict[str, Made] = {}

    async def register(self, registration: Registration) -> Made:
        """Keep a registration."""
        name, type_ = registration.name, registration.type
        urn = f"{registration.parent}${type_}::{name}"
        inputs = to_plain(registration.inputs)
        outputs = {**inputs, "arn": f"arn:aws:eks:{graph.REGION}:{graph.ACCOUNT}:{type_}/{name}"}
        id_ = str(inputs.get("name", f"{name}-id"))
        if registration.custom:
            self.found.append(Resource(type_, name, urn, registration.parent, id_, inputs, outputs))
        made = Made(urn, PropertyValue(id_) if registration.custom else NULL, from_plain(outputs))
        self._made[urn] = made
        return made

    async def register_outputs(self, urn: str, outputs: Mapping[str, PropertyValue]) -> None:
        """Keep a component's outputs."""
        self._made[urn] = Made(urn, NULL, outputs)

    async def invoke(
        self, token: str, arguments: Mapping[str, PropertyValue], provider: str, version: str
    ) -> dict[str, PropertyValue]:
        """Answer a function of the AWS provider."""
        return from_plain(FUNCTIONS[token])

    async def read_back(self, urn: str) -> Made:
        """Return what was registered under a URN."""
        return self._made[urn]


def children(component: graph.Registered) -> list[Resource]:
    """Return the resources that the eks plug-in makes for one of its components."""
    repair_property_value()
    monitor = _Children()
    request = provider_pb2.ConstructRequest(
        type=component.type,
        name=component.name,
        parent=component.urn,
        inputs=PropertyValue.marshal_map({key: wrap(value) for key, value in component.inputs.items()}),
        providers={"aws": "urn:pulumi:s::p::pulumi:providers:aws::explicit::1"},
    )
    asyncio.run(construct(monitor, request))
    return monitor.found


def registered(config: Mapping[str, Any], stack: str) -> Stack:
    """Return the graph of a stack with this config."""
    found: list[Resource] = []
    for each in graph.deploy(config, stack=stack).resources:
        found.append(Resource(each.type, each.name, each.urn, each.parent, each.id, each.inputs, each.outputs))
        if each.type.startswith("eks:index:"):
            found += children(each)
    return Stack(tuple(found))
