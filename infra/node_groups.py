"""Managed node groups: one for the system's pods, one for the workers or for their core.

    group = system_group(stack, account, network, identity, failed_groups(stack, account))
    NodeGroup(f"{name}-system", group, account.options(network, identity, cluster))

They are `aws.eks.NodeGroup`s with a launch template of our own: `pulumi_eks.ManagedNodeGroup` has neither
`update_config` nor `node_repair_config`, and it sets the metadata service's hop limit to 2, which lets pods read the
node's credentials.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import pulumi
import pulumi_aws as aws

import settings
from infra.account import Account
from infra.cluster import Cluster
from infra.identity import Identity
from infra.network import Network
from tidewater.contract import labels

ROOT_DEVICE = "/dev/xvda"
"""The root device of the AL2023 images."""


SYSTEM_DISK = settings.Disk(gib=60)
"""The dataset job runs on these nodes in the trainer's image, which takes about 20 GiB with CUDA."""

UPDATE_MINUTES = 120
"""How long Pulumi waits until EKS has replaced the nodes of a group."""

NODE_MINUTES = 15
"""How long EKS drains a node that it replaces, at most: few take more than a minute, and a new one starts in five.
https://docs.aws.amazon.com/eks/latest/userguide/managed-node-update-behavior.html"""

MOST_UNAVAILABLE = 100
"""EKS's limit. https://docs.aws.amazon.com/eks/latest/APIReference/API_NodegroupUpdateConfig.html"""
PARAMETER = "aws:ssm/getParameter:getParameter"
CREATE_FAILED = "CREATE_FAILED"

AMI_TYPES = {"standard": "AL2023_x86_64_STANDARD", "nvidia": "AL2023_x86_64_NVIDIA"}
"""EKS' image types for node groups, by the variant of the image."""


@dataclass(frozen=True)
class NodeGroupArgs:
    """One group. Only pods that tolerate `taint` run on its nodes."""

    cluster_name: str
    role_arn: pulumi.Input[str]
    subnet_ids: pulumi.Input[Sequence[pulumi.Input[str]]]
    kubernetes_version: str
    image: NodeImage
    nodes: settings.Nodes
    disk: settings.Disk
    disk_key: str
    interfaces: Sequence[aws.ec2.LaunchTemplateNetworkInterfaceArgs]
    """None for the one that every instance has."""
    instance_store: bool
    environment: Mapping[str, str]
    """Variables of all services of a node."""
    placement_group: pulumi.Input[str] | None
    update_strategy: str
    labels: Mapping[str, str]
    taint: str | None
    tags: Mapping[str, str]
    failed: Collection[str]
    """Names of the stack's groups that EKS could not make."""


def failed_groups(stack: settings.Settings, account: Account) -> list[str]:
    """Return the names of the stack's groups that EKS could not make, for want of capacity for example.

    A warning says how to have one made again that Pulumi takes for made: a refresh forgets the error.
    """

    def options() -> pulumi.InvokeOptions:  # of its own for each call: the SDK changes them
        return pulumi.InvokeOptions(provider=account.provider)

    try:
        cluster = stack.cluster_name
        names = aws.eks.get_node_groups(cluster_name=cluster, opts=options()).names
        own = [name for name in names if name.startswith(f"{stack.name}-")]
        groups = [aws.eks.get_node_group(cluster, name, opts=options()) for name in own]
    except Exception:  # there is no cluster yet, or the right is missing; the SDK has no other type for it
        return []
    ours = [each for each in groups if stack.own_tags.items() <= (each.tags or {}).items()]
    failed = [each.node_group_name for each in ours if each.status == CREATE_FAILED]
    for name in failed:
        pulumi.log.warn(
            f"EKS could not make the node group {name}, so it is deleted and made again; if the plan doesn't say that, "
            f"run pulumi up --replace '**::aws:eks/nodeGroup:NodeGroup::{name.rpartition('-')[0]}'"
        )
    return failed


def system_group(
    stack: settings.Settings, account: Account, network: Network, identity: Identity, failed: Collection[str]
) -> NodeGroupArgs:
    """Return the group of the nodes for etcd, the ElasticJob controller, the dataset job and the addons."""
    return NodeGroupArgs(
        cluster_name=stack.cluster_name,
        role_arn=identity.node_role.arn,
        subnet_ids=network.first_subnet_ids,
        kubernetes_version=stack.cluster.version,
        image=image_of(stack, stack.system, account),
        nodes=stack.system,
        disk=SYSTEM_DISK,
        disk_key=stack.node_disk_key,
        interfaces=(),
        instance_store=False,
        environment=stack.training.proxy_variables,
        placement_group=None,
        update_strategy="DEFAULT",
        labels={labels.NODE_ROLE: labels.NODE_ROLE_SYSTEM},
        taint=None,
        tags=stack.all_tags,
        failed=failed,
    )


def worker_group(
    stack: settings.Settings,
    account: Account,
    network: Network,
    identity: Identity,
    cluster: Cluster,
    failed: Collection[str],
) -> NodeGroupArgs:
    """Return the group of the workers' nodes: all of them, or the core if Karpenter brings the others.

    Only a core is labelled as one. Where there are no other nodes, workers have nothing to prefer, and a group that
    exists stays as it is.
    """
    core = {labels.NODES: labels.NODES_CORE} if stack.surge else {}
    return NodeGroupArgs(
        cluster_name=stack.cluster_name,
        role_arn=identity.node_role.arn,
        subnet_ids=network.worker_subnet_ids,
        kubernetes_version=stack.cluster.version,
        image=image_of(stack, stack.workers.nodes, account),
        nodes=stack.workers.nodes,
        disk=stack.machines.disk,
        disk_key=stack.node_disk_key,
        interfaces=interfaces(stack.efa_cards, cluster.security_group_id),
        instance_store=stack.machines.instance_store,
        environment=stack.training.proxy_variables,
        placement_group=network.placement_group,
        update_strategy=stack.machines.update_strategy,
        labels={labels.NODE_ROLE: labels.NODE_ROLE_WORKER, **core},
        taint=labels.TAINT_WORKER,
        tags=stack.all_tags,
        failed=failed,
    )


def most_unavailable(nodes: int) -> int:
    """Return how many nodes EKS may replace at a time: so many that a group of any size is done in time."""
    rounds = UPDATE_MINUTES // NODE_MINUTES
    return min(MOST_UNAVAILABLE, max(1, -(-nodes // rounds)))


def interfaces(
    efa_cards: Sequence[int], security_group_id: pulumi.Input[str]
) -> list[aws.ec2.LaunchTemplateNetworkInterfaceArgs]:
    """Return a node's network interfaces if it has EFAs: an ordinary one for pods, and one EFA on each of `efa_cards`.

    The EFAs take no address. On card 0 the ordinary one is device 0, so an EFA there is device 1. All are in the
    cluster's security group: EKS does not add it to interfaces that a template lists, and it has the rules that EFA
    needs, all traffic from and to itself.
    https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/efa-acc-inst-types.html
    https://docs.aws.amazon.com/eks/latest/userguide/sec-group-reqs.html
    """
    if not efa_cards:
        return []
    places = [(0, 0, "interface"), *((card, int(card == 0), "efa-only") for card in efa_cards)]
    return [
        aws.ec2.LaunchTemplateNetworkInterfaceArgs(
            network_card_index=card,
            device_index=device,
            interface_type=kind,
            security_groups=[security_group_id],
            delete_on_termination="true",
        )
        for card, device, kind in places
    ]


def user_data(environment: Mapping[str, str], *, instance_store: bool) -> str | None:
    """Return what nodeadm merges into EKS's or Karpenter's configuration of a node; None for nothing.

    Args:
        environment: variables of nodeadm and of all services, containerd and kubelet among them.
            https://github.com/awslabs/amazon-eks-ami (nodeadm/internal/system/environment.go)
        instance_store: whether local disks become one RAID 0, where containerd and kubelet then keep their state:
            images, logs, and what pods write outside of volumes.
            https://awslabs.github.io/amazon-eks-ami/nodeadm/doc/examples/#enabling-instance-store
    """
    storage = {"localStorage": {"strategy": "RAID0"}} if instance_store else {}
    instance = {**storage, **({"environment": {"default": environment}} if environment else {})}
    if not instance:
        return None
    config = {"apiVersion": "node.eks.aws/v1alpha1", "kind": "NodeConfig", "spec": {"instance": instance}}
    lines = (
        "MIME-Version: 1.0",
        'Content-Type: multipart/mixed; boundary="BOUNDARY"',  # EKS accepts MIME multipart only
        "",
        "--BOUNDARY",
        "Content-Type: application/node.eks.aws",
        "",
        json.dumps(config),
        "",
        "--BOUNDARY--",
        "",
    )
    return "\n".join(lines)


class NodeGroup(pulumi.ComponentResource):
    """A launch template and the node group that uses it.

    A group that EKS could not make accepts no update, so any difference replaces it, as does the error that Pulumi has
    recorded, which "*" matches too. It is deleted first: it still asks EC2 for the instances that the next one needs.
    https://github.com/aws/containers-roadmap/issues/764
    https://github.com/pulumi/pulumi (applyReplaceOnChanges in pkg/resource/deploy/step_generator.go)
    """

    def __init__(self, name: str, args: NodeGroupArgs, opts: pulumi.ResourceOptions) -> None:
        super().__init__("tidewater:infra:NodeGroup", name, None, opts)
        template = self._launch_template(name, args)
        again = any(each.startswith(f"{name}-") for each in args.failed)
        aws.eks.NodeGroup(
            name,  # Pulumi adds random digits to the group's own name, so a replacement can be made before it goes
            cluster_name=args.cluster_name,
            node_role_arn=args.role_arn,
            subnet_ids=args.subnet_ids,
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
            update_config={
                "max_unavailable": most_unavailable(args.nodes.maximum),
                "update_strategy": args.update_strategy,
            },
            node_repair_config={"enabled": True},
            labels=dict(args.labels),
            taints=[{"key": args.taint, "value": "true", "effect": "NO_SCHEDULE"}] if args.taint else None,
            launch_template={"id": template.id, "version": template.latest_version.apply(str)},
            tags={**args.tags, "Name": name},
            # Spot capacity may take a while to come, and EKS drains a node for up to 15 minutes.
            opts=pulumi.ResourceOptions(
                parent=self,
                custom_timeouts=pulumi.CustomTimeouts(create="30m", update=f"{UPDATE_MINUTES}m", delete="30m"),
                replace_on_changes=["*"] if again else None,
                delete_before_replace=True if again else None,
            ),
        )
        self.register_outputs({})

    def _launch_template(self, name: str, args: NodeGroupArgs) -> aws.ec2.LaunchTemplate:
        tags = {**args.tags, "Name": name}
        data = user_data(args.environment, instance_store=args.instance_store)
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
                        "volume_size": args.disk.gib,
                        "volume_type": "gp3",
                        "iops": args.disk.iops,
                        "throughput": args.disk.throughput,
                        "encrypted": "true",
                        **({"kms_key_id": args.disk_key} if args.disk_key else {}),
                        "delete_on_termination": "true",
                    },
                }
            ],
            placement={"group_name": args.placement_group} if args.placement_group is not None else None,
            user_data=base64.b64encode(data.encode()).decode() if data else None,
            network_interfaces=list(args.interfaces) or None,
            monitoring={"enabled": True},
            update_default_version=True,
            # The provider's default tags apply to the template, but not to what is launched from it.
            tag_specifications=[{"resource_type": kind, "tags": tags} for kind in ("instance", "volume")],
            tags=tags,
            # Tags that are edited later would make a new version of the template, with which EKS replaces every node:
            # https://github.com/terraform-aws-modules/terraform-aws-eks/issues/2514
            opts=pulumi.ResourceOptions(parent=self, ignore_changes=["tagSpecifications"]),
        )


@dataclass(frozen=True)
class NodeImage:
    """EKS' image type, and the release of it."""

    ami_type: str
    release_version: pulumi.Input[str]


def image_of(stack: settings.Settings, nodes: settings.Nodes, account: Account) -> NodeImage:
    """Return the image of a node group. The preview fails if EKS has no such release.

    Without a release, EKS takes the newest at the time: two node groups of one stack could then differ, and a group
    would stay at its release until the next version of Kubernetes.
    """
    kind = variant(nodes)
    return NodeImage(AMI_TYPES[kind], pulumi.Output.from_input(_release(stack, kind, account)))


async def _release(stack: settings.Settings, kind: str, account: Account) -> str:
    """Ask for EKS' name of the release.

    Not by the data source's `_output` form: all of its result would be a secret for Pulumi, since `value` is one.

    Raises:
        pulumi.RunError: there is no such release, or AWS refused the question.
    """
    version, release = stack.cluster.version, stack.node_image
    question, options = {"name": parameter(version, kind, release)}, pulumi.InvokeOptions(provider=account.provider)
    try:
        found = await pulumi.runtime.invoke_async(PARAMETER, question, options, aws.ssm.GetParameterResult)
    except Exception as error:  # the SDK has no other type for it
        raise pulumi.RunError(
            f"nodeImageVersion = {release}: EKS' {kind} image for Kubernetes {version} was not found in this release; "
            f"choose one of https://github.com/awslabs/amazon-eks-ami/releases that has it. AWS's answer: {error}"
        ) from error
    return str(found.insecure_value)


def variant(nodes: settings.Nodes) -> str:
    """Return the variant that these nodes need: the one with NVIDIA's driver if they have GPUs."""
    return "nvidia" if nodes.smallest.gpus else "standard"


def parameter(kubernetes_version: str, variant: str, release: str) -> str:
    """Return the name of the public parameter with EKS' name for a release: the version of kubelet, and the day.

    There is one for each image that EKS has published, by the image's name. Karpenter finds the image by the same path.
    https://docs.aws.amazon.com/eks/latest/userguide/retrieve-ami-id.html
    https://github.com/awslabs/amazon-eks-ami/issues/1843
    """
    image = f"amazon-eks-node-al2023-x86_64-{variant}-{kubernetes_version}-{release}"
    folder = f"/aws/service/eks/optimized-ami/{kubernetes_version}/amazon-linux-2023/x86_64/{variant}"
    return f"{folder}/{image}/release_version"
