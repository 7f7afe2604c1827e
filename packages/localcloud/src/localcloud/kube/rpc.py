"""gRPC on a node's unix sockets: messages built from tables, and how to serve them to the kubelet.

    MESSAGES = build("csi.v1", {"ProbeRequest": {}, "ProbeResponse": {"ready": (1, "BoolValue")}, …})
    serve(Path("/var/lib/kubelet/plugins/x/csi.sock"), [handler("csi.v1.Identity", {"Probe": Rpc(…)})])

The tables stand in for protoc: what runs on a node uses a tenth of each protocol, and protobuf skips unknown fields.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

Message = Any
Method = Callable[[Message, grpc.ServicerContext], Message]
Table = Mapping[str, Mapping[str, tuple[int, str]]]
"""message → field → (number, type); `repeated` and `map` (of strings) go before the type."""

THREADS = 8
_Field = descriptor_pb2.FieldDescriptorProto
_TYPES = {"string": _Field.TYPE_STRING, "bool": _Field.TYPE_BOOL, "int64": _Field.TYPE_INT64}


@dataclass(frozen=True)
class Rpc:
    """One method of a service: the classes of its request and response, and the function that answers.

    Args:
        streams: The function yields any number of responses.
    """

    request: Any
    response: Any
    answer: Method
    streams: bool = False


def build(package: str, messages: Table) -> dict[str, Any]:
    """Message classes from a table."""
    file = descriptor_pb2.FileDescriptorProto(name=f"{package}.proto", package=package, syntax="proto3")
    for name, fields in messages.items():
        message = file.message_type.add(name=name)
        for field, (number, kind) in fields.items():
            _add_field(message, f".{package}", field, number, kind)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{package}.{name}")) for name in messages}


def handler(service: str, methods: Mapping[str, Rpc]) -> grpc.GenericRpcHandler:
    """Return a handler of a service, for a gRPC server."""
    return grpc.method_handlers_generic_handler(
        service,
        {
            name: (grpc.unary_stream_rpc_method_handler if rpc.streams else grpc.unary_unary_rpc_method_handler)(
                rpc.answer,
                request_deserializer=rpc.request.FromString,
                response_serializer=rpc.response.SerializeToString,
            )
            for name, rpc in methods.items()
        },
    )


def serve(socket: Path, handlers: list[grpc.GenericRpcHandler]) -> grpc.Server:
    """A gRPC server on a unix socket."""
    socket.parent.mkdir(parents=True, exist_ok=True)
    socket.unlink(missing_ok=True)
    server = grpc.server(ThreadPoolExecutor(THREADS))
    for each in handlers:
        server.add_generic_rpc_handlers((each,))
    server.add_insecure_port(f"unix:{socket}")
    server.start()
    return server


def _add_field(message: Any, scope: str, name: str, number: int, kind: str) -> None:
    modifier, _, plain = kind.rpartition(" ")
    label = _Field.LABEL_REPEATED if modifier == "repeated" or kind == "map" else _Field.LABEL_OPTIONAL
    field = message.field.add(name=name, number=number, label=label)
    if kind == "map":
        entry = message.nested_type.add(name="".join(part.title() for part in name.split("_")) + "Entry")
        entry.options.map_entry = True
        for position, part in enumerate(("key", "value"), start=1):
            entry.field.add(name=part, number=position, label=_Field.LABEL_OPTIONAL, type=_Field.TYPE_STRING)
        field.type = _Field.TYPE_MESSAGE
        field.type_name = f"{scope}.{message.name}.{entry.name}"
    elif plain in _TYPES:
        field.type = _TYPES[plain]
    else:
        field.type = _Field.TYPE_MESSAGE
        field.type_name = f"{scope}.{plain}"
