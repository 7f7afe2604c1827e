"""The image that a node group gets."""

from __future__ import annotations

import pytest
from localcloud.standins.eks.components.ami import ami_type
from pulumi.errors import InputPropertyError


@pytest.mark.parametrize(
    ("system", "gpu", "instance_types", "expected"),
    [
        ("AL2023", False, [], "AL2023_x86_64_STANDARD"),
        ("AL2023", None, None, "AL2023_x86_64_STANDARD"),
        ("AL2023", True, ["p5.48xlarge"], "AL2023_x86_64_NVIDIA"),
        ("AL2023", False, ["c7g.large", "m6gd.large"], "AL2023_ARM_64_STANDARD"),
        ("Bottlerocket", True, ["g5g.xlarge"], "BOTTLEROCKET_ARM_64_NVIDIA"),
        ("AL2", False, ["m5.large"], "AL2_x86_64"),
    ],
)
def test_the_image_follows_system_gpu_and_architecture(
    system: str, gpu: bool | None, instance_types: list[str] | None, expected: str
) -> None:
    assert ami_type(system, gpu, instance_types) == expected


@pytest.mark.parametrize(
    ("system", "gpu", "instance_types", "message"),
    [
        ("AL2023", False, ["m5.large", "m6g.large"], "do not share a common architecture"),
        ("AL2023", False, ["large"], "Invalid EC2 instance type: large"),
        ("AL2023", True, ["g5g.xlarge"], "No AMI type found for OS: AL2023, GPU support: True, architecture: arm64"),
    ],
    ids=["mixed", "no instance type", "no such image"],
)
def test_combinations_without_an_image_are_refused(
    system: str, gpu: bool, instance_types: list[str], message: str
) -> None:
    with pytest.raises(InputPropertyError) as caught:
        ami_type(system, gpu, instance_types)
    assert message in caught.value.reason
