"""What each IAM role of a stack is: who may assume it, and what it may do. Pure.

    roles.of(stack, roles.Names.before(stack, "123456789012", "aws"))["trainer"].trust

The components of `infra` make these roles, with the names that AWS and Pulumi have drawn by then. Before the stack is
made, a pattern takes the place of such a name: who makes the roles for `roleArns` has no other.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import settings
from infra.policies import documents, karpenter
from infra.policies.documents import Document

NODE_POLICIES = ("AmazonEKSWorkerNodePolicy", "AmazonEKS_CNI_Policy", "AmazonEC2ContainerRegistryPullOnly")
"""https://docs.aws.amazon.com/eks/latest/userguide/create-node-role.html"""

EFS_CSI_POLICY = "service-role/AmazonEFSCSIDriverPolicy"
"""https://docs.aws.amazon.com/eks/latest/userguide/efs-csi.html"""

CLUSTER_POLICY = "AmazonEKSClusterPolicy"
"""Of the control plane's role. pulumi-eks makes it: https://github.com/pulumi/pulumi-eks (nodejs/eks/servicerole.ts)"""

CSI_NAMESPACE = "kube-system"
EFS_CSI_SERVICE_ACCOUNT = "efs-csi-controller-sa"
S3_CSI_SERVICE_ACCOUNT = "s3-csi-driver-sa"
"""https://github.com/awslabs/mountpoint-s3-csi-driver/blob/main/docs/CONFIGURATION.md (credentials of the driver)"""

TRAINER_SERVICE_ACCOUNT = "trainer"

KARPENTER_NAMESPACE = "kube-system"
"""Where Karpenter's documentation installs it: the API server serves this namespace's requests before others'."""

KARPENTER_SERVICE_ACCOUNT = "karpenter"
"""The service account of the chart's controller."""

CHECKPOINTS = "checkpoints"
MOUNT = "mount"
"""The policy with which nodes mount the file system, written once there is one."""


@dataclass(frozen=True)
class Role:
    """Who has a role, who may assume it, and its policies: AWS's by name, others by ARN, and its own."""

    who: str
    trust: Document
    of_aws: tuple[str, ...] = ()
    attached: tuple[str, ...] = ()
    own: Mapping[str, Document] = field(default_factory=dict)


@dataclass(frozen=True)
class Names:
    """Where the stack is, and the ARNs of what its roles may use."""

    scope: karpenter.Scope
    bucket: str
    key: str
    key_alias: str
    """The alias that tells the stack's key from others, while `key` is a pattern for all of them; else empty."""
    file_system: str
    access_point: str
    queue: str
    log_group: str
    surge_node: str
    """Of the role of Karpenter's nodes."""

    @classmethod
    def before(cls, stack: settings.Settings, account: str, partition: str) -> Names:
        """Return the names before the stack is made, as patterns where they are not known yet."""
        scope = karpenter.Scope(partition, stack.region, account, stack.cluster_name)
        return cls(
            scope,
            bucket=f"arn:{partition}:s3:::{stack.name}-*",
            key=stack.data_key or scope.arn("kms", "key/*"),
            key_alias="" if stack.data_key else f"alias/{stack.name}",
            file_system=scope.arn("elasticfilesystem", f"file-system/{stack.file_system or '*'}"),
            access_point=scope.arn("elasticfilesystem", "access-point/*"),
            queue=scope.arn("sqs", stack.name),
            log_group=scope.arn("logs", f"log-group:{flow_log_group_name(stack.name)}"),
            surge_node=arn(stack, "surge-node", account, partition),
        )


def arn(stack: settings.Settings, name: str, account: str, partition: str) -> str:
    """Return the ARN in `roleArns`, or else that of a role that is made for it, under the stack's name."""
    made = f"arn:{partition}:iam::{account}:role{stack.roles.path}{stack.name}-{name}"
    return stack.roles.arns.get(name, made)


def flow_log_group_name(name: str) -> str:
    """Return the name of the log group for the flow logs of the VPC."""
    return f"/aws/vpc/{name}"


def checkpoints_folder(job: str) -> str:
    """Return the folder of the bucket that holds a job's checkpoints."""
    return f"{CHECKPOINTS}/{job}"


def team_folder(team: str) -> str:
    """Return the folder of the bucket that a team's pods read and write."""
    return f"teams/{team}"


def of(stack: settings.Settings, names: Names) -> dict[str, Role]:
    """Return the roles that the stack uses, by their names in `roleArns`."""
    at, training = names.scope, stack.training

    def pods(namespace: str, service_account: str) -> Document:
        return documents.pod_identity_trust(at.cluster_arn, namespace, service_account)

    def service(name: str) -> Document:
        return documents.service_trust(f"{name}.amazonaws.com", "sts:AssumeRole")

    nodes = Role("the nodes", service("ec2"), NODE_POLICIES, own=_of_nodes(stack, names))
    found = {
        "cluster": Role("the control plane", service("eks"), (CLUSTER_POLICY,)),
        "node": nodes,
        "efs-csi": Role("the EFS CSI driver", pods(CSI_NAMESPACE, EFS_CSI_SERVICE_ACCOUNT), (EFS_CSI_POLICY,)),
        "trainer": Role(
            "the training pods",
            pods(training.namespace, TRAINER_SERVICE_ACCOUNT),
            attached=training.policy_arns,
            own={"trainer": _of_trainer(stack, names)},
        ),
        "s3-csi": Role(
            "Mountpoint for S3",
            pods(CSI_NAMESPACE, S3_CSI_SERVICE_ACCOUNT),
            own={"s3-csi": _of_mountpoint(training.dataset, at.partition)},
        ),
        "flow-logs": Role(
            "the flow logs", service("vpc-flow-logs"), own={"flow-logs": documents.flow_logs(names.log_group)}
        ),
        "surge-node": nodes,
        "karpenter": Role(
            "Karpenter",
            pods(KARPENTER_NAMESPACE, KARPENTER_SERVICE_ACCOUNT),
            own={"karpenter": _of_karpenter(stack, names)},
        ),
    }
    for team in stack.teams:
        policy = documents.team(names.bucket, names.key, team_folder(team.name), names.key_alias)
        found[team.role] = Role("the pods of teams", pods(team.name, TRAINER_SERVICE_ACCOUNT), own={"team": policy})
    return {name: found[name] for name in stack.role_names}


def _of_nodes(stack: settings.Settings, names: Names) -> dict[str, Document]:
    images = documents.image_cache(names.scope.arn("ecr", f"repository/{stack.name}/*"))
    mount = documents.mount(names.file_system, [names.access_point])
    return ({"images": images} if stack.image_cache else {}) | ({MOUNT: mount} if stack.file_iam else {})


def _of_trainer(stack: settings.Settings, names: Names) -> Document:
    training, data = stack.training, stack.training.dataset
    return documents.trainer(
        names.bucket,
        names.key,
        key_alias=names.key_alias,
        checkpoints=checkpoints_folder(training.job) if training.checkpoints.s3 else None,
        dataset=documents.dataset_object_arn(None if data.mounted else data.uri, names.scope.partition),
        dataset_key=data.key_arn,
    )


def _of_mountpoint(dataset: settings.Dataset, partition: str) -> Document:
    bucket, prefix = dataset.folder
    return documents.mounted_folder(partition, bucket, prefix, dataset.key_arn)


def _of_karpenter(stack: settings.Settings, names: Names) -> Document:
    together, key = stack.machines.placement_group, stack.node_disk_key
    uses = karpenter.Uses.of(stack.brought, names.queue, names.surge_node, placement_group=together, disk_key=key)
    return karpenter.controller(names.scope, uses)
