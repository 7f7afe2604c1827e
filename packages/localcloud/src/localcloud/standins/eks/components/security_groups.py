"""The security groups of a cluster and its nodes, and the rules between them."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from pulumi.provider.experimental.property_value import PropertyValue

from localcloud.standins.algebra import combine, record
from localcloud.standins.eks.scope import Scope
from localcloud.standins.monitor import Resource
from localcloud.standins.values import wrap

_GROUP = "ec2/securityGroup:SecurityGroup"
_RULE = "ec2/securityGroupRule:SecurityGroupRule"


@dataclass(frozen=True)
class NodeSecurity:
    """The security group of a cluster's nodes, and the rule for the cluster."""

    group: Resource
    cluster_ingress: Resource


async def cluster_security_group(
    scope: Scope, name: str, vpc_id: PropertyValue, tags: PropertyValue, group_tags: PropertyValue
) -> Resource:
    """Register the control plane's security group and its egress rule."""
    merged = combine(
        lambda common, own: {"Name": f"{name}-eksClusterSecurityGroup", **(own or {}), **(common or {})},
        tags,
        group_tags,
    )
    inputs = record({"vpcId": vpc_id, "revokeRulesOnDelete": True, "tags": merged})
    group = await scope.aws(_GROUP, f"{name}-eksClusterSecurityGroup", inputs)
    await scope.aws(_RULE, f"{name}-eksClusterInternetEgressRule", _internet_egress(group))
    return group


async def node_security_group(
    scope: Scope,
    name: str,
    *,
    vpc_id: PropertyValue,
    cluster_group_id: PropertyValue,
    cluster: Resource,
    tags: PropertyValue,
) -> NodeSecurity:
    """The nodes' security group and the rules between nodes and control plane."""
    merged = combine(
        lambda common, cluster_name: {
            "Name": f"{name}-nodeSecurityGroup",
            f"kubernetes.io/cluster/{cluster_name}": "owned",
            **(common or {}),
        },
        tags,
        cluster.output("name"),
    )
    inputs = record({"vpcId": vpc_id, "revokeRulesOnDelete": True, "tags": merged})
    group = await scope.aws(_GROUP, f"{name}-nodeSecurityGroup", inputs)

    async def rule(suffix: str, inputs: PropertyValue) -> Resource:
        return await scope.aws(_RULE, f"{name}-{suffix}", inputs)

    *_, cluster_ingress = await asyncio.gather(
        rule("eksNodeIngressRule", _between_nodes(group)),
        rule(
            "eksNodeClusterIngressRule",
            _tcp_ingress(
                group.identity,
                cluster_group_id,
                (1025, 65535),
                "Allow worker Kubelets and pods to receive communication from the cluster control plane",
            ),
        ),
        rule(
            "eksExtApiServerClusterIngressRule",
            _tcp_ingress(
                group.identity,
                cluster_group_id,
                (443, 443),
                "Allow pods running extension API servers on port 443 to receive communication from "
                "cluster control plane",
            ),
        ),
        rule("eksNodeInternetEgressRule", _internet_egress(group)),
        rule(
            "eksClusterIngressRule",
            _tcp_ingress(
                cluster_group_id, group.identity, (443, 443), "Allow pods to communicate with the cluster API Server"
            ),
        ),
    )
    return NodeSecurity(group, cluster_ingress)


def _internet_egress(group: Resource) -> PropertyValue:
    return record(
        {
            "description": "Allow internet access.",
            "type": "egress",
            "fromPort": 0,
            "toPort": 0,
            "protocol": "-1",
            "cidrBlocks": wrap(["0.0.0.0/0"]),
            "securityGroupId": group.identity,
        }
    )


def _between_nodes(group: Resource) -> PropertyValue:
    return record(
        {
            "description": "Allow nodes to communicate with each other",
            "type": "ingress",
            "fromPort": 0,
            "toPort": 0,
            "protocol": "-1",
            "securityGroupId": group.identity,
            "self": True,
        }
    )


def _tcp_ingress(to: PropertyValue, source: PropertyValue, ports: tuple[int, int], description: str) -> PropertyValue:
    return record(
        {
            "description": description,
            "type": "ingress",
            "fromPort": ports[0],
            "toPort": ports[1],
            "protocol": "tcp",
            "securityGroupId": to,
            "sourceSecurityGroupId": source,
        }
    )
