"""IAM roles of the nodes, the EFS CSI driver, the training pods and those of teams. (pulumi-eks makes the control
plane's own.)

`policies.roles` says what they are. The nodes' role holds only what a node needs to join. Pods get their permissions
through EKS Pod Identity. With `roleArns` all roles were there before, and nothing of them is made or changed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pulumi
import pulumi_aws as aws

from infra import policies
from infra.account import Account
from infra.policies import roles

AUTO_SCALING_ROLE = "AWSServiceRoleForAutoScaling"
AUTO_SCALING_PATH = "aws-service-role/autoscaling.amazonaws.com"
DISK_OPERATIONS = (
    *("CreateGrant", "Decrypt", "DescribeKey", "Encrypt", "GenerateDataKey", "GenerateDataKeyWithoutPlaintext"),
    *("ReEncryptFrom", "ReEncryptTo"),
)
"""What EC2 Auto Scaling needs of a customer's key to start the instances of a node group.
https://docs.aws.amazon.com/autoscaling/ec2/userguide/key-policy-requirements-EBS-encryption.html"""


@dataclass(frozen=True)
class Role:
    """A role of the stack's, or one that was there before."""

    arn: pulumi.Output[str]
    name: pulumi.Output[str]
    given: bool
    """Whether it was there before: then its policies are its owner's."""
    written: Sequence[pulumi.Resource] = ()
    """Its own policies, without which it can do nothing."""


@dataclass(frozen=True)
class RoleArgs:
    """The account, the role's name in `roleArns`, what it is for, and what its policies name: fields of `Names`."""

    account: Account
    role: str
    description: str
    named: Mapping[str, pulumi.Input[str]] = field(default_factory=dict)


def make_role(name: str, args: RoleArgs, opts: pulumi.ResourceOptions) -> Role:
    """Make a role with its policies, but for the one with which nodes mount the file system; or find one."""
    account, stack = args.account, args.account.stack
    if arn := stack.roles.arns.get(args.role):
        return Role(pulumi.Output.from_input(arn), pulumi.Output.from_input(name_of(arn)), given=True)
    role = aws.iam.Role(
        name,
        description=args.description,
        assume_role_policy=_text(args),
        path=stack.roles.path,
        permissions_boundary=stack.roles.boundary or None,
        tags={"Name": name},
        opts=opts,
    )
    wanted = roles.of(stack, roles.Names.before(stack, "", ""))[args.role]
    for policy in wanted.of_aws:
        aws.iam.RolePolicyAttachment(
            f"{name}-{policy.split('/')[-1]}",
            role=role.name,
            policy_arn=pulumi.Output.concat("arn:", account.partition, ":iam::aws:policy/", policy),
            opts=opts,
        )
    for policy in wanted.attached:
        owner, _, path = policy.split(":", 4)[4].partition(":policy/")
        entry = f"{name}-{owner}-{path.replace('/', '-')}"
        aws.iam.RolePolicyAttachment(entry, role=role.name, policy_arn=policy, opts=opts)
    made = Role(role.arn, role.name, given=False)
    written: list[pulumi.Resource] = []
    for label in (each for each in wanted.own if each != roles.MOUNT):
        entry = name if label == args.role else f"{name}-{label}"
        written += write_policy(entry, label, made, _text(args, label), opts)
    return replace(made, written=written)


def _text(args: RoleArgs, label: str = "") -> pulumi.Output[str]:
    """Return one of the role's own policies as JSON, once what it names has its ARN; without a label, the trust."""
    account, stack, named = args.account, args.account.stack, args.named if label else {}

    def text(found: Mapping[str, str]) -> str:
        before = roles.Names.before(stack, found["account"], found["partition"])
        drawn: dict[str, Any] = {each: found[each] for each in named}
        role = roles.of(stack, replace(before, key_alias="", **drawn))[args.role]
        return policies.to_json(role.own[label] if label else role.trust)

    return pulumi.Output.all(account=account.id, partition=account.partition, **named).apply(text)


def name_of(role_arn: str) -> str:
    """Return the name in a role's ARN, without its path."""
    return role_arn.rpartition("/")[2]


def write_policy(
    name: str, label: str, role: Role, policy: pulumi.Input[str], opts: pulumi.ResourceOptions
) -> list[pulumi.Resource]:
    """Write a policy, as JSON, into a role of the stack's. IAM knows it as `label`, Pulumi as `name`.

    IAM writes over a policy of the same name. With an automatic name, a policy that was made without an answer would
    stay in addition to the next one, unknown to Pulumi, and IAM refuses to delete a role that has a policy.
    https://docs.aws.amazon.com/IAM/latest/APIReference/API_DeleteRole.html
    """
    return [] if role.given else [aws.iam.RolePolicy(name, name=label, role=role.name, policy=policy, opts=opts)]


@dataclass(frozen=True)
class IdentityArgs:
    """The account, and the bucket with its KMS key, which the training pods use."""

    account: Account
    bucket_arn: pulumi.Input[str]
    key_arn: pulumi.Input[str]


class Identity(pulumi.ComponentResource):
    """The roles with their policies.

    Nodes depend on the whole component, so no node or pod runs without a policy that it needs.
    """

    node_role: Role
    efs_csi_role_arn: pulumi.Output[str] | None
    """None on a cluster that was there before: its addons have roles of its owner's."""
    trainer_role_arn: pulumi.Output[str]
    s3_csi_role_arn: pulumi.Output[str] | None
    """None if no dataset is mounted."""

    def __init__(self, name: str, args: IdentityArgs, opts: pulumi.ResourceOptions) -> None:
        super().__init__("tidewater:infra:Identity", name, None, opts)
        self._name = name
        self._account, stack = args.account, args.account.stack
        self._child = pulumi.ResourceOptions(parent=self)
        self.node_role = self._role("node", "The nodes of the cluster")
        self.efs_csi_role_arn = None
        if not stack.cluster.existing:
            self.efs_csi_role_arn = self._role("efs-csi", "The EFS CSI driver's controller").arn
        data = {"bucket": args.bucket_arn, "key": args.key_arn}
        self.trainer_role_arn = self._role("trainer", "The training pods", data).arn
        self.s3_csi_role_arn = self._role("s3-csi", "Mountpoint for S3").arn if stack.training.dataset.mounted else None
        if stack.node_disk_key:
            self._let_node_groups_use(stack.node_disk_key)
        self.register_outputs({"trainerRoleArn": self.trainer_role_arn})

    def _role(self, role: str, description: str, named: Mapping[str, pulumi.Input[str]] | None = None) -> Role:
        args = RoleArgs(self._account, role, f"{description} of {self._name}", named or {})
        return make_role(f"{self._name}-{role}", args, self._child)

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


@dataclass(frozen=True)
class TeamRolesArgs:
    """The account, and the bucket with its KMS key."""

    account: Account
    bucket_arn: pulumi.Input[str]
    key_arn: pulumi.Input[str]


class TeamRoles(pulumi.ComponentResource):
    """A role for the pods of each team of the stack that the component is named after."""

    arns: Mapping[str, pulumi.Output[str]]
    """By the team's name."""

    def __init__(self, name: str, args: TeamRolesArgs, opts: pulumi.ResourceOptions) -> None:
        super().__init__("tidewater:infra:TeamRoles", name, None, opts)
        child, data = pulumi.ResourceOptions(parent=self), {"bucket": args.bucket_arn, "key": args.key_arn}
        self.arns = {
            team.name: make_role(
                f"{name}-{team.name}",
                RoleArgs(args.account, team.role, f"The pods of the team {team.name} of {name}", data),
                child,
            ).arn
            for team in args.account.stack.teams
        }
        self.register_outputs({})
