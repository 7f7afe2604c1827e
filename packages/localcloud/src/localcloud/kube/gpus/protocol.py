"""The messages of kubelet's device plug-in API that the plug-in speaks.

Numbers and names are those of v1beta1:
https://github.com/kubernetes/kubelet/blob/v0.34.4/pkg/apis/deviceplugin/v1beta1/api.proto
"""

from __future__ import annotations

PACKAGE = "v1beta1"

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
