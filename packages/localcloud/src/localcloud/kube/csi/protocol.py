"""The messages of the CSI and of kubelet's plug-in registration that the driver speaks.

Numbers and names are those of the CSI specification, version 1, and of kubelet's plug-in registration, v1; the tests
use both with kubelet 1.34.
"""

from __future__ import annotations

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
