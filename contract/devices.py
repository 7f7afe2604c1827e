"""The GPUs of the workers, as Kubernetes knows them."""

from __future__ import annotations

GPU = "nvidia.com/gpu"
"""The resource that the device plug-in advertises, a worker requests, and nodes with GPUs may be tainted with."""

NAMESPACE = "tidewater-devices"
"""Of the device plug-in, which needs privileges that no other pod of the stack has."""
