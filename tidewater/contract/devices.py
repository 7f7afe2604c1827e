"""The GPUs of the workers, as Kubernetes knows them."""

from __future__ import annotations

GPU = "nvidia.com/gpu"
"""The resource that the device plug-in advertises, a worker requests, and nodes with GPUs may be tainted with."""

NAMESPACE = "tidewater-devices"
"""Of the pods that see all GPUs of a node, and need privileges for that: the device plug-in and DCGM exporter."""
