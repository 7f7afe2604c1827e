"""The driver's services: Identity and Node of the CSI, and the registration that kubelet finds it by."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import grpc

from localcloud.kube.csi.volume import InvalidVolume, NotMountable
from localcloud.kube.rpc import Message, Method, Rpc, build

VERSION = "v2.1.13"
# Numbers and names are those of the CSI specification, version 1, and of kubelet's plug-in registration, v1; the tests
# use both with kubelet 1.34.
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
CSI = build("csi.v1", CSI_MESSAGES)
REGISTRATION = build("pluginregistration", REGISTRATION_MESSAGES)


Find = Callable[[Message], Path]
"""Returns the directory that a NodePublishVolumeRequest is to mount. Raises InvalidVolume and NotMountable."""


class Driver:
    """Mounts volumes for kubelet.

    Args:
        name: The driver's name in volumes.
        find: What it mounts.
    """

    def __init__(self, name: str, node: str, find: Find) -> None:
        self._name, self._node, self._find = name, node, find

    def publish(self, request: Message, context: grpc.ServicerContext) -> Message:
        """NodePublishVolume: bind-mount the volume at the pod's path, unless it is mounted there."""
        try:
            source = self._find(request)
        except InvalidVolume as error:
            _abort(context, grpc.StatusCode.INVALID_ARGUMENT, str(error))
        except NotMountable as error:
            source_text = f'Could not mount "{request.volume_id}" at "{request.target_path}"'
            _abort(context, grpc.StatusCode.INTERNAL, f"{source_text}: mount failed: {error}")
        target = Path(request.target_path)
        target.mkdir(parents=True, exist_ok=True)
        if not is_bound(target):
            _mount(context, "--bind", str(source), str(target))
            if request.readonly:
                _mount(context, "-o", "remount,bind,ro", str(target))
        return CSI["NodePublishVolumeResponse"]()

    def unpublish(self, request: Message, context: grpc.ServicerContext) -> Message:
        """NodeUnpublishVolume: unmount the volume, if it is mounted."""
        target = Path(request.target_path)
        if is_bound(target):
            _run(context, ["umount", str(target)])
        if target.is_dir():
            target.rmdir()  # fails if the volume is still mounted, so no data is deleted
        return CSI["NodeUnpublishVolumeResponse"]()

    def identity(self) -> dict[str, Rpc]:
        """The methods of csi.v1.Identity."""
        info = CSI["GetPluginInfoResponse"](name=self._name, vendor_version=VERSION)
        ready = CSI["ProbeResponse"](ready=CSI["BoolValue"](value=True))
        return {
            "GetPluginInfo": _csi("GetPluginInfo", lambda *_: info),
            "GetPluginCapabilities": _csi("GetPluginCapabilities", _nothing("GetPluginCapabilities")),
            "Probe": _csi("Probe", lambda *_: ready),
        }

    def node(self) -> dict[str, Rpc]:
        """The methods of csi.v1.Node."""
        info = CSI["NodeGetInfoResponse"](node_id=self._node)
        return {
            "NodePublishVolume": _csi("NodePublishVolume", self.publish),
            "NodeUnpublishVolume": _csi("NodeUnpublishVolume", self.unpublish),
            "NodeGetCapabilities": _csi("NodeGetCapabilities", _nothing("NodeGetCapabilities")),
            "NodeGetInfo": _csi("NodeGetInfo", lambda *_: info),
        }


def registration(name: str, socket: Path, refused: Callable[[str], None]) -> dict[str, Rpc]:
    """The methods of kubelet's Registration, for the driver of this name, which listens on `socket`.

    Args:
        refused: Called with kubelet's reason when it doesn't accept the driver.
    """
    info = REGISTRATION["PluginInfo"](type="CSIPlugin", name=name, endpoint=str(socket), supported_versions=["1.0.0"])

    def notified(status: Message, _: grpc.ServicerContext) -> Message:
        if not status.plugin_registered:
            refused(status.error)
        return REGISTRATION["RegistrationStatusResponse"]()

    return {
        "GetInfo": Rpc(REGISTRATION["InfoRequest"], REGISTRATION["PluginInfo"], lambda *_: info),
        "NotifyRegistrationStatus": Rpc(
            REGISTRATION["RegistrationStatus"], REGISTRATION["RegistrationStatusResponse"], notified
        ),
    }


def is_bound(target: Path) -> bool:
    """Return whether something is mounted at `target`; os.path.ismount does not see bind mounts of the same disk."""
    quoted = str(target).replace(" ", "\\040")
    return any(line.split()[4] == quoted for line in Path("/proc/self/mountinfo").read_text().splitlines())


def _csi(name: str, answer: Method) -> Rpc:
    return Rpc(CSI[f"{name}Request"], CSI[f"{name}Response"], answer)


def _nothing(name: str) -> Method:
    return lambda *_: CSI[f"{name}Response"]()


def _mount(context: grpc.ServicerContext, *arguments: str) -> None:
    _run(context, ["mount", *arguments])


def _run(context: grpc.ServicerContext, argv: list[str]) -> None:
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        _abort(context, grpc.StatusCode.INTERNAL, f"{' '.join(argv)}: {done.stderr.strip()}")


def _abort(context: grpc.ServicerContext, code: grpc.StatusCode, message: str) -> NoReturn:
    print(message, flush=True)
    context.abort(code, message)
    raise AssertionError("abort raises")
