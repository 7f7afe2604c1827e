"""Asks AWS what the checks need to know: a few calls at the same time, by the provider's data sources.

    region = look_up(stack, account)

The program waits for the answers, as it does for every data source of the SDK that is not in its `_output` form:
no resource must be registered before the checks, and what they return decides which ones there are.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import datetime
from typing import Any

import pulumi
import pulumi_aws as aws

# Every generated SDK waits with this function, pulumi_aws too; the documented functions wait for one call at a time.
from pulumi.runtime.sync_await import _sync_await

import settings
from infra.account import Account
from infra.preflight import quotas
from infra.preflight.region import Region
from infra.preflight.support import Support
from settings import hardware
from settings.hardware import InstanceType

ZONES = "aws:index/getAvailabilityZones:getAvailabilityZones"
OFFERINGS = "aws:ec2/getInstanceTypeOfferings:getInstanceTypeOfferings"
TYPE = "aws:ec2/getInstanceType:getInstanceType"
VPCS = "aws:ec2/getVpcs:getVpcs"
QUOTA = "aws:servicequotas/getServiceQuota:getServiceQuota"
VERSIONS = "aws:eks/getClusterVersions:getClusterVersions"
NVIDIA = "NVIDIA"


def look_up(stack: settings.Settings, account: Account) -> Region:
    """Return what AWS says of the stack's region.

    Raises:
        Exception: AWS refused a question, other than that for a quota.
    """
    return _sync_await(_look_up(stack, account.provider))


async def _look_up(stack: settings.Settings, provider: aws.Provider) -> Region:
    def ask(token: str, arguments: Mapping[str, Any], kind: type) -> Any:
        # Options of its own for each call: the SDK changes them.
        return pulumi.runtime.invoke_async(token, dict(arguments), pulumi.InvokeOptions(provider=provider), kind)

    names = sorted({name for types in stack.instance_types.values() for name in types})
    codes, private = quotas.codes(stack), not stack.cluster.public_access_cidrs
    answers = await asyncio.gather(
        ask(ZONES, _zones_that_eks_can_use(), aws.GetAvailabilityZonesResult),
        ask(OFFERINGS, _families(names), aws.ec2.GetInstanceTypeOfferingsResult),
        ask(VERSIONS, {"clusterVersionsOnlies": [stack.cluster.version]}, aws.eks.GetClusterVersionsResult),
        *(ask(TYPE, {"instanceType": name}, aws.ec2.GetInstanceTypeResult) for name in names),
        *(
            ask(QUOTA, {"serviceCode": "ec2", "quotaCode": code}, aws.servicequotas.GetServiceQuotaResult)
            for code in codes
        ),
        *([ask(VPCS, {"tags": stack.own_tags}, aws.ec2.GetVpcsResult)] if private else []),
        return_exceptions=True,
    )
    (zones, offerings), versions = (_answer(each) for each in answers[:2]), answers[2]
    offered = frozenset(zip(offerings.instance_types, offerings.locations, strict=True))
    there = {name for name, _ in offered}
    # AWS's answer for a type that doesn't exist is an error too.
    types = {name: _answer(each) for name, each in zip(names, answers[3:], strict=False) if name in there}
    limits = dict(zip(codes, answers[3 + len(names) :], strict=False))
    return Region(
        name=stack.region,
        zones=tuple(sorted(zones.names)),
        offered=offered,
        types={name: instance_type(found) for name, found in types.items()},
        quotas={code: found.value for code, found in limits.items() if not isinstance(found, BaseException)},
        unread={code: str(found) for code, found in limits.items() if isinstance(found, BaseException)},
        vpcs=tuple(_answer(answers[-1]).ids) if private else (),
        support=None if isinstance(versions, BaseException) else support_of(stack.cluster.version, versions),
    )


def support_of(version: str, found: aws.eks.GetClusterVersionsResult) -> Support | None:
    """Return what EKS says of a Kubernetes version; None if it doesn't list it."""
    for each in found.cluster_versions:
        if each.cluster_version == version:
            return Support(each.version_status, datetime.fromisoformat(each.end_of_standard_support_date).date())
    return None


def instance_type(found: aws.ec2.GetInstanceTypeResult) -> InstanceType:
    """Return AWS's answer as a fact. GPUs of other makers than NVIDIA are none: no image here can use them."""
    gpus = [gpu for gpu in found.gpuses or () if gpu.manufacturer.upper() == NVIDIA]
    return InstanceType(
        name=found.instance_type,
        vcpus=found.default_vcpus,
        memory_mib=found.memory_size,
        gpus=sum(gpu.count for gpu in gpus),
        gpu=gpus[0].name if gpus else "",
        # Computed outputs that a provider doesn't set are missing in the answer, whatever the SDK's types say, and
        # Terraform's sets this one only for types with EFA: https://github.com/pulumi/pulumi-terraform-bridge/pull/1528
        # https://github.com/hashicorp/terraform-provider-aws (internal/service/ec2/ec2_instance_type_data_source.go)
        efa=found.efa_maximum_interfaces or 0,
        has_instance_store=found.instance_storage_supported,
        architectures=tuple(found.supported_architectures),
        usage_classes=tuple(found.supported_usages_classes),
    )


def _zones_that_eks_can_use() -> Mapping[str, Any]:
    """Ask for zones in any state: a stack that has a zone keeps it, and can be changed, while AWS has trouble there.

    `infra.network` takes new zones from those that are available.
    https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_AvailabilityZone.html
    """
    return {
        "excludeZoneIds": list(hardware.ZONE_IDS_WITHOUT_EKS),
        "filters": [{"name": "opt-in-status", "values": ["opt-in-not-required"]}],
    }


def _families(names: list[str]) -> Mapping[str, Any]:
    """Ask for all types of the families too: a misspelt name is then answered with similar ones.

    Values of EC2's filters can have wildcards:
    https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/Using_Filtering.html#Filtering_Resources_CLI
    """
    families = {f"{name.partition('.')[0]}.*" for name in names}
    return {
        "locationType": "availability-zone",
        "filters": [{"name": "instance-type", "values": sorted({*names, *families})}],
    }


def _answer(found: Any) -> Any:
    if isinstance(found, BaseException):
        raise found
    return found
