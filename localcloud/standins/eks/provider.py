"""The plug-in itself: construct and call of the `eks` package, several at once."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

import grpc
from pulumi.errors import InputPropertiesError, InputPropertyError, InputPropertyErrorDetails
from pulumi.provider.experimental import provider as sdk
from pulumi.provider.experimental.property_value import PropertyValue, ResourceReference
from pulumi.runtime.proto import provider_pb2

from localcloud.standins.eks.algebra import NULL, combine, depending, member, without_dependencies
from localcloud.standins.eks.arguments import ADDON, UNCOVERED_TYPES, VPC_CNI_ADDON, not_covered
from localcloud.standins.eks.components.addons import addon, vpc_cni
from localcloud.standins.eks.components.cluster import ClusterExpansion
from localcloud.standins.eks.components.cluster_outputs import kubeconfig_sources
from localcloud.standins.eks.components.kubeconfig import kubeconfig_json
from localcloud.standins.eks.components.node_group import Core, node_group
from localcloud.standins.eks.monitor import EngineMonitor, Monitor, Registration
from localcloud.standins.eks.scope import Options, Scope
from localcloud.standins.serve import PluginError, Servicer

GET_KUBECONFIG: Final = "eks:index:Cluster/getKubeconfig"
_TYPES: Final = ("eks:index:Cluster", "eks:index:ManagedNodeGroup", "eks:index:Addon", "eks:index:VpcCniAddon")


class EksProvider(sdk.Provider):
    """A package of components only: it has nothing to configure and no resources of its own."""


@dataclass(frozen=True)
class Constructed:
    """A component and its outputs."""

    urn: str
    outputs: Mapping[str, PropertyValue]


class EksServicer(Servicer):
    """Serve construct and call without the SDK's globals, so that several components are expanded at once."""

    async def Construct(self, request: Any, context: Any) -> provider_pb2.ConstructResponse:  # noqa: N802
        """Expand a component."""
        monitor = _monitor(request.monitorEndpoint, request.dryRun)
        made = await self._reporting(context, construct(monitor, request))
        return provider_pb2.ConstructResponse(
            urn=made.urn,
            state=PropertyValue.marshal_map({key: without_dependencies(value) for key, value in made.outputs.items()}),
            stateDependencies={
                key: provider_pb2.ConstructResponse.PropertyDependencies(urns=sorted(value.all_dependencies()))
                for key, value in made.outputs.items()
            },
        )

    async def Call(self, request: Any, context: Any) -> provider_pb2.CallResponse:  # noqa: N802
        """Call a method of a component."""
        monitor = _monitor(request.monitorEndpoint, request.dryRun)
        result = await self._reporting(context, call(monitor, request))
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

    async def _reporting(self, context: Any, work: Any) -> Any:
        """Await the work; report the properties at fault in the status, where the engine looks for them."""
        try:
            return await work
        except InputPropertiesError as error:
            await context.abort_with_status(self.create_grpc_invalid_properties_status(error.message, error.errors))
        except InputPropertyError as error:
            details: list[InputPropertyErrorDetails] = [{"property_path": error.property_path, "reason": error.reason}]
            await context.abort_with_status(self.create_grpc_invalid_properties_status("", details))
        except grpc.aio.AioRpcError as error:
            # The engine has already reported the child that failed.
            await context.abort(error.code(), error.details() or "a child could not be registered")


@cache
def _monitor(endpoint: str, preview: bool) -> Monitor:
    return EngineMonitor(endpoint, preview)


async def construct(monitor: Monitor, request: provider_pb2.ConstructRequest) -> Constructed:
    """Register a component and its children.

    Raises:
        PluginError: the type isn't covered, or an input isn't.
        InputPropertiesError: inputs that the component doesn't have, or that exclude each other.
    """
    if request.type in UNCOVERED_TYPES:
        raise not_covered(f"the resource type {request.type}", UNCOVERED_TYPES[request.type])
    if request.type not in _TYPES:
        raise PluginError(f"the eks package has no resource type {request.type}")
    inputs = _inputs(request.inputs, request.inputDependencies)
    parent = request.parent
    if request.type == "eks:index:Addon":
        ADDON.check(inputs)
        # An addon's parent is its cluster, whatever `opts.parent` says.
        cluster = inputs["cluster"].value
        parent = cluster.urn if isinstance(cluster, ResourceReference) else parent
    scope = await _open(monitor, request, parent)
    if request.type == "eks:index:Cluster":
        outputs = await ClusterExpansion(scope, request.name, inputs, _profile(request.config)).expand()
    elif request.type == "eks:index:ManagedNodeGroup":
        outputs = await node_group(scope, request.name, inputs)
    elif request.type == "eks:index:Addon":
        outputs = await _addon(scope, request.name, inputs)
    else:
        outputs = await _vpc_cni(scope, request.name, inputs)
    return Constructed(scope.urn, outputs)


def _inputs(struct: Any, input_dependencies: Any) -> dict[str, PropertyValue]:
    values = PropertyValue.unmarshal_map(struct)
    return {
        key: depending(value, input_dependencies[key].urns) if key in input_dependencies else value
        for key, value in values.items()
        if value.value is not None
    }


async def _open(monitor: Monitor, request: provider_pb2.ConstructRequest, parent: str) -> Scope:
    options = Options.of(request)
    component = await monitor.register(
        Registration(
            type=request.type,
            name=request.name,
            parent=parent,
            custom=False,
            depends_on=frozenset(request.dependencies),
            providers=options.providers,
            protect=options.protect,
            retain_on_delete=options.retain_on_delete,
            deleted_with=options.deleted_with,
            aliases=tuple(request.aliases),
        )
    )
    return Scope(monitor, component.urn, options, request.dryRun)


def _profile(config: Mapping[str, str]) -> str | None:
    return os.environ.get("AWS_PROFILE") or config.get("aws:profile") or None


async def _addon(scope: Scope, name: str, inputs: Mapping[str, PropertyValue]) -> dict[str, PropertyValue]:
    core = await Core.of(scope, inputs["cluster"])
    await addon(scope, name, core.cluster.output("name"), inputs)
    return await scope.close({})


async def _vpc_cni(scope: Scope, name: str, inputs: Mapping[str, PropertyValue]) -> dict[str, PropertyValue]:
    VPC_CNI_ADDON.check(inputs)
    made = await vpc_cni(scope, name, inputs)
    return await scope.close({"addon": made.reference})


async def call(monitor: Monitor, request: provider_pb2.CallRequest) -> dict[str, PropertyValue]:
    """Call a method of a component.

    Raises:
        PluginError: there is no such method.
    """
    if request.tok != GET_KUBECONFIG:
        raise PluginError(f"the eks package has no method {request.tok}")
    arguments = _inputs(request.args, request.argDependencies)
    scope = Scope(monitor, "", Options(), request.dryRun)
    core = await Core.of(scope, arguments["__self__"])
    result = combine(
        kubeconfig_json,
        *kubeconfig_sources(
            core.cluster,
            member(core.data, "endpoint"),
            arguments.get("roleArn", NULL),
            arguments.get("profileName", NULL),
        ),
    )
    return {"result": result}
