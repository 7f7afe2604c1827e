"""IAM roles of the nodes, the EFS CSI driver, the training pods and those of teams. (pulumi-eks makes the control
plane's own.)

The nodes' role holds only what a node needs to join. Pods get their permissions through EKS Pod Identity.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pulumi
import pulumi_aws as aws

import settings
from infra import policies
from infra.account import Account
from infra.bucket import checkpoints_folder

NODE_POLICIES = ("AmazonEKSWorkerNodePolicy", "AmazonEKS_CNI_Policy", "AmazonEC2ContainerRegistryPullOnly")
"""https://docs.aws.amazon.com/eks/latest/userguide/create-node-role.html"""

EFS_CSI_POLICY = "service-role/AmazonEFSCSIDriverPolicy"
"""https://docs.aws.amazon.com/eks/latest/userguide/efs-csi.html"""

CSI_NAMESPACE = "kube-system"
EFS_CSI_SERVICE_ACCOUNT = "efs-csi-controller-sa"
S3_CSI_SERVICE_ACCOUNT = "s3-csi-driver-sa"
"""https://github.com/awslabs/mountpoint-s3-csi-driver/blob/main/docs/CONFIGURATION.md (credentials of the driver)"""

TRAINER_SERVICE_ACCOUNT = "trainer"

AUTO_SCALING_ROLE = "AWSServiceRoleForAutoScaling"
AUTO_SCALING_PATH = "aws-service-role/autoscaling.amazonaws.com"
DISK_OPERATIONS = (
    *("CreateGrant", "Decrypt", "DescribeKey", "Encrypt", "GenerateDataKey", "GenerateDataKeyWithoutPlaintext"),
    *("ReEncryptFrom", "ReEncryptTo"),
)
"""What EC2 Auto Scaling needs of a customer's key to start the instances of a node group.
https://docs.aws.amazon.com/autoscaling/ec2/userguide/key-policy-requirements-EBS-encryption.html"""


def cluster_arn(name: str, *, region: str, account: str, partition: str) -> str:
    """Return the ARN of the cluster of this name."""
    return f"arn:{partition}:eks:{region}:{account}:cluster/{name}"


@dataclass(frozen=True)
class IdentityArgs:
    """The account; what the training pods may use (the job's settings, the bucket and its KMS key); and the nodes:
    whether they pull through ECR, and the ARN of the customer's key of their disks, if there is one."""

    account: Account
    training: settings.Training
    bucket_arn: pulumi.Input[str]
    key_arn: pulumi.Input[str]
    image_cache: bool = False
    disk_key: str = ""
    cluster: settings.ExistingCluster | None = None
    """None if the stack makes one, with the name of the stack."""


class Identity(pulumi.ComponentResource):
    """The roles with their policies.

    Nodes depend on the whole component, so no node or pod runs without a policy that it needs.
    """

    node_role_arn: pulumi.Output[str]
    node_role_name: pulumi.Output[str]
    efs_csi_role_arn: pulumi.Output[str] | None
    """None on a cluster that was there before: its addons have roles of its owner's."""
    trainer_role_arn: pulumi.Output[str]
    s3_csi_role_arn: pulumi.Output[str] | None
    """None if no dataset is mounted."""

    def __init__(self, name: str, args: IdentityArgs, opts: pulumi.ResourceOptions) -> None:
        super().__init__("tidewater:infra:Identity", name, None, opts)
        self._name = name
        self._account = args.account
        self._cluster = args.cluster.name if args.cluster else name
        self._child = pulumi.ResourceOptions(parent=self)
        nodes = NodeRoleArgs(name, f"The nodes of the cluster of {name}", args.account, args.image_cache)
        node = make_node_role(f"{name}-node", nodes, self._child)
        self.node_role_arn, self.node_role_name = node.arn, node.name
        self.efs_csi_role_arn = None if args.cluster else self._efs_csi_role()
        pods = self._pods_trust(args.training.namespace, TRAINER_SERVICE_ACCOUNT)
        trainer = self._role("trainer", "The training pods", pods, ())
        for arn in args.training.policy_arns:
            account, _, path = arn.split(":", 4)[4].partition(":policy/")
            entry = f"{name}-trainer-{account}-{path.replace('/', '-')}"
            aws.iam.RolePolicyAttachment(entry, role=trainer.name, policy_arn=arn, opts=self._child)
        self.trainer_role_arn = trainer.arn
        write_policy(name, "trainer", trainer.name, _trainer_policy(args), self._child)
        self.s3_csi_role_arn = self._s3_csi_role(args.training.dataset) if args.training.dataset.mounted else None
        if args.disk_key:
            self._let_node_groups_use(args.disk_key)
        self.register_outputs({"trainerRoleArn": trainer.arn})

    def _efs_csi_role(self) -> pulumi.Output[str]:
        trust = self._pods_trust(CSI_NAMESPACE, EFS_CSI_SERVICE_ACCOUNT)
        return self._role("efs-csi", "The EFS CSI driver's controller", trust, (EFS_CSI_POLICY,)).arn

    def _let_node_groups_use(self, key_arn: str) -> None:
        """Grant the key of the nodes' disks to EC2 Auto Scaling: its role has policies of AWS's only."""
        account = self._account
        role = pulumi.Output.concat(
            "arn:", account.partition, ":iam::", account.id, f":role/{AUTO_SCALING_PATH}/{AUTO_SCALING_ROLE}"
        )
        aws.kms.Grant(
            f"{self._name}-node-disks",
            key_id=key_arn,
            grantee_principal=role,
            operations=list(DISK_OPERATIONS),
            opts=self._child,
        )

    def _s3_csi_role(self, dataset: settings.Dataset) -> pulumi.Output[str]:
        """Make the role with which Mountpoint for S3 reads the dataset for all workers."""
        bucket, prefix = dataset.folder
        trust = self._pods_trust(CSI_NAMESPACE, S3_CSI_SERVICE_ACCOUNT)
        role = self._role("s3-csi", "Mountpoint for S3", trust, ())
        policy = self._account.partition.apply(
            lambda partition: policies.to_json(policies.mounted_folder(partition, bucket, prefix, dataset.key_arn))
        )
        write_policy(self._name, "s3-csi", role.name, policy, self._child)
        return role.arn

    def _pods_trust(self, namespace: str, service_account: str) -> pulumi.Output[str]:
        return pods_trust(self._cluster, self._account, namespace, service_account)

    def _role(self, label: str, description: str, trust: pulumi.Input[str], managed: tuple[str, ...]) -> aws.iam.Role:
        name = f"{self._name}-{label}"
        return make_role(name, f"{description} of {self._name}", trust, managed, self._account, self._child)


def pods_trust(cluster: str, account: Account, namespace: str, service_account: str) -> pulumi.Output[str]:
    """Return the trust policy, as JSON, of a role for the pods of one service account."""

    def document(found: list[str]) -> str:
        arn = cluster_arn(cluster, region=account.region, account=found[0], partition=found[1])
        return policies.to_json(policies.pod_identity_trust(arn, namespace, service_account))

    return pulumi.Output.all(account.id, account.partition).apply(document)


def make_role(
    name: str,
    description: str,
    trust: pulumi.Input[str],
    managed: tuple[str, ...],
    account: Account,
    opts: pulumi.ResourceOptions,
) -> aws.iam.Role:
    """Make a role with this trust policy and these policies of AWS's."""
    role = aws.iam.Role(
        name,
        description=description,
        assume_role_policy=trust,
        path=account.roles.path,
        permissions_boundary=account.roles.boundary or None,
        tags={"Name": name},
        opts=opts,
    )
    for policy in managed:
        aws.iam.RolePolicyAttachment(
            f"{name}-{policy.split('/')[-1]}",
            role=role.name,
            policy_arn=pulumi.Output.concat("arn:", account.partition, ":iam::aws:policy/", policy),
            opts=opts,
        )
    return role


def write_policy(
    prefix: str,
    label: str,
    role_name: pulumi.Input[str],
    policy: pulumi.Input[str],
    opts: pulumi.ResourceOptions,
) -> None:
    """Write a policy, as JSON, into a role. IAM knows it as `label`, Pulumi as `prefix-label`.

    IAM writes over a policy of the same name. With an automatic name, a policy that was made without an answer would
    stay in addition to the next one, unknown to Pulumi, and IAM refuses to delete a role that has a policy.
    https://docs.aws.amazon.com/IAM/latest/APIReference/API_DeleteRole.html
    """
    aws.iam.RolePolicy(f"{prefix}-{label}", name=label, role=role_name, policy=policy, opts=opts)


@dataclass(frozen=True)
class NodeRoleArgs:
    """The cluster, what its nodes with this role are, and whether they pull images through ECR."""

    cluster: str
    description: str
    account: Account
    image_cache: bool


def make_node_role(name: str, args: NodeRoleArgs, opts: pulumi.ResourceOptions) -> aws.iam.Role:
    """Make a role for nodes, with what these need to join the cluster and to pull images."""
    account = args.account
    trust = policies.to_json(policies.service_trust("ec2.amazonaws.com", "sts:AssumeRole"))
    role = make_role(name, args.description, trust, NODE_POLICIES, account, opts)
    if args.image_cache:

        def document(found: list[str]) -> str:
            id_, partition = found
            where = policies.repositories_arn(args.cluster, region=account.region, account=id_, partition=partition)
            return policies.to_json(policies.image_cache(where))

        policy = pulumi.Output.all(account.id, account.partition).apply(document)
        write_policy(name, "images", role.name, policy, opts)
    return role


def _trainer_policy(args: IdentityArgs) -> pulumi.Output[str]:
    checkpoints = checkpoints_folder(args.training.job) if args.training.checkpoints.s3 else None

    def document(found: list[str]) -> str:
        bucket_arn, key_arn, partition = found
        data = args.training.dataset
        dataset = policies.dataset_object_arn(None if data.mounted else data.uri, partition)
        return policies.to_json(
            policies.trainer(bucket_arn, key_arn, checkpoints=checkpoints, dataset=dataset, dataset_key=data.key_arn)
        )

    return pulumi.Output.all(args.bucket_arn, args.key_arn, args.account.partition).apply(document)


def team_folder(team: str) -> str:
    """Return the folder of the bucket that a team's pods read and write."""
    return f"teams/{team}"


@dataclass(frozen=True)
class TeamRolesArgs:
    """The account, the cluster's name, the names of the teams, and the bucket with its KMS key."""

    account: Account
    cluster: str
    teams: Sequence[str]
    bucket_arn: pulumi.Input[str]
    key_arn: pulumi.Input[str]


class TeamRoles(pulumi.ComponentResource):
    """A role for the pods of each team of the stack that the component is named after."""

    arns: Mapping[str, pulumi.Output[str]]
    """By the team's name."""

    def __init__(self, name: str, args: TeamRolesArgs, opts: pulumi.ResourceOptions) -> None:
        super().__init__("tidewater:infra:TeamRoles", name, None, opts)
        self._name = name
        self._child = pulumi.ResourceOptions(parent=self)
        self.arns = {team: self._role(team, args) for team in args.teams}
        self.register_outputs({})

    def _role(self, team: str, args: TeamRolesArgs) -> pulumi.Output[str]:
        trust = pods_trust(args.cluster, args.account, team, TRAINER_SERVICE_ACCOUNT)
        name = f"{self._name}-{team}"
        role = make_role(name, f"The pods of the team {team} of {self._name}", trust, (), args.account, self._child)
        policy = pulumi.Output.all(args.bucket_arn, args.key_arn).apply(
            lambda found: policies.to_json(policies.team(found[0], found[1], team_folder(team)))
        )
        write_policy(name, "team", role.name, policy, self._child)
        return role.arn
