"""Managed node groups: one for the system's pods, one for the workers or for their core.

    group = system_group(stack, account, network, identity)
    NodeGroup(f"{name}-system", group, account.options(network, identity, cluster))

They are `aws.eks.NodeGroup`s with a launch template of our own: `pulumi_eks.ManagedNodeGroup` has neither
`update_config` nor `node_repair_config`, and it sets the metadata service's hop limit to 2, which lets pods read the
node's credentials.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pulumi
import pulumi_aws as aws

import settings
from contract import labels
from infra.account import Account
from infra.identity import Identity
from infra.network import Network
from infra.node_images import NodeImage, image_of

ROOT_DEVICE = "/dev/xvda"
"""The root device of the AL2023 images."""


SYSTEM_DISK_GIB = 60
"""The dataset job runs on these nodes in the trainer's image, which takes about 20 GiB with CUDA."""

WORKER_DISK_GIB = 100
"""The trainer's image, and scratch space."""


@dataclass(frozen=True)
class NodeGroupArgs:
    """One group. Only pods that tolerate `taint` run on its nodes."""

    cluster_name: str
    role_arn: pulumi.Input[str]
    subnet_ids: Sequence[pulumi.Input[str]]
    kubernetes_version: str
    image: NodeImage
    nodes: settings.Nodes
    disk_gib: int
    labels: Mapping[str, str]
    taint: str | None
    tags: Mapping[str, str]


def system_group(stack: settings.Settings, account: Account, network: Network, identity: Identity) -> NodeGroupArgs:
    """Return the group of the nodes for etcd, the ElasticJob controller, the dataset job and the addons."""
    return NodeGroupArgs(
        cluster_name=stack.name,
        role_arn=identity.node_role_arn,
        subnet_ids=network.private_subnet_ids,
        kubernetes_version=stack.cluster.version,
        image=image_of(stack, stack.system, account),
        nodes=stack.system,
        disk_gib=SYSTEM_DISK_GIB,
        labels={labels.NODE_ROLE: labels.NODE_ROLE_SYSTEM},
        taint=None,
        tags=stack.all_tags,
    )


def worker_group(stack: settings.Settings, account: Account, network: Network, identity: Identity) -> NodeGroupArgs:
    """Return the group of the workers' nodes: all of them, or the core if Karpenter brings the others.

    Only a core is labelled as one. Where there are no other nodes, workers have nothing to prefer, and a group that
    exists stays as it is.
    """
    core = {labels.NODES: labels.NODES_CORE} if stack.surge else {}
    return NodeGroupArgs(
        cluster_name=stack.name,
        role_arn=identity.node_role_arn,
        subnet_ids=network.private_subnet_ids,
        kubernetes_version=stack.cluster.version,
        image=image_of(stack, stack.workers.nodes, account),
        nodes=stack.workers.nodes,
        disk_gib=WORKER_DISK_GIB,
        labels={labels.NODE_ROLE: labels.NODE_ROLE_WORKER, **core},
        taint=labels.TAINT_WORKER,
        tags=stack.all_tags,
    )


class NodeGroup(pulumi.ComponentResource):
    """A launch template and the node group that uses it."""

    def __init__(self, name: str, args: NodeGroupArgs, opts: pulumi.ResourceOptions) -> None:
        super().__init__("tidewater:infra:NodeGroup", name, None, opts)
        template = self._launch_template(name, args)
        aws.eks.NodeGroup(
            name,  # Pulumi adds random digits to the group's own name, so a replacement can be made before it goes
            cluster_name=args.cluster_name,
            node_role_arn=args.role_arn,
            subnet_ids=list(args.subnet_ids),
            version=args.kubernetes_version,
            ami_type=args.image.ami_type,
            release_version=args.image.release_version,
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
            # Spot capacity may take a while to come, and EKS drains a node for up to 15 minutes.
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
                "http_put_response_hop_limit": 1,  # pods are one hop further away, so they can't read the credentials
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
            # The provider's default tags apply to the template, but not to what is launched from it.
            tag_specifications=[{"resource_type": kind, "tags": tags} for kind in ("instance", "volume")],
            tags=tags,
            opts=pulumi.ResourceOptions(parent=self),
        )
