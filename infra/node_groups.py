"""Managed node groups: one for the system's pods, one for the workers.

    nodes = workers(stack, base, after=[job])

Made with `aws.eks.NodeGroup` and a launch template of our own: `pulumi_eks.ManagedNodeGroup` offers neither
`update_config` nor `node_repair_config`, and sets the metadata service's hop limit to 2, which lets pods reach
the node's credentials.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pulumi
import pulumi_aws as aws

import settings
from contract import labels
from infra.account import Account
from infra.cluster import Cluster
from infra.identity import Identity
from infra.network import Network

GPU_AMI = "AL2023_x86_64_NVIDIA"
CPU_AMI = "AL2023_x86_64_STANDARD"
ROOT_DEVICE = "/dev/xvda"
"""The root device of the AL2023 images."""


SYSTEM_DISK_GIB = 60
"""The dataset job runs there, from the trainer's image, which takes some 20 GiB with CUDA."""

WORKER_DISK_GIB = 100
"""The trainer's image, and scratch space."""


@dataclass(frozen=True)
class Base:
    """What every node group stands on."""

    account: Account
    network: Network
    identity: Identity
    cluster: Cluster


@dataclass(frozen=True)
class NodeGroupArgs:
    """One group. `taint` keeps every pod away that doesn't tolerate it."""

    cluster_name: str
    role_arn: pulumi.Input[str]
    subnet_ids: Sequence[pulumi.Input[str]]
    kubernetes_version: str
    nodes: settings.Nodes
    disk_gib: int
    labels: Mapping[str, str]
    taint: str | None
    tags: Mapping[str, str]


def system(stack: settings.Settings, base: Base) -> NodeGroup:
    """The nodes of etcd, the dataset job and the addons."""
    return _group(stack, base, "system", after=[])


def workers(stack: settings.Settings, base: Base, *, after: Sequence[pulumi.Resource]) -> NodeGroup:
    """The workers' nodes. Made after the job, so that a resize down shrinks the job first, then its nodes."""
    return _group(stack, base, "workers", after=after)


def _group(stack: settings.Settings, base: Base, role: str, *, after: Sequence[pulumi.Resource]) -> NodeGroup:
    is_system = role == "system"
    args = NodeGroupArgs(
        cluster_name=stack.name,
        role_arn=base.identity.node_role_arn,
        subnet_ids=base.network.private_subnet_ids,
        kubernetes_version=stack.cluster.version,
        nodes=stack.system if is_system else stack.workers.nodes,
        disk_gib=SYSTEM_DISK_GIB if is_system else WORKER_DISK_GIB,
        labels={labels.NODE_ROLE: labels.NODE_ROLE_SYSTEM if is_system else labels.NODE_ROLE_WORKER},
        taint=None if is_system else labels.TAINT_WORKER,
        tags=stack.all_tags,
    )
    # What a node needs must stay until it is gone, or its network interfaces keep the VPC from being deleted.
    options = pulumi.ResourceOptions(depends_on=[*base.cluster.ready, *base.identity.ready, *after])
    return NodeGroup(f"{stack.name}-{role}", args, opts=pulumi.ResourceOptions.merge(base.account.options, options))


class NodeGroup(pulumi.ComponentResource):
    """A launch template and the node group that uses it."""

    def __init__(self, name: str, args: NodeGroupArgs, *, opts: pulumi.ResourceOptions) -> None:
        super().__init__("tidewater:infra:NodeGroup", name, None, opts)
        template = self._launch_template(name, args)
        self.nodes = aws.eks.NodeGroup(
            name,  # the group's own name gets random digits after it, so that a replacement can stand beside it
            cluster_name=args.cluster_name,
            node_role_arn=args.role_arn,
            subnet_ids=list(args.subnet_ids),
            version=args.kubernetes_version,
            ami_type=GPU_AMI if args.nodes.smallest.gpus else CPU_AMI,
            capacity_type=args.nodes.capacity_type,
            instance_types=list(args.nodes.instance_types),
            scaling_config={
                "desired_size": args.nodes.desired,
                "min_size": args.nodes.minimum,
                "max_size": args.nodes.maximum,
            },
            update_config={"max_unavailable": 1},
            node_repair_config={"enabled": True},
            labels=dict(args.labels),
            taints=[{"key": args.taint, "value": "true", "effect": "NO_SCHEDULE"}] if args.taint else None,
            launch_template={"id": template.id, "version": template.latest_version.apply(str)},
            tags={**args.tags, "Name": name},
            # Workers may wait for a Spot node, and EKS drains a node for up to 15 minutes.
            opts=pulumi.ResourceOptions(
                parent=self, custom_timeouts=pulumi.CustomTimeouts(create="30m", update="60m", delete="30m")
            ),
        )
        self.register_outputs({})

    def _launch_template(self, name: str, args: NodeGroupArgs) -> aws.ec2.LaunchTemplate:
        tags = {**args.tags, "Name": name}
        return aws.ec2.LaunchTemplate(
            name,
            description=f"Nodes of {name}",
            metadata_options={
                "http_endpoint": "enabled",
                "http_tokens": "required",
                "http_put_response_hop_limit": 1,  # pods are a hop away: the node's credentials stay on the node
            },
            block_device_mappings=[
                {
                    "device_name": ROOT_DEVICE,
                    "ebs": {
                        "volume_size": args.disk_gib,
                        "volume_type": "gp3",
                        "encrypted": "true",
                        "delete_on_termination": "true",
                    },
                }
            ],
            monitoring={"enabled": True},
            update_default_version=True,
            # The provider's default tags reach the template, not what is launched from it.
            tag_specifications=[{"resource_type": kind, "tags": tags} for kind in ("instance", "volume")],
            tags=tags,
            opts=pulumi.ResourceOptions(parent=self),
        )
