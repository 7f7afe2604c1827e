"""The messages of the CSI and of kubelet's plug-in registration that the driver speaks, and how to serve them.

They are built from the tables below, not by protoc: the driver uses a tenth of the protocol, and protobuf skips unknown
fields. Numbers and names are those of the CSI specification, version 1, and of kubelet's plug-in
registration, v1; the tests use both with kubelet 1.34.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

Message = Any
Method = Callable[[Message, grpc.ServicerContext], Message]
_Field = descriptor_pb2.FieldDescriptorProto
_TYPES = {"string": _Field.TYPE_STRING, "bool": _Field.TYPE_BOOL, "int64": _Field.TYPE_INT64}

# message → field → (number, type); `repeated` and `map` (of strings) go before the type.
CSI_MESSAGES: dict[str, dict[str, tuple[int, str]]] = {
    "BoolValue": {"value": (1, "bool")},
    "GetPluginInfoRequest": {},
    "GetPluginInfoResponse": {"name": (1, "string"), "vendor_version": (2, "string")},
    "GetPluginCapabilitiesRequest": {},
    "GetPluginCapabilitiesResponse": {},
    "ProbeRequest": {},
    "ProbeResponse": {"ready": (1, "BoolValue")},
    "MountVolume": {"fs_type": (1, "string"), "mount_flags": (2, "repeated string")},
    "BlockVolume": {},
    "VolumeCapability": {"block": (1, "BlockVolume"), "mount": (2, "MountVolume")},
    "NodePublishVolumeRequest": {
        "volume_id": (1, "string"),
        "target_path": (4, "string"),
        "volume_capability": (5, "VolumeCapability"),
        "readonly": (6, "bool"),
        "volume_context": (8, "map"),
    },
    "NodePublishVolumeResponse": {},
    "NodeUnpublishVolumeRequest": {"volume_id": (1, "string"), "target_path": (2, "string")},
    "NodeUnpublishVolumeResponse": {},
    "NodeGetCapabilitiesRequest": {},
    "NodeGetCapabilitiesResponse": {},
    "NodeGetInfoRequest": {},
    "NodeGetInfoResponse": {"node_id": (1, "string"), "max_volumes_per_node": (2, "int64")},
}
REGISTRATION_MESSAGES: dict[str, dict[str, tuple[int, str]]] = {
    "InfoRequest": {},
    "PluginInfo": {
        "type": (1, "string"),
        "name": (2, "string"),
        "endpoint": (3, "string"),
        "supported_versions": (4, "repeated string"),
    },
    "RegistrationStatus": {"plugin_registered": (1, "bool"), "error": (2, "string")},
    "RegistrationStatusResponse": {},
}


@dataclass(frozen=True)
class Rpc:
    """One method of a service: the classes of its request and response, and the function that answers."""

    request: Any
    response: Any
    answer: Method


def build(package: str, messages: Mapping[str, Mapping[str, tuple[int, str]]]) -> dict[str, Any]:
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
            name: grpc.unary_unary_rpc_method_handler(
                rpc.answer,
                request_deserializer=rpc.request.FromString,
                response_serializer=rpc.response.SerializeToString,
            )
            for name, rpc in methods.items()
        },
    )


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
