"""Serve a resource provider to the Pulumi engine.

    serve(AwsProvider(), package="pulumi-aws")       # in `python -m localcloud.standins.aws ENGINE_ADDRESS`

In addition to the SDK's server this keeps unknowns (see `values.py`), passes old inputs to diff, update and delete,
reports a resource that was created but isn't ready, turns exceptions into one-line errors, and exits when the engine
does.
"""

from __future__ import annotations

import asyncio
import importlib.metadata
import os
import signal
import stat
import sys
import threading
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any, Final

import grpc
import grpc.aio
from google.protobuf import any_pb2, empty_pb2
from pulumi.provider.experimental import provider as sdk
from pulumi.provider.experimental.property_value import PropertyValue
from pulumi.provider.experimental.server import ProviderServicer
from pulumi.runtime import proto
from pulumi.runtime.proto import provider_pb2, provider_pb2_grpc, status_pb2

from localcloud.standins.values import repair_property_value

MAX_MESSAGE_BYTES: Final = 400 * 1024 * 1024
"""The engine's own limit (rpcutil.GrpcChannelOptions)."""
NO_CODE: Final = (
    "the resource is imported, but the stand-ins write no code for it: use `pulumi import --generate-code=false`"
)
THREADS: Final = 64
"""Requests that `asyncio.to_thread` serves at once; most of them wait for a resource to become ready."""


def type_of(urn: str) -> str:
    """Return a resource's own type. In a URN the types of its parents precede it: `my:Component$aws:ec2/vpc:Vpc`."""
    return urn.split("::")[2].rsplit("$", 1)[-1]


def name_of(urn: str) -> str:
    """Return a resource's name, which may contain `::`."""
    return urn.split("::", 3)[3]


def repair_requests() -> None:
    """Correct `request.type` and `request.name` of the SDK's requests for children of components."""
    sdk._extract_type = type_of
    sdk._extract_name = name_of


class PluginError(Exception):
    """An error shown to the user as its message alone, without the name of a class or a traceback."""


class InitFailed(PluginError):
    """The resource was created or updated but isn't ready: the engine keeps its state and reports `reasons`."""

    def __init__(
        self,
        resource_id: str,
        properties: Mapping[str, PropertyValue],
        inputs: Mapping[str, PropertyValue],
        reasons: list[str],
    ) -> None:
        super().__init__("; ".join(reasons))
        self.resource_id = resource_id
        self.properties = dict(properties)
        self.inputs = dict(inputs)
        self.reasons = reasons


class DiffRequest(sdk.DiffRequest):
    """A diff request that also has the old inputs."""

    old_inputs: dict[str, PropertyValue]


class UpdateRequest(sdk.UpdateRequest):
    """An update request that also has the old inputs."""

    old_inputs: dict[str, PropertyValue]


class DeleteRequest(sdk.DeleteRequest):
    """A delete request that also has the old inputs."""

    old_inputs: dict[str, PropertyValue]


_KINDS: Final = {kind: provider_pb2.PropertyDiff.Kind.Value(kind.name) for kind in sdk.PropertyDiffKind}


class Servicer(ProviderServicer):
    """The SDK's servicer with the additions that the module's docstring lists."""

    def __init__(self, version: str, provider: sdk.Provider, engine_address: str) -> None:
        super().__init__([], version, provider, engine_address)

    async def GetSchema(self, request: Any, context: Any) -> provider_pb2.GetSchemaResponse:  # noqa: N802
        """Refuse: the engine needs the schema only to write code, after `pulumi import` has imported the resource."""
        raise PluginError(NO_CODE)

    async def DiffConfig(self, request: Any, context: Any) -> provider_pb2.DiffResponse:  # noqa: N802
        return _diff_response(await self._provider.diff_config(_diff_request(request)))

    async def Diff(self, request: Any, context: Any) -> provider_pb2.DiffResponse:  # noqa: N802
        return _diff_response(await self._provider.diff(_diff_request(request)))

    async def Read(self, request: Any, context: Any) -> provider_pb2.ReadResponse:  # noqa: N802
        """Return neither an id nor properties for an absent resource, so that its import fails."""
        response = await super().Read(request, context)  # type: ignore[no-untyped-call]
        return response if response.id else provider_pb2.ReadResponse()

    async def Update(self, request: Any, context: Any) -> provider_pb2.UpdateResponse:  # noqa: N802
        update = UpdateRequest(
            request.urn,
            request.id,
            PropertyValue.unmarshal_map(request.olds),
            PropertyValue.unmarshal_map(request.news),
            timeout=request.timeout,
            ignore_changes=list(request.ignoreChanges),
            preview=request.preview,
        )
        update.old_inputs = PropertyValue.unmarshal_map(request.old_inputs)
        response = await self._provider.update(update)
        return provider_pb2.UpdateResponse(properties=PropertyValue.marshal_map(response.properties))

    async def Delete(self, request: Any, context: Any) -> empty_pb2.Empty:  # noqa: N802
        delete = DeleteRequest(
            request.urn, request.id, PropertyValue.unmarshal_map(request.properties), timeout=request.timeout
        )
        delete.old_inputs = PropertyValue.unmarshal_map(request.old_inputs)
        await self._provider.delete(delete)
        return empty_pb2.Empty()


def _diff_request(request: Any) -> DiffRequest:
    diff = DiffRequest(
        request.urn,
        request.id,
        PropertyValue.unmarshal_map(request.olds),
        PropertyValue.unmarshal_map(request.news),
        list(request.ignoreChanges),
    )
    diff.old_inputs = PropertyValue.unmarshal_map(request.old_inputs)
    return diff


def _diff_response(response: sdk.DiffResponse) -> provider_pb2.DiffResponse:
    changes = {
        None: provider_pb2.DiffResponse.DIFF_UNKNOWN,
        True: provider_pb2.DiffResponse.DIFF_SOME,
        False: provider_pb2.DiffResponse.DIFF_NONE,
    }[response.changes]
    return provider_pb2.DiffResponse(
        replaces=response.replaces,
        stables=response.stables,
        deleteBeforeReplace=response.delete_before_replace,
        changes=changes,
        diffs=response.diffs,
        detailedDiff={
            path: provider_pb2.PropertyDiff(kind=_KINDS[diff.kind], inputDiff=diff.input_diff)
            for path, diff in response.detailed_diff.items()
        },
        # Without this the engine compares the values itself if the detailed diff is empty.
        hasDetailedDiff=True,
    )


class ErrorInterceptor(grpc.aio.ServerInterceptor):
    """Turn what a method raises into a gRPC status with a readable message."""

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[grpc.RpcMethodHandler[Any, Any] | None]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> grpc.RpcMethodHandler[Any, Any] | None:
        handler = await continuation(handler_call_details)
        if handler is None or handler.unary_unary is None:
            return handler
        method = handler.unary_unary

        async def call(request: Any, context: Any) -> Any:
            try:
                return await method(request, context)
            except (grpc.aio.BaseError, asyncio.CancelledError):
                raise
            except NotImplementedError as error:
                await context.abort(grpc.StatusCode.UNIMPLEMENTED, str(error))
            except InitFailed as error:
                await context.abort_with_status(_init_failed_status(error))
            except PluginError as error:
                await context.abort(grpc.StatusCode.UNKNOWN, str(error))
            except Exception as error:  # the engine shows it, and the plug-in continues
                await context.abort(grpc.StatusCode.UNKNOWN, f"{type(error).__name__}: {error}")

        return grpc.unary_unary_rpc_method_handler(call, handler.request_deserializer, handler.response_serializer)


class _Status(grpc.Status):
    def __init__(self, code: grpc.StatusCode, details: str, trailing_metadata: tuple[tuple[str, bytes], ...]) -> None:
        self.code = code
        self.details = details
        self.trailing_metadata = trailing_metadata


def _init_failed_status(error: InitFailed) -> grpc.Status:
    detail = any_pb2.Any()
    detail.Pack(
        provider_pb2.ErrorResourceInitFailed(
            id=error.resource_id,
            properties=PropertyValue.marshal_map(error.properties),
            inputs=PropertyValue.marshal_map(error.inputs),
            reasons=error.reasons,
        )
    )
    code = grpc.StatusCode.UNKNOWN
    status = status_pb2.Status(code=code.value[0], message=str(error), details=[detail])
    return _Status(code, str(error), (("grpc-status-details-bin", status.SerializeToString()),))


def end_with_the_engine(before: Callable[[], None] = lambda: None) -> None:
    """Exit at once on SIGINT or SIGTERM, and when the engine exits (it holds the other end of stdin).

    The engine stops a plug-in with SIGINT and waits for it. An engine that is killed sends nothing.

    Args:
        before: Called first; must be fast and safe to call twice.
    """

    def end(*_: object) -> None:
        before()
        os._exit(0)

    def watch() -> None:
        while os.read(0, 4096):
            pass
        end()

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, end)
    try:
        held_by_engine = stat.S_ISFIFO(os.fstat(0).st_mode)
    except OSError:
        return
    if held_by_engine:
        threading.Thread(target=watch, name="engine-watch", daemon=True).start()


def announce(port: int) -> None:
    """Print the port on a line of its own, which is how the plug-in protocol announces it."""
    sys.stdout.write(f"{port}\n")
    sys.stdout.flush()


def server_options() -> list[tuple[str, int]]:
    """Return gRPC options that allow messages up to the engine's own limit in both directions."""
    return [("grpc.max_receive_message_length", MAX_MESSAGE_BYTES), ("grpc.max_send_message_length", MAX_MESSAGE_BYTES)]


@cache
def package_version(package: str) -> str:
    """Return the installed version of an SDK. Its plug-in reports the same one, and it names the default provider."""
    return importlib.metadata.version(package)


def serve(
    provider: sdk.Provider, *, package: str, servicer: type[Servicer] = Servicer, argv: list[str] | None = None
) -> None:
    """Serve `provider` until the engine exits.

    Args:
        provider: Answers the requests; it must do blocking work in `asyncio.to_thread`.
        package: The Python package of the SDK (`pulumi-aws`); the plug-in reports its version.
        servicer: A subclass that answers some requests itself.
        argv: The engine's arguments, its address first; `sys.argv[1:]` by default.
    """
    arguments = [argument for argument in (sys.argv[1:] if argv is None else argv) if not argument.startswith("-")]
    if not arguments:
        sys.exit(f"the stand-in for {package} is started by the Pulumi engine: the engine's address is missing")
    repair_property_value()
    repair_requests()
    end_with_the_engine()
    asyncio.run(_serve(servicer(package_version(package), provider, arguments[0])))


async def _serve(servicer: Servicer) -> None:
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(THREADS, thread_name_prefix="request"))
    server = grpc.aio.server(options=server_options(), interceptors=[ErrorInterceptor()])
    provider_pb2_grpc.add_ResourceProviderServicer_to_server(servicer, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    announce(port)
    await server.wait_for_termination()


__all__ = ["DeleteRequest", "DiffRequest", "InitFailed", "PluginError", "UpdateRequest", "proto", "serve"]
