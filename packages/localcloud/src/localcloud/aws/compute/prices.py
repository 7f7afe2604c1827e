"""What an instance costs per hour on this cloud: a price from its size, as AWS's own prices can't be had offline.

    on_demand(vcpus=2, memory_mib=8192, gpu_mib=0)      # 0.09876; AWS asks 0.096 for an m5.large in us-west-2

The price of a size is about the same as on AWS, and larger instances cost more, which is what Karpenter and fleets need
to choose. It is not AWS's price.
"""

from __future__ import annotations

from functools import cache
from typing import Any, Final

# From AWS's prices in us-west-2 of c5, m5 and r5 (2, 4 and 8 GiB per vCPU), and of g5 for its GPU of 24 GiB:
# https://aws.amazon.com/ec2/pricing/on-demand/
VCPU_USD: Final = 0.0357
GIB_USD: Final = 0.00342
GPU_GIB_USD: Final = 0.0337
SPOT_SHARE: Final = 0.4
"""The part of the On-Demand price that Spot costs, in every zone."""
MIB_PER_GIB: Final = 1024


def on_demand(vcpus: int, memory_mib: int, gpu_mib: int) -> float:
    """Return the price of an hour in USD."""
    gib, gpu_gib = memory_mib / MIB_PER_GIB, gpu_mib / MIB_PER_GIB
    return round(vcpus * VCPU_USD + gib * GIB_USD + gpu_gib * GPU_GIB_USD, 5)


def spot(on_demand_usd: float) -> float:
    """Return the Spot price of an hour in USD."""
    return round(on_demand_usd * SPOT_SHARE, 5)


def on_demand_of(instance_type: str) -> float:
    """Return the On-Demand price of an instance type, or infinity if there is no such type."""
    from moto.ec2.models.instance_types import INSTANCE_TYPES

    found = INSTANCE_TYPES.get(instance_type)
    return float("inf") if found is None else _price(instance_type)


@cache
def _price(instance_type: str) -> float:
    from moto.ec2.models.instance_types import INSTANCE_TYPES

    found: dict[str, Any] = INSTANCE_TYPES[instance_type]
    gpus = (found.get("GpuInfo") or {}).get("TotalGpuMemoryInMiB") or 0
    return on_demand(int(found["VCpuInfo"]["DefaultVCpus"]), int(found["MemoryInfo"]["SizeInMiB"]), int(gpus))
