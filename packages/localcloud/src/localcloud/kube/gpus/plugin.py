"""The device plug-in: it advertises the node's GPUs, and says what a container with some of them gets.

With the strategy `cdi-cri`, NVIDIA's own plug-in names CDI devices, and the container runtime adds what the CDI
specification says. Debian's containerd 1.6 does not support CDI (1.7 does), so this plug-in asks the kubelet to add the
device nodes; a container sees the same in the end. With the strategy `envvar` a container gets NVIDIA_VISIBLE_DEVICES
and nothing else: EKS' images ignore that variable in containers without privileges.
"""

from __future__ import annotations

import re
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import grpc

from localcloud.kube.rpc import Message, Rpc, build, handler, serve

RESOURCE = "nvidia.com/gpu"
VERSION = "v1beta1"
DEVICES = Path("/dev")
PLUGINS = Path("/var/lib/kubelet/device-plugins")
SOCKET = "nvidia-gpu.sock"
KUBELET_SOCKET = "kubelet.sock"
CDI_STRATEGIES = frozenset({"cdi-cri", "cdi-annotations"})
POLL_SECONDS = 1.0
ANSWER_SECONDS = 10.0

# Numbers and names are those of kubelet's API v1beta1:
# https://github.com/kubernetes/kubelet/blob/v0.34.4/pkg/apis/deviceplugin/v1beta1/api.proto
MESSAGES: dict[str, dict[str, tuple[int, str]]] = {
    "Empty": {},
    "DevicePluginOptions": {"pre_start_required": (1, "bool"), "get_preferred_allocation_available": (2, "bool")},
    "RegisterRequest": {
        "version": (1, "string"),
        "endpoint": (2, "string"),
        "resource_name": (3, "string"),
        "options": (4, "DevicePluginOptions"),
    },
    "Device": {"ID": (1, "string"), "health": (2, "string")},
    "ListAndWatchResponse": {"devices": (1, "repeated Device")},
    "ContainerAllocateRequest": {"devices_ids": (1, "repeated string")},
    "AllocateRequest": {"container_requests": (1, "repeated ContainerAllocateRequest")},
    "DeviceSpec": {"container_path": (1, "string"), "host_path": (2, "string"), "permissions": (3, "string")},
    "ContainerAllocateResponse": {"envs": (1, "map"), "devices": (3, "repeated DeviceSpec")},
    "AllocateResponse": {"container_responses": (1, "repeated ContainerAllocateResponse")},
}
API = build(VERSION, MESSAGES)


def found(folder: Path = DEVICES) -> list[str]:
    """Return the device nodes of the GPUs that this container sees, in the order of their numbers."""
    names = [path.name for path in folder.glob("nvidia*") if re.fullmatch(r"nvidia\d+", path.name)]
    return [f"/dev/{name}" for name in sorted(names, key=lambda name: int(name.removeprefix("nvidia")))]


@dataclass(frozen=True)
class Plugin:
    """The services for some GPUs.

    Args:
        gpus: Their device nodes, which are their ids too.
        strategies: How containers get them.
    """

    gpus: Sequence[str]
    strategies: frozenset[str]
    stopped: threading.Event = field(default_factory=threading.Event)

    def watch(self, _: Message, context: grpc.ServicerContext) -> Iterator[Message]:
        """ListAndWatch: all GPUs, healthy, until the kubelet or this plug-in goes."""
        devices = [API["Device"](ID=gpu, health="Healthy") for gpu in self.gpus]
        yield API["ListAndWatchResponse"](devices=devices)
        while context.is_active() and not self.stopped.wait(POLL_SECONDS):
            pass

    def allocate(self, request: Message, _: grpc.ServicerContext) -> Message:
        """Allocate: what each of the containers gets."""
        responses = [self._container(list(each.devices_ids)) for each in request.container_requests]
        return API["AllocateResponse"](container_responses=responses)

    def services(self) -> grpc.GenericRpcHandler:
        """Return the service v1beta1.DevicePlugin. The other methods are optional, and the options name none."""
        options = API["DevicePluginOptions"]()
        empty, listed = API["Empty"], API["ListAndWatchResponse"]
        methods = {
            "GetDevicePluginOptions": Rpc(empty, API["DevicePluginOptions"], lambda *_: options),
            "ListAndWatch": Rpc(empty, listed, self.watch, streams=True),
            "Allocate": Rpc(API["AllocateRequest"], API["AllocateResponse"], self.allocate),
        }
        return handler(f"{VERSION}.DevicePlugin", methods)

    def _container(self, gpus: list[str]) -> Message:
        if not self.strategies & CDI_STRATEGIES:
            return API["ContainerAllocateResponse"](envs={"NVIDIA_VISIBLE_DEVICES": ",".join(gpus)})
        devices = [API["DeviceSpec"](container_path=gpu, host_path=gpu, permissions="rw") for gpu in gpus]
        return API["ContainerAllocateResponse"](devices=devices)


def register(folder: Path) -> None:
    """Tell the kubelet about the plug-in's socket.

    Raises:
        grpc.RpcError: The kubelet refuses it, or does not answer.
    """
    request = API["RegisterRequest"](version=VERSION, endpoint=SOCKET, resource_name=RESOURCE)
    with grpc.insecure_channel(f"unix:{folder / KUBELET_SOCKET}") as channel:
        call = channel.unary_unary(
            f"/{VERSION}.Registration/Register",
            request_serializer=API["RegisterRequest"].SerializeToString,
            response_deserializer=API["Empty"].FromString,
        )
        call(request, timeout=ANSWER_SECONDS)


def serve_until_the_kubelet_restarts(plugin: Plugin, folder: Path) -> None:
    """Serve and register. A kubelet that starts deletes all sockets in the folder; register again then."""
    server = serve(folder / SOCKET, [plugin.services()])
    try:
        register(folder)
        print(f"registered {len(plugin.gpus)} {RESOURCE}: {', '.join(plugin.gpus)}", flush=True)
        while (folder / SOCKET).exists():
            time.sleep(POLL_SECONDS)
    finally:
        plugin.stopped.set()
        server.stop(None)


def run(environment: Mapping[str, str], devices: Path = DEVICES, folder: Path = PLUGINS) -> int:
    """Serve for ever; return the exit status if there is nothing to serve."""
    gpus, strategies = found(devices), frozenset(environment.get("DEVICE_LIST_STRATEGY", "envvar").split(","))
    while not gpus:
        print("no NVIDIA device found: the node has no GPU, or this container lacks privileges", file=sys.stderr)
        if environment.get("FAIL_ON_INIT_ERROR", "true") == "true":
            return 1
        time.sleep(POLL_SECONDS)
    while True:
        serve_until_the_kubelet_restarts(Plugin(gpus, strategies), folder)
