"""Facts about AWS that settings are checked against, and the form in which facts about instance types arrive.

What an instance type has, AWS says: `infra.preflight` asks it. So a type works here on the day on which it comes out.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Size:
    """What a node has room for. `gpus` are NVIDIA's, the only ones that the stack's images use."""

    vcpus: int
    memory_mib: int
    gpus: int = 0
    efa: int = 0
    """Elastic Fabric Adapters that it can have, at most."""
    network_cards: int = 0
    """0 if AWS did not say."""

    @property
    def efa_cards(self) -> range:
        """Return the network cards that have an EFA: all of them, or the last ones if a type has fewer EFAs than cards.

        Only the first cards may be without, card 0 of a p6-b300.48xlarge for example.
        https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/efa-acc-inst-types.html
        """
        first = max(0, self.network_cards - self.efa)
        return range(first, first + self.efa)

    @property
    def schedulable_cpu_millis(self) -> int:
        """Return the CPU that the stack's pods can request, in thousandths of a vCPU.

        EKS' images reserve 70 to 80 m for the kubelet on types with up to 4 vCPUs, and 2.5 m for each further vCPU
        (https://github.com/awslabs/amazon-eks-ami, nodeadm/internal/kubelet/config.go). The DaemonSets of addons, GPUs,
        EFA and monitoring request up to 300 m together.
        """
        return self.vcpus * 1000 - 400 - math.ceil(2.5 * max(0, self.vcpus - 4))

    @property
    def schedulable_memory_mib(self) -> int:
        """Return the memory that the pods can request: what kubelet, eviction limit and DaemonSets leave."""
        return int(self.memory_mib * 0.8)


@dataclass(frozen=True)
class InstanceType(Size):
    """What AWS says of one EC2 instance type."""

    name: str = ""
    gpu: str = ""
    """The model of its GPUs in AWS's words, such as A10G; empty without any."""
    has_instance_store: bool = False
    """Whether it has disks of its own."""
    architectures: tuple[str, ...] = ()
    """In AWS's words: x86_64, arm64."""
    interface_addresses: int = 0
    """IPv4 addresses that each of its network interfaces can have; 0 if AWS did not say."""
    usage_classes: tuple[str, ...] = ()
    """How it is sold, in AWS's words: on-demand, spot, capacity-block."""


def smallest(types: Sequence[Size]) -> Size:
    """Return what each of `types` has at least."""
    return Size(
        vcpus=min(each.vcpus for each in types),
        memory_mib=min(each.memory_mib for each in types),
        gpus=min(each.gpus for each in types),
        efa=min(each.efa for each in types),
        network_cards=min(each.network_cards for each in types),
    )


DISK_GIB = range(50, 16_384 + 1)
"""From what system, images and checkpoint uploads take, to what every EBS client accepts."""

DISK_IOPS = range(3_000, 80_000 + 1)
DISK_THROUGHPUT = range(125, 2_000 + 1)
"""In MiB/s. The lowest IOPS and throughput of a gp3 volume are part of its price; more is charged for.
https://docs.aws.amazon.com/ebs/latest/userguide/general-purpose.html"""

DISK_IOPS_PER_GIB = 500
DISK_IOPS_PER_THROUGHPUT = 4
"""A gp3 volume has at most 500 IOPS for each GiB, and at most 0.25 MiB/s for each of its IOPS. Same source."""

FILE_THROUGHPUT = range(1, 3_414 + 1)
"""In MiB/s, of an EFS file system; regions have lower limits.
https://docs.aws.amazon.com/efs/latest/APIReference/API_UpdateFileSystem.html"""

RETIRED_GPUS = {
    "K80": "NVIDIA's driver 470 was the last one for it",
    "M60": "EKS' AL2023 NVIDIA images don't support it",
}
"""GPU models that EKS' images have no driver for, or are not supported with, and why. The driver is of branch 580.
https://docs.aws.amazon.com/eks/latest/userguide/ml-eks-optimized-ami.html (P3's V100 is supported)"""

FLOW_LOG_DAYS = (0, 1, 3, 5, 7, 14, 30, 60, 90, 120, 150, 180)
"""No flow logs, and the retentions of less than a year that CloudWatch Logs accepts; see LOG_RETENTION_DAYS."""

LOG_RETENTION_DAYS = (365, 400, 545, 731, 1096, 1827, 2192, 2557, 2922, 3288, 3653)
"""The retentions of a year and more that CloudWatch Logs accepts.
https://docs.aws.amazon.com/AmazonCloudWatchLogs/latest/APIReference/API_PutRetentionPolicy.html"""

ZONE_IDS_WITHOUT_EKS = ("use1-az3", "usw1-az2", "cac1-az3")
"""Availability zones in which EKS can't place a control plane.
https://docs.aws.amazon.com/eks/latest/userguide/network-reqs.html"""
