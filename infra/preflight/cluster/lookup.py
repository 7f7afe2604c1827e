"""Asks about the cluster, AWS and its API server: `infra.preflight.lookup` does so while it asks the rest.

The plug-in's functions for single things end with an error if there is none; that is an answer here.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

import pulumi_aws as aws

import settings
from infra.preflight.asking import Ask, or_none
from infra.preflight.cluster.checks import USABLE, USEFUL_ADDONS, Cluster, needed
from infra.preflight.cluster.kubeconfig import kubeconfig
from infra.preflight.cluster.objects import Look, NoAnswer
from infra.preflight.cluster.taken import Inside

CLUSTER = "aws:eks/getCluster:getCluster"
ADDON = "aws:eks/getAddon:getAddon"
GROUPS = "aws:eks/getNodeGroups:getNodeGroups"
GROUP = "aws:eks/getNodeGroup:getNodeGroup"
ENTRY = "aws:eks/getAccessEntry:getAccessEntry"

_ABSENT = re.compile(r"couldn't find resource|ResourceNotFoundException|empty result|authentication mode must be set")
"""The words of the plug-in and of EKS for what doesn't exist. A cluster that only takes aws-auth has no entries."""


async def look_up(stack: settings.Settings, existing: settings.ExistingCluster, ask: Ask, look: Look) -> Cluster:
    """Return what AWS says of the cluster and what is on it; `look` asks its API server."""
    found = await or_none(ask(CLUSTER, {"name": existing.name}, aws.eks.GetClusterResult), _ABSENT)
    if found is None:
        return Cluster(found=False)
    names = [*needed(stack), *USEFUL_ADDONS]
    groups, *addons = await asyncio.gather(
        ask(GROUPS, {"clusterName": existing.name}, aws.eks.GetNodeGroupsResult),
        *(
            or_none(ask(ADDON, {"clusterName": existing.name, "addonName": each}, aws.eks.GetAddonResult), _ABSENT)
            for each in names
        ),
    )
    vpc, there = found.vpc_config, _reached(existing.name, found)
    return Cluster(
        found=True,
        existing=there,
        status=found.status,
        version=found.version,
        vpc=vpc.vpc_id,
        mode=found.access_configs[0].authentication_mode if found.access_configs else "",
        private=vpc.endpoint_private_access,
        public=tuple(vpc.public_access_cidrs) if vpc.endpoint_public_access else (),
        addons={name: each.configuration_values or "" for name, each in zip(names, addons, strict=True) if each},
        role=await _role(stack, existing.name, groups.names, ask),
        inside=await _inside(stack, there, ask, look),
    )


@dataclass(frozen=True)
class Own:
    """The stack's own cluster. Nothing is known of it before it is made.

    Attributes:
        role: ARN of its role.
        inside: what is on it; None while its API server can't be asked.
    """

    role: str | None = None
    inside: Inside | None = None


async def look_up_own(stack: settings.Settings, ask: Ask, look: Look) -> Own:
    """Return what AWS says of the stack's own cluster and what is on it."""
    try:
        found = await ask(CLUSTER, {"name": stack.name}, aws.eks.GetClusterResult)
    except Exception:  # there is none yet, or the right is missing; the SDK has no other type for it
        return Own()
    if found.status not in USABLE:
        return Own(found.role_arn)
    return Own(found.role_arn, await _inside(stack, _reached(stack.name, found), ask, look))


def _reached(name: str, found: aws.eks.GetClusterResult) -> settings.ExistingCluster:
    authorities, networks = found.certificate_authorities, found.kubernetes_network_configs
    return settings.ExistingCluster(
        name,
        endpoint=found.endpoint or "",
        certificate=authorities[0].data if authorities else "",
        security_group_id=found.vpc_config.cluster_security_group_id or "",
        service_range=networks[0].service_ipv4_cidr if networks else "",
    )


async def _role(stack: settings.Settings, cluster: str, names: Sequence[str], ask: Ask) -> str | None:
    """Return the role of the stack's nodes. Their groups' names may begin those of a stack with a longer name."""
    for name in sorted(each for each in names if each.startswith(f"{stack.name}-")):
        asked = {"clusterName": cluster, "nodeGroupName": name}
        group = await ask(GROUP, asked, aws.eks.GetNodeGroupResult)
        if stack.own_tags.items() <= (group.tags or {}).items():
            return str(group.node_role_arn)
    return None


async def _inside(stack: settings.Settings, there: settings.ExistingCluster, ask: Ask, look: Look) -> Inside:
    """Return what is on the cluster, or why it could not be read, and who is let in."""
    text = kubeconfig(there, stack.region, stack.profile)
    objects, inside = await asyncio.gather(
        asyncio.to_thread(look, text), _let_in(stack, there.name, ask), return_exceptions=True
    )
    if isinstance(inside, BaseException):
        raise inside
    if isinstance(objects, NoAnswer):
        return replace(inside, unread=str(objects))
    if isinstance(objects, BaseException):
        raise objects
    return replace(inside, objects=objects)


async def _let_in(stack: settings.Settings, cluster: str, ask: Ask) -> Inside:
    """Return the access entries of teams' people and administrators, and of given roles of nodes."""
    people = {arn for team in stack.teams for arn in team.user_arns} | {*stack.cluster.admin_arns}
    principals = sorted(people | {*stack.roles.of_nodes})
    asked = [{"clusterName": cluster, "principalArn": arn} for arn in principals]
    found = await asyncio.gather(*(or_none(ask(ENTRY, each, aws.eks.GetAccessEntryResult), _ABSENT) for each in asked))
    entries = {arn: each for arn, each in zip(principals, found, strict=True) if each}
    return Inside(
        entries={arn: tuple(each.kubernetes_groups or ()) for arn, each in entries.items()},
        foreign=frozenset(
            arn for arn, each in entries.items() if not stack.own_tags.items() <= (each.tags or {}).items()
        ),
    )
