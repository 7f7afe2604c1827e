"""Service quotas: the number of vCPUs that may run per group of instance types, and EC2's errors above it.

    quotas.refuse(backend, "g5.xlarge", "spot", 1)     # backend: moto's EC2 of one account and region
    quotas.value(backend, "L-3819A6DF")

The names, codes and defaults are AWS's: https://docs.aws.amazon.com/ec2/latest/instancetypes/ec2-instance-quotas.html
A new account has the defaults, which are too low for most stacks. The account of this cloud has got more.
Those of VPCs, addresses and NAT gateways are answered, and not enforced.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from localcloud.aws.compute import capacity

GRANTED: Final = 1152.0
"""The vCPUs of each quota that the account of this cloud has been granted."""

ON_DEMAND_CODE: Final = "VcpuLimitExceeded"
SPOT_CODE: Final = "MaxSpotInstanceCountExceeded"

EC2: Final = "ec2"
VPC: Final = "vpc"

_ATTRIBUTE: Final = "_localcloud_quotas"


@dataclass(frozen=True)
class Quota:
    """A quota, on vCPUs of a market or on things without one.

    Args:
        types: A regular expression for the beginning of the names of the instance types that it counts.
        usage_class: The family in CloudWatch's metric of its usage.
    """

    code: str
    name: str
    market: str = ""
    types: str = ""
    usage_class: str = ""
    default: float = 0.0
    service: str = EC2


_FAMILIES: Final = (
    (r"(a|c|d|h|i|im|is|m|r|t|z)\d", "Standard", "Standard (A, C, D, H, I, M, R, T, Z)", "L-1216C47A", "L-34B43A08"),
    (r"(g|gr|vt)\d", "G", "G and VT", "L-DB2E81BA", "L-3819A6DF"),
    (r"dl\d", "DL", "DL", "L-6E869C2A", "L-85EED4F7"),
    (r"f\d", "F", "F", "L-74FC7D96", "L-88CF9481"),
    (r"inf\d", "Inf", "Inf", "L-1945791B", "L-B5D1601B"),
    (r"trn\d", "Trn", "Trn", "L-2C3B7624", "L-6B0D517C"),
    (r"x\d", "X", "X", "L-7295265B", "L-E3A00192"),
)


def _two(types: str, usage: str, name: str, on_demand: str, spot: str) -> tuple[Quota, Quota]:
    default = 5.0 if usage == "Standard" else 0.0
    return (
        Quota(on_demand, f"Running On-Demand {name} instances", capacity.ON_DEMAND, types, usage, default),
        Quota(spot, f"All {name} Spot Instance Requests", capacity.SPOT, types, usage, default),
    )


QUOTAS: Final = {
    quota.code: quota
    for quota in (
        *(quota for family in _FAMILIES for quota in _two(*family)),
        Quota("L-417A185B", "Running On-Demand P instances", capacity.ON_DEMAND, r"p\d", "P"),
        Quota("L-7212CCBC", "All P4, P3 and P2 Spot Instance Requests", capacity.SPOT, r"p[2-4]\D", "P"),
        Quota("L-C4BD4855", "All P5 Spot Instance Requests", capacity.SPOT, r"p5\D", "P5"),
        Quota("L-F7808C92", "Running On-Demand HPC instances", capacity.ON_DEMAND, r"hpc\d", "HPC"),
        Quota("L-43DA4232", "Running On-Demand High Memory instances", capacity.ON_DEMAND, r"u(-\d|\d)", "HighMemory"),
        Quota("L-0263D0A3", "EC2-VPC Elastic IPs", default=5.0),
        Quota("L-F678F1CE", "VPCs per Region", default=5.0, service=VPC),
        Quota("L-FE5A380F", "NAT gateways per Availability Zone", default=5.0, service=VPC),
    )
}


def quota_of(instance_type: str, market: str) -> Quota | None:
    """Return the quota that counts an instance; None if there is none."""
    found = (quota for quota in QUOTAS.values() if quota.market == market and re.match(quota.types, instance_type))
    return next(found, None)


def refusal(quota: Quota, limit: float, running: int, wanted: int) -> tuple[str, str] | None:
    """Return EC2's code and message if `running` plus `wanted` vCPUs exceed the limit; else None."""
    if running + wanted <= limit:
        return None
    if quota.market == capacity.SPOT:
        return SPOT_CODE, "Max spot instance count exceeded"
    return ON_DEMAND_CODE, (
        f"You have requested more vCPU capacity than your current vCPU limit of {limit:g} allows for the instance "
        "bucket that the specified instance type belongs to. Please visit "
        "http://aws.amazon.com/contact-us/ec2-request to request an adjustment to this limit."
    )


def value(backend: Any, code: str) -> float:
    """Return how much of a quota an account has in a region."""
    own: Mapping[str, float] = vars(backend).get(_ATTRIBUTE, {})
    return own.get(code, GRANTED)


def grant(backend: Any, values: Mapping[str, float]) -> None:
    """Set quotas of an account in a region, by their codes."""
    # A new mapping, because launches read it in other threads.
    setattr(backend, _ATTRIBUTE, {**vars(backend).get(_ATTRIBUTE, {}), **values})


def refuse(backend: Any, instance_type: str, market: str, count: int) -> None:
    """Raise EC2's error if the quota doesn't allow so many more instances of a type."""
    from moto.ec2.exceptions import EC2ClientError

    quota = quota_of(instance_type, market)
    if quota is None:
        return
    running = sum(
        _vcpus(instance.instance_type)
        for instance in backend.all_instances()
        if instance.state in ("pending", "running") and _counts(quota, instance)
    )
    refused = refusal(quota, value(backend, quota.code), running, count * _vcpus(instance_type))
    if refused is not None:
        raise EC2ClientError(*refused)


def _counts(quota: Quota, instance: Any) -> bool:
    market = capacity.SPOT if instance.lifecycle == capacity.SPOT else capacity.ON_DEMAND
    return market == quota.market and re.match(quota.types, instance.instance_type) is not None


def _vcpus(instance_type: str) -> int:
    from moto.ec2.models.instance_types import INSTANCE_TYPES

    return int(INSTANCE_TYPES[instance_type]["VCpuInfo"]["DefaultVCpus"]) if instance_type in INSTANCE_TYPES else 0
