"""What the program knows about EC2 instance types: the single source of truth.

    hardware.INSTANCE_TYPES["g5.xlarge"].gpus      # 1

Rows are copied from https://aws.amazon.com/ec2/instance-types/ and
https://docs.aws.amazon.com/ec2/latest/instancetypes/ac.html; check new rows there. All types are x86-64, as
the training images are.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class InstanceType:
    """The size of one EC2 instance type."""

    vcpus: int
    memory_gib: int
    gpus: int = 0
    gpu: str = ""

    @property
    def schedulable_cpu_millis(self) -> int:
        """Return the CPU that the stack's pods can request, in thousandths of a vCPU.

        The kubelet reserves 60 to 80 m on small types
        (https://docs.aws.amazon.com/eks/latest/userguide/choosing-instance-type.html) and the DaemonSets of
        the addons (vpc-cni, kube-proxy, EFS CSI, pod identity) request about 250 m together.
        """
        return self.vcpus * 1000 - 400

    @property
    def schedulable_memory_mib(self) -> int:
        """Return the memory that the pods can request: what kubelet, eviction limit and DaemonSets leave."""
        return int(self.memory_gib * 1024 * 0.8)


def _general(memory_per_vcpu_gib: int, sizes: dict[str, int]) -> dict[str, InstanceType]:
    return {name: InstanceType(vcpus=vcpus, memory_gib=vcpus * memory_per_vcpu_gib) for name, vcpus in sizes.items()}


_M_SIZES = {"large": 2, "xlarge": 4, "2xlarge": 8, "4xlarge": 16, "8xlarge": 32}


def _family(prefix: str, memory_per_vcpu_gib: int) -> dict[str, InstanceType]:
    sizes = {f"{prefix}.{size}": vcpus for size, vcpus in _M_SIZES.items()}
    return _general(memory_per_vcpu_gib, sizes)


INSTANCE_TYPES: dict[str, InstanceType] = {
    **_family("m5", 4),
    **_family("m6i", 4),
    **_family("m7i", 4),
    **_family("c6i", 2),
    **_family("c7i", 2),
    **_family("r6i", 8),
    "t3.large": InstanceType(2, 8),
    "t3.xlarge": InstanceType(4, 16),
    "t3.2xlarge": InstanceType(8, 32),
    "g4dn.xlarge": InstanceType(4, 16, 1, "T4"),
    "g4dn.2xlarge": InstanceType(8, 32, 1, "T4"),
    "g4dn.4xlarge": InstanceType(16, 64, 1, "T4"),
    "g4dn.8xlarge": InstanceType(32, 128, 1, "T4"),
    "g4dn.12xlarge": InstanceType(48, 192, 4, "T4"),
    "g5.xlarge": InstanceType(4, 16, 1, "A10G"),
    "g5.2xlarge": InstanceType(8, 32, 1, "A10G"),
    "g5.4xlarge": InstanceType(16, 64, 1, "A10G"),
    "g5.8xlarge": InstanceType(32, 128, 1, "A10G"),
    "g5.12xlarge": InstanceType(48, 192, 4, "A10G"),
    "g5.48xlarge": InstanceType(192, 768, 8, "A10G"),
    "g6.xlarge": InstanceType(4, 16, 1, "L4"),
    "g6.2xlarge": InstanceType(8, 32, 1, "L4"),
    "g6.4xlarge": InstanceType(16, 64, 1, "L4"),
    "g6.12xlarge": InstanceType(48, 192, 4, "L4"),
    "g6.48xlarge": InstanceType(192, 768, 8, "L4"),
    "g6e.xlarge": InstanceType(4, 32, 1, "L40S"),
    "g6e.2xlarge": InstanceType(8, 64, 1, "L40S"),
    "g6e.12xlarge": InstanceType(48, 384, 4, "L40S"),
    "g6e.48xlarge": InstanceType(192, 1536, 8, "L40S"),
    "p4d.24xlarge": InstanceType(96, 1152, 8, "A100"),
    "p5.48xlarge": InstanceType(192, 2048, 8, "H100"),
}

RETIRED_GPUS = {
    "K80": "NVIDIA's driver 470 was the last one for it",
    "M60": "EKS' AL2023 NVIDIA images don't support it",
}
"""GPU models that EKS' images have no driver for, or are not supported with, and why. The driver is of branch 580.
https://docs.aws.amazon.com/eks/latest/userguide/ml-eks-optimized-ami.html (P3's V100 is supported)"""

RETIRED_FAMILIES = {"p2": "K80", "g3": "M60", "g3s": "M60"}
"""The instance families with these GPUs. https://aws.amazon.com/ec2/previous-generation/"""

KUBERNETES_VERSIONS = ("1.33", "1.34", "1.35")
"""Versions that have AL2023 node images and that the manifests are written for.
https://docs.aws.amazon.com/eks/latest/userguide/kubernetes-versions.html"""

LOG_RETENTION_DAYS = (365, 400, 545, 731, 1096, 1827, 2192, 2557, 2922, 3288, 3653)
"""The retentions of a year and more that CloudWatch Logs accepts.
https://docs.aws.amazon.com/AmazonCloudWatchLogs/latest/APIReference/API_PutRetentionPolicy.html"""

ZONE_IDS_WITHOUT_EKS = ("use1-az3", "usw1-az2", "cac1-az3")
"""Availability zones in which EKS can't place a control plane.
https://docs.aws.amazon.com/eks/latest/userguide/network-reqs.html"""
