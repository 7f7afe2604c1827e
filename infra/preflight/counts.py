"""Quotas that count things one by one: VPCs, addresses and NAT gateways. Pure.

A stack needs a VPC, and an Elastic IP address for each of its NAT gateways, unless it is in an existing VPC. A new
account may have five of each.
https://docs.aws.amazon.com/vpc/latest/userguide/amazon-vpc-limits.html
"""

from __future__ import annotations

from dataclasses import dataclass

import settings
from infra.preflight.region import Count, Region


@dataclass(frozen=True)
class Counted:
    """What a quota counts. `where`: in what there may be so many, if that is not the region."""

    service: str
    code: str
    name: str
    things: str
    where: str = ""


VPCS = Counted("vpc", "L-F678F1CE", "VPCs per Region", "VPCs")
ADDRESSES = Counted("ec2", "L-0263D0A3", "EC2-VPC Elastic IPs", "Elastic IP addresses")
GATEWAYS = Counted("vpc", "L-FE5A380F", "NAT gateways per Availability Zone", "NAT gateways", "each zone")
ALL = (VPCS, ADDRESSES, GATEWAYS)


def asked(stack: settings.Settings) -> tuple[Counted, ...]:
    """Return what the stack makes: none of it in an existing VPC."""
    return () if stack.network.existing else ALL


def needed(stack: settings.Settings) -> dict[str, int]:
    """Return how many the stack has of each, by the quota's code; of NAT gateways, how many are in one zone."""
    gateways = stack.network.zone_count if stack.network.nat_per_zone else 1
    return {VPCS.code: 1, ADDRESSES.code: gateways, GATEWAYS.code: 1}


def mistakes(stack: settings.Settings, region: Region) -> list[str]:
    """Return a sentence for each quota of the region that leaves too little for the stack."""
    return [_sentence(each, stack, region) for each in _short(stack, region) if not each.where]


def warnings(stack: settings.Settings, region: Region) -> list[str]:
    """Return a sentence for each quota that may be too small: the zones of other NAT gateways are not asked for."""
    unread = [each for each in ALL if each.code in region.unread]
    found = [_sentence(each, stack, region) for each in _short(stack, region) if each.where]
    if unread:
        names = ", ".join(f"{each.code} ({each.name})" for each in unread)
        found.append(
            f"the quotas {names} could not be checked. To have them checked, allow servicequotas:GetServiceQuota, "
            "servicequotas:GetAWSDefaultServiceQuota, ec2:DescribeVpcs, ec2:DescribeAddresses and "
            f"ec2:DescribeNatGateways. The error: {region.unread[unread[0].code]}"
        )
    return found


def _short(stack: settings.Settings, region: Region) -> list[Counted]:
    return [
        each
        for each in ALL
        if (count := region.counts.get(each.code)) and 0 < _further(each, stack, count) > count.limit - count.used
    ]


def _further(each: Counted, stack: settings.Settings, count: Count) -> int:
    return max(0, needed(stack)[each.code] - count.own)


def _sentence(each: Counted, stack: settings.Settings, region: Region) -> str:
    count = region.counts[each.code]
    further, where = _further(each, stack, count), each.where or "it"
    wanted = count.used + further
    return (
        f"{region.name} has {count.used} {each.things}, the quota {each.code} ({each.name}) allows {count.limit:g} in "
        f"{where}, and the stack needs {further} more. Delete what is not used, or ask for more: `aws service-quotas "
        f"request-service-quota-increase --region {region.name} --service-code {each.service} --quota-code {each.code} "
        f"--desired-value {wanted}`"
    )
