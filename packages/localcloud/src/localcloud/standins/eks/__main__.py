"""`python -m localcloud.standins.eks ENGINE_ADDRESS`, started by the Pulumi engine: construct and call."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Final

from pulumi.provider.experimental import provider as sdk
from pulumi.provider.experimental.property_value import PropertyValue
from pulumi.runtime.proto import provider_pb2

from localcloud.standins.algebra import NULL, combine, depending, member, without_dependencies
from localcloud.standins.components import ComponentServicer, Constructed, Options, component, inputs_of, monitor_at
from localcloud.standins.eks.arguments import UNCOVERED_TYPES, not_covered
from localcloud.standins.eks.components.cluster import ClusterExpansion
from localcloud.standins.eks.components.cluster_outputs import kubeconfig_sources
from localcloud.standins.eks.components.kubeconfig import kubeconfig_json
from localcloud.standins.eks.scope import Scope
from localcloud.standins.monitor import Monitor
from localcloud.standins.serve import PluginError, serve

GET_KUBECONFIG: Final = "eks:index:Cluster/getKubeconfig"
CLUSTER: Final = "eks:index:Cluster"


class EksProvider(sdk.Provider):
    """A package of components only: it has nothing to configure and no resources of its own."""


class EksServicer(ComponentServicer):
    """Serves construct and call."""

    async def construct(self, monitor: Monitor, request: provider_pb2.ConstructRequest) -> Constructed:
        """Expand a component; see `construct` of this module."""
        return await construct(monitor, request)

    async def Call(self, request: Any, context: Any) -> provider_pb2.CallResponse:  # noqa: N802
        """Call a method of a component."""
        monitor = monitor_at(request.monitorEndpoint, request.dryRun)
        result = await self.reporting(context, call(monitor, request))
        response = provider_pb2.CallResponse(
            returnDependencies={
                key: provider_pb2.CallResponse.ReturnDependencies(urns=sorted(value.all_dependencies()))
                for key, value in result.items()
            }
        )
        # `return` is a keyword of Python.
        getattr(response, "return").CopyFrom(
            PropertyValue.marshal_map({key: without_dependencies(value) for key, value in result.items()})
        )
        return response


async def construct(monitor: Monitor, request: provider_pb2.ConstructRequest) -> Constructed:
    """Register a component and its children.

    Raises:
        PluginError: the type isn't covered, or an input isn't.
        InputPropertiesError: inputs that the component doesn't have, or that exclude each other.
    """
    if request.type in UNCOVERED_TYPES:
        raise not_covered(f"the resource type {request.type}", UNCOVERED_TYPES[request.type])
    if request.type != CLUSTER:
        raise PluginError(f"the eks package has no resource type {request.type}")
    inputs = inputs_of(request.inputs, request.inputDependencies)
    registered = await monitor.register(component(request, request.parent))
    scope = Scope(monitor, registered.urn, Options.of(request), request.dryRun)
    outputs = await ClusterExpansion(scope, request.name, inputs, _profile(request.config)).expand()
    return Constructed(scope.urn, outputs)


def _profile(config: Mapping[str, str]) -> str | None:
    return os.environ.get("AWS_PROFILE") or config.get("aws:profile") or None


async def call(monitor: Monitor, request: provider_pb2.CallRequest) -> dict[str, PropertyValue]:
    """Call a method of a component.

    Raises:
        PluginError: there is no such method.
    """
    if request.tok != GET_KUBECONFIG:
        raise PluginError(f"the eks package has no method {request.tok}")
    arguments = inputs_of(request.args, request.argDependencies)
    scope = Scope(monitor, "", Options(), request.dryRun)
    made = await scope.resource(arguments["__self__"], "__self__")
    core = depending(made.output("core"), arguments["__self__"].all_dependencies())
    sources = kubeconfig_sources(
        await scope.resource(member(core, "cluster"), "core.cluster"),
        member(core, "endpoint"),
        arguments.get("roleArn", NULL),
        arguments.get("profileName", NULL),
    )
    return {"result": combine(kubeconfig_json, *sources)}


if __name__ == "__main__":
    serve(EksProvider(), package="pulumi-eks", servicer=EksServicer)
