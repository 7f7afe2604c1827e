"""The AMI type of a managed node group, from its operating system, GPU support and instance types: pure functions.

Facts: https://docs.aws.amazon.com/eks/latest/APIReference/API_Nodegroup.html#AmazonEKS-Type-Nodegroup-amiType
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from pulumi.errors import InputPropertyError

AMI_TYPES: Final = {
    ("AL2", False, "x86_64"): "AL2_x86_64",
    ("AL2", True, "x86_64"): "AL2_x86_64_GPU",
    ("AL2", False, "arm64"): "AL2_ARM_64",
    ("AL2023", False, "x86_64"): "AL2023_x86_64_STANDARD",
    ("AL2023", False, "arm64"): "AL2023_ARM_64_STANDARD",
    ("AL2023", True, "x86_64"): "AL2023_x86_64_NVIDIA",
    ("Bottlerocket", False, "arm64"): "BOTTLEROCKET_ARM_64",
    ("Bottlerocket", False, "x86_64"): "BOTTLEROCKET_x86_64",
    ("Bottlerocket", True, "arm64"): "BOTTLEROCKET_ARM_64_NVIDIA",
    ("Bottlerocket", True, "x86_64"): "BOTTLEROCKET_x86_64_NVIDIA",
}
_INSTANCE_TYPE: Final = re.compile(r"[a-z]+[0-9]+(?P<processor>[a-z])?-?[a-z]*\.[a-zA-Z0-9-]+")


def ami_type(operating_system: str, gpu: bool | None, instance_types: Sequence[str] | None) -> str:
    """The AMI type.

    Raises:
        InputPropertyError: the instance types don't share an architecture, or there is no such AMI.
    """
    architecture = architecture_of(instance_types or [])
    try:
        return AMI_TYPES[operating_system, bool(gpu), architecture]
    except KeyError:
        reason = f"No AMI type found for OS: {operating_system}, GPU support: {bool(gpu)}, architecture: {architecture}"
        raise InputPropertyError("operatingSystem", reason) from None


def architecture_of(instance_types: Sequence[str]) -> str:
    """`arm64` for Graviton instance types, `x86_64` for others and for none."""
    architectures = {_architecture(instance_type) for instance_type in instance_types}
    if len(architectures) > 1:
        reason = (
            "Cannot determine architecture of instance types. "
            "The provided instance types do not share a common architecture"
        )
        raise InputPropertyError("instanceTypes", reason)
    return architectures.pop() if architectures else "x86_64"


def _architecture(instance_type: str) -> str:
    match = _INSTANCE_TYPE.fullmatch(instance_type)
    if match is None:
        raise InputPropertyError("instanceTypes", f"Invalid EC2 instance type: {instance_type}")
    return "arm64" if match["processor"] == "g" else "x86_64"
