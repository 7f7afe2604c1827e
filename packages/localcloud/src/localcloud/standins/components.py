"""What the plug-ins with components share: the engine's construct request, and the answer to it.

    class MyServicer(ComponentServicer):
        async def construct(self, monitor: Monitor, request: ConstructRequest) -> Constructed: ...

The SDK's own construct keeps global state, so it expands one component at a time; this expands several at once.
"""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, TypeVar

import grpc
from pulumi.errors import InputPropertiesError, InputPropertyError, InputPropertyErrorDetails
from pulumi.provider.experimental.property_value import PropertyValue
from pulumi.runtime.proto import provider_pb2

from localcloud.standins.algebra import depending, without_dependencies
from localcloud.standins.monitor import EngineMonitor, Monitor, Registration
from localcloud.standins.serve import Servicer

_Result = TypeVar("_Result")


@dataclass(frozen=True)
class Constructed:
    """A component and its outputs."""

    urn: str
    outputs: Mapping[str, PropertyValue]


@dataclass(frozen=True)
class Options:
    """The options that a component passes on to its children."""

    providers: Mapping[str, str] = field(default_factory=dict)
    protect: bool | None = None
    retain_on_delete: bool | None = None
    deleted_with: str = ""
    secret_outputs: frozenset[str] = frozenset()
    """Outputs of the component itself that the user wants kept secret."""

    @classmethod
    def of(cls, request: provider_pb2.ConstructRequest) -> Options:
        """The options of a construct request."""
        return cls(
            providers=dict(request.providers),
            protect=request.protect if request.HasField("protect") else None,
            retain_on_delete=request.retainOnDelete if request.HasField("retainOnDelete") else None,
            deleted_with=request.deletedWith,
            secret_outputs=frozenset(request.additionalSecretOutputs),
        )


def component(request: provider_pb2.ConstructRequest, parent: str) -> Registration:
    """Return the registration of the component that a construct request is for."""
    options = Options.of(request)
    return Registration(
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


def inputs_of(struct: Any, input_dependencies: Any) -> dict[str, PropertyValue]:
    """Return the inputs that are set, each with what it depends on."""
    values = PropertyValue.unmarshal_map(struct)
    return {
        key: depending(value, input_dependencies[key].urns) if key in input_dependencies else value
        for key, value in values.items()
        if value.value is not None
    }


class ComponentServicer(Servicer):
    """Serves construct requests; a subclass says what the children are."""

    async def construct(self, monitor: Monitor, request: provider_pb2.ConstructRequest) -> Constructed:
        """Register a component and its children."""
        raise NotImplementedError

    async def Construct(self, request: Any, context: Any) -> provider_pb2.ConstructResponse:  # noqa: N802
        """Expand a component."""
        monitor = monitor_at(request.monitorEndpoint, request.dryRun)
        made = await self.reporting(context, self.construct(monitor, request))
        return provider_pb2.ConstructResponse(
            urn=made.urn,
            state=PropertyValue.marshal_map({key: without_dependencies(value) for key, value in made.outputs.items()}),
            stateDependencies={
                key: provider_pb2.ConstructResponse.PropertyDependencies(urns=sorted(value.all_dependencies()))
                for key, value in made.outputs.items()
            },
        )

    async def reporting(self, context: Any, work: Awaitable[_Result]) -> _Result:
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
        raise AssertionError("abort does not return")


@cache
def monitor_at(endpoint: str, preview: bool) -> Monitor:
    """Return the engine's resource monitor at an address."""
    return EngineMonitor(endpoint, preview)
