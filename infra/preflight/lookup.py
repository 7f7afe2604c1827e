"""Asks AWS what the checks need to know: a few calls at the same time, by the provider's data sources.

    region = look_up(stack, account, login.run)

The program waits for the answers, as it does for every data source of the SDK that is not in its `_output` form:
no resource must be registered before the checks, and what they return decides which ones there are.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

import pulumi
import pulumi_aws as aws

# Every generated SDK waits with this function, pulumi_aws too; the documented functions wait for one call at a time.
from pulumi.runtime.sync_await import _sync_await

import settings
from infra.account import Account, words
from infra.identity import AUTO_SCALING_ROLE
from infra.preflight import counts, keys, login, quotas
from infra.preflight.asking import Ask
from infra.preflight.cluster import Cluster, Look
from infra.preflight.cluster.lookup import Own, look_up_own
from infra.preflight.cluster.lookup import look_up as look_up_cluster
from infra.preflight.dataset import Found, head, place
from infra.preflight.region import ENABLED, Count, Key, Region
from infra.preflight.roles.boundary import Boundary
from infra.preflight.roles.boundary import look_up as look_up_boundary
from infra.preflight.roles.given import ROLE
from infra.preflight.roles.given import look_up as look_up_roles
from infra.preflight.support import Support
from infra.preflight.vpc import Vpc
from infra.preflight.vpc.files import Files
from infra.preflight.vpc.files import look_up as look_up_files
from infra.preflight.vpc.lookup import cluster_exists
from infra.preflight.vpc.lookup import look_up as look_up_vpc
from infra.preflight.vpc.lustre import look as look_at_lustre
from settings import hardware
from settings.hardware import InstanceType

CALLER = "aws:index/getCallerIdentity:getCallerIdentity"
ZONES = "aws:index/getAvailabilityZones:getAvailabilityZones"
OFFERINGS = "aws:ec2/getInstanceTypeOfferings:getInstanceTypeOfferings"
TYPE = "aws:ec2/getInstanceType:getInstanceType"
VPCS = "aws:ec2/getVpcs:getVpcs"
QUOTA = "aws:servicequotas/getServiceQuota:getServiceQuota"
VERSIONS = "aws:eks/getClusterVersions:getClusterVersions"
ADDRESSES = "aws:ec2/getEips:getEips"
GATEWAYS = "aws:ec2/getNatGateways:getNatGateways"
BUCKET = "aws:s3/getBucket:getBucket"
OBJECTS = "aws:s3/getObjects:getObjects"
DISK_KEY = "aws:ebs/getDefaultKmsKey:getDefaultKmsKey"
KEY = "aws:kms/getKey:getKey"
NVIDIA = "NVIDIA"
_NO_KEY = re.compile("couldn't find resource|NotFoundException")
_NO_ROLE = re.compile("couldn't find resource|NoSuchEntity")
"""The words of the plug-in, and of KMS and IAM, for what doesn't exist."""

# By the quota's code: the function, its result, and what of it is counted.
_THINGS: Mapping[str, tuple[str, type, Callable[[Any], list[str]]]] = {
    counts.VPCS.code: (VPCS, aws.ec2.GetVpcsResult, lambda found: found.ids),
    counts.ADDRESSES.code: (ADDRESSES, aws.ec2.GetEipsResult, lambda found: found.allocation_ids),
    counts.GATEWAYS.code: (GATEWAYS, aws.ec2.GetNatGatewaysResult, lambda found: found.ids),
}
_STATES = {counts.GATEWAYS.code: {"filters": [{"name": "state", "values": ["pending", "available", "deleting"]}]}}
"""A NAT gateway that is deleted is listed for about an hour, and doesn't count."""


def look_up(stack: settings.Settings, account: Account, run: login.Run, look: Look) -> Region:
    """Return what AWS says of the stack's region; `run` runs the `aws` of this machine, `look` asks an API server.

    Raises:
        pulumi.RunError: AWS refused a question without which nothing can be checked.
    """
    return _sync_await(_look_up(stack, account.provider, run, look))


async def _look_up(stack: settings.Settings, provider: aws.Provider, run: login.Run, look: Look) -> Region:
    def ask(token: str, arguments: Mapping[str, Any], kind: type) -> Any:
        # Options of its own for each call: the SDK changes them.
        return pulumi.runtime.invoke_async(token, dict(arguments), pulumi.InvokeOptions(provider=provider), kind)

    names = sorted({name for types in stack.instance_types.values() for name in types})
    questions = {
        "zones": ask(ZONES, _zones_that_eks_can_use(), aws.GetAvailabilityZonesResult),
        "offerings": ask(OFFERINGS, _families(names), aws.ec2.GetInstanceTypeOfferingsResult),
        "versions": ask(VERSIONS, {"clusterVersionsOnlies": [stack.cluster.version]}, aws.eks.GetClusterVersionsResult),
        "exists": _exists(stack, ask),
        "vpc": _vpc(stack, ask),
        "there": _there(stack, ask, look),
        "own": _own(stack, ask, look),
        "files": _files(stack, ask),
        "lustre": asyncio.to_thread(look_at_lustre, stack, run),
        "boundary": _boundary(stack, ask),
        "roles": look_up_roles(stack.roles.arns, ask),
        "disks": _disks(stack, ask),
        "data_key": _data_key(stack, ask),
        "login": _login(stack, ask, run),
        "dataset": _dataset(stack.training.dataset, ask),
        **{name: ask(TYPE, {"instanceType": name}, aws.ec2.GetInstanceTypeResult) for name in names},
        **{code: _quota(ask, "ec2", code) for code in quotas.codes(stack)},
        **{each.code: _count(stack, ask, each) for each in counts.asked(stack)},
    }
    found = dict(zip(questions, await asyncio.gather(*questions.values(), return_exceptions=True), strict=True))
    zones, offerings, exists = (_answer(found[each]) for each in ("zones", "offerings", "exists"))
    offered = frozenset(zip(offerings.instance_types, offerings.locations, strict=True))
    named = {name for name, _ in offered}
    versions, (disk_key, role) = found["versions"], _answer(found["disks"])
    there, own = _answer(found["there"]), _answer(found["own"])
    codes = [*quotas.codes(stack), *(each.code for each in counts.asked(stack))]
    limits = {code: found[code] for code in codes}
    read = {code: each for code, each in limits.items() if not isinstance(each, BaseException)}
    return Region(
        name=stack.region,
        zones=tuple(sorted(zones.names)),
        offered=offered,
        # AWS's answer for a type that doesn't exist is an error too.
        types={name: instance_type(_answer(found[name])) for name in names if name in named},
        quotas={code: each for code, each in read.items() if not isinstance(each, Count)},
        unread={code: str(each) for code, each in limits.items() if isinstance(each, BaseException)},
        exists=exists or bool(there and there.role),
        support=None if isinstance(versions, BaseException) else support_of(stack.cluster.version, versions),
        counts={code: each for code, each in read.items() if isinstance(each, Count)},
        dataset=_answer(found["dataset"]),
        disk_key=disk_key,
        data_key=_answer(found["data_key"]),
        login=_answer(found["login"]),
        auto_scaling_role=role,
        vpc=_answer(found["vpc"]),
        cluster=there,
        files=_answer(found["files"]),
        lustre=_answer(found["lustre"]),
        boundary=_answer(found["boundary"]),
        roles=_answer(found["roles"]),
        role=there.role if there else own.role,
        inside=there.inside if there else own.inside,
    )


async def _exists(stack: settings.Settings, ask: Ask) -> bool:
    """Ask for what the stack makes first: its own VPC, or in an existing one its cluster; else see `Cluster`."""
    if stack.cluster.existing:
        return False
    if stack.network.existing:
        return await cluster_exists(stack.name, ask)
    return bool((await ask(VPCS, {"tags": stack.own_tags}, aws.ec2.GetVpcsResult)).ids)


async def _vpc(stack: settings.Settings, ask: Ask) -> Vpc | None:
    existing = stack.network.existing
    return await look_up_vpc(existing, stack.region, ask) if existing else None


async def _there(stack: settings.Settings, ask: Ask, look: Look) -> Cluster | None:
    existing = stack.cluster.existing
    return await look_up_cluster(stack, existing, ask, look) if existing else None


async def _files(stack: settings.Settings, ask: Ask) -> Files | None:
    return await look_up_files(stack.file_system, ask) if stack.file_system else None


async def _boundary(stack: settings.Settings, ask: Ask) -> Boundary | None:
    return await look_up_boundary(stack.roles.boundary, ask) if stack.roles.boundary else None


async def _own(stack: settings.Settings, ask: Ask, look: Look) -> Own:
    return Own() if stack.cluster.existing else await look_up_own(stack, ask, look)


async def _quota(ask: Ask, service: str, code: str) -> float:
    asked = {"serviceCode": service, "quotaCode": code}
    return float((await ask(QUOTA, asked, aws.servicequotas.GetServiceQuotaResult)).value)


async def _count(stack: settings.Settings, ask: Ask, each: counts.Counted) -> Count:
    """Ask how many there are, how many of these are the stack's, and what the quota is."""
    token, kind, ids = _THINGS[each.code]
    own, used, limit = await asyncio.gather(
        ask(token, {**_STATES.get(each.code, {}), "tags": stack.own_tags}, kind),
        ask(token, _STATES.get(each.code, {}), kind),
        _quota(ask, each.service, each.code),
    )
    return Count(used=len(ids(used)), own=len(ids(own)), limit=limit)


async def _dataset(dataset: settings.Dataset, ask: Ask) -> Found | None:
    """Look at the dataset's address, with the rights of who deploys."""
    s3 = place(dataset)
    if s3 is None:
        return await asyncio.to_thread(head, dataset.uri) if dataset.uri else None
    bucket, key = s3
    try:
        region = (await ask(BUCKET, {"bucket": bucket}, aws.s3.GetBucketResult)).bucket_region
        asked = {"bucket": bucket, "prefix": key, "maxKeys": 1, "region": region}
        return Found(region=region, keys=tuple((await ask(OBJECTS, asked, aws.s3.GetObjectsResult)).keys))
    except Exception as error:  # the SDK has no other type for it
        return Found(error=str(error))


async def _login(stack: settings.Settings, ask: Ask, run: login.Run) -> login.Login:
    """Ask who the provider is, and who `aws` is, at the same time as for the rest."""
    caller = await ask(CALLER, {}, aws.GetCallerIdentityResult)
    return replace(await asyncio.to_thread(login.look, stack, caller.account_id, run), caller=caller.arn)


async def _disks(stack: settings.Settings, ask: Ask) -> tuple[Key | None, bool]:
    """Ask for the key of the nodes' disks, and whether EC2 Auto Scaling has its role, to which one is granted."""
    try:
        arn = stack.node_disk_key or (await ask(DISK_KEY, {}, aws.ebs.GetDefaultKmsKeyResult)).key_arn
    except Exception:  # the SDK has no other type for it
        return None, True
    if arn.endswith(keys.ALIAS):
        return Key(arn, customer=False), True
    return await asyncio.gather(_key(arn, ask), _has_auto_scaling_role(ask))


async def _has_auto_scaling_role(ask: Ask) -> bool:
    """Return whether EC2 Auto Scaling has its role. Errors such as a missing right say nothing of it."""
    try:
        await ask(ROLE, {"name": AUTO_SCALING_ROLE}, aws.iam.GetRoleResult)
    except Exception as error:  # the SDK has no other type for it
        return not _NO_ROLE.search(str(error))
    return True


async def _data_key(stack: settings.Settings, ask: Ask) -> Key | None:
    return await _key(stack.data_key, ask) if stack.data_key else None


async def _key(arn: str, ask: Ask) -> Key:
    try:
        found = await ask(KEY, {"keyId": arn}, aws.kms.GetKeyResult)
    except Exception as error:  # the SDK has no other type for it
        return Key(arn, customer=None, state="" if _NO_KEY.search(str(error)) else ENABLED)
    return Key(arn, found.key_manager == "CUSTOMER", found.key_state, found.key_spec == "SYMMETRIC_DEFAULT")


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
        network_cards=found.maximum_network_cards or 0,
        has_instance_store=found.instance_storage_supported,
        interface_addresses=found.maximum_ipv4_addresses_per_interface or 0,
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
    if isinstance(found, Exception):
        raise pulumi.RunError(
            "AWS refuses a question without which nothing can be checked; nothing was changed: "
            f"{words(str(found))}. Allow it to the identity that deploys (`python -m scripts.policy` prints all that "
            "it needs), and run this again"
        ) from found
    return found
