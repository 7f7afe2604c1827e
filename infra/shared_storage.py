"""The shared file system: EFS with a mount target in every zone of the private subnets. Only the nodes reach it.

Or a folder of one that was there before.

    files = SharedStorage(name, SharedStorageArgs(...), account.options())
    files.volume_handle, files.team_handles["vision"]     # the access points as the EFS CSI driver names them
    files.mount_policy                                    # for the role of nodes, if clients need one
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pulumi
import pulumi_aws as aws

from infra import policies
from infra.identity import Role, write_policy
from infra.network import Network
from infra.policies.roles import MOUNT
from settings.model import FileThroughput

NFS_PORT = 2049
ROOT = "/tidewater"
TEAMS_ROOT = "/teams"

POSIX_ID = 1000
"""User and group of the pods, and the owner of everything on the shared file system."""


@dataclass(frozen=True)
class SharedStorageArgs:
    """Where the mount targets are, who may use them, and the KMS key; `protect` refuses to delete the file system.

    Attributes:
        node_role: that of the node groups, which gets the policy to mount it; None if clients need no role.
        teams: the names of those that have a folder of their own.
    """

    network: Network
    nodes_security_group_id: pulumi.Input[str]
    key_arn: pulumi.Input[str]
    throughput: FileThroughput
    protect: bool
    node_role: Role | None = None
    teams: Sequence[str] = ()


class SharedStorage(pulumi.ComponentResource):
    """The file system, its access points and its mount targets.

    Volumes depend on the whole component: a pod can mount it once all is there, and the mount targets are deleted
    after the last mount.
    """

    file_system_id: pulumi.Output[str]
    volume_handle: pulumi.Output[str]
    """The access point as the EFS CSI driver names it."""
    team_handles: Mapping[str, pulumi.Output[str]]
    """Those of the teams, by name."""
    mount_policy: pulumi.Output[str] | None
    """What other roles of nodes need to mount it; None if clients need no role."""

    def __init__(self, name: str, args: SharedStorageArgs, opts: pulumi.ResourceOptions) -> None:
        super().__init__("tidewater:infra:SharedStorage", name, None, opts)
        self._child = pulumi.ResourceOptions(parent=self)
        file_system = aws.efs.FileSystem(
            f"{name}-data",
            encrypted=True,
            kms_key_id=args.key_arn,
            throughput_mode=args.throughput.mode,
            provisioned_throughput_in_mibps=args.throughput.mibps,
            performance_mode="generalPurpose",
            tags={"Name": f"{name}-data"},
            opts=pulumi.ResourceOptions(parent=self, protect=args.protect),
        )
        access_point = _access_point(f"{name}-data", file_system.id, ROOT, self._child)
        teams = {
            team: _access_point(f"{name}-team-{team}", file_system.id, f"{TEAMS_ROOT}/{team}", self._child)
            for team in args.teams
        }
        points = [each.arn for each in (access_point, *teams.values())]
        by_iam = args.node_role is not None
        aws.efs.BackupPolicy(
            f"{name}-data",
            file_system_id=file_system.id,
            backup_policy={"status": "ENABLED"},
            opts=self._child,
        )
        aws.efs.FileSystemPolicy(
            f"{name}-data",
            file_system_id=file_system.id,
            policy=pulumi.Output.all(file_system.arn, *points).apply(
                lambda found: policies.to_json(
                    policies.file_system_by_iam(found[0], found[1:])
                    if by_iam
                    else policies.file_system(found[0], found[1])
                )
            ),
            opts=self._child,
        )
        self.mount_policy = _let_mount(name, args.node_role, file_system.arn, points, self._child)
        group = self._security_group(name, args.network.vpc_id, args.nodes_security_group_id)
        for index, subnet_id in enumerate(args.network.mount_subnet_ids):
            aws.efs.MountTarget(
                f"{name}-data-{index}",
                file_system_id=file_system.id,
                subnet_id=subnet_id,
                security_groups=[group.id],
                opts=self._child,
            )
        self.file_system_id = file_system.id
        self.volume_handle = pulumi.Output.concat(file_system.id, "::", access_point.id)
        self.team_handles = {
            team: pulumi.Output.concat(file_system.id, "::", point.id) for team, point in teams.items()
        }
        self.register_outputs({"fileSystemId": file_system.id})

    def _security_group(
        self, name: str, vpc_id: pulumi.Input[str], nodes_security_group_id: pulumi.Input[str]
    ) -> aws.ec2.SecurityGroup:
        group = aws.ec2.SecurityGroup(
            f"{name}-data",
            description=f"Mount targets of {name}: NFS from the nodes, nothing out",
            vpc_id=vpc_id,
            tags={"Name": f"{name}-data"},
            opts=self._child,
        )
        aws.vpc.SecurityGroupIngressRule(
            f"{name}-data-nfs",
            description="NFS from the nodes",
            security_group_id=group.id,
            referenced_security_group_id=nodes_security_group_id,
            ip_protocol="tcp",
            from_port=NFS_PORT,
            to_port=NFS_PORT,
            tags={"Name": f"{name}-data-nfs"},
            opts=self._child,
        )
        return group


@dataclass(frozen=True)
class ExistingStorageArgs:
    """The id of the file system, and the role of node groups as in `SharedStorageArgs`."""

    file_system_id: str
    node_role: Role | None = None


class ExistingStorage(pulumi.ComponentResource):
    """An access point on a file system that was there before, in a folder of the stack's. All else is its owner's.

    The folder stays when the stack is destroyed. The owner's policy of the file system has to let the nodes mount it.
    Since the stack can't keep clients without credentials from doing so, there are no folders of teams.
    """

    file_system_id: pulumi.Output[str]
    volume_handle: pulumi.Output[str]
    """The access point as the EFS CSI driver names it."""
    team_handles: Mapping[str, pulumi.Output[str]]
    """None."""
    mount_policy: pulumi.Output[str] | None
    """What other roles of nodes need to mount it; None if clients need no role."""

    def __init__(self, name: str, args: ExistingStorageArgs, opts: pulumi.ResourceOptions) -> None:
        super().__init__("tidewater:infra:ExistingStorage", name, None, opts)
        child = pulumi.ResourceOptions(parent=self)
        point = _access_point(f"{name}-data", args.file_system_id, f"/{name}", child)
        self.mount_policy = _let_mount(name, args.node_role, point.file_system_arn, [point.arn], child)
        self.file_system_id = pulumi.Output.from_input(args.file_system_id)
        self.volume_handle = pulumi.Output.concat(args.file_system_id, "::", point.id)
        self.team_handles = {}
        self.register_outputs({"fileSystemId": args.file_system_id})


def _access_point(
    name: str, file_system_id: pulumi.Input[str], root: str, opts: pulumi.ResourceOptions
) -> aws.efs.AccessPoint:
    return aws.efs.AccessPoint(
        name,
        file_system_id=file_system_id,
        posix_user={"uid": POSIX_ID, "gid": POSIX_ID},
        root_directory={
            "path": root,
            "creation_info": {"owner_uid": POSIX_ID, "owner_gid": POSIX_ID, "permissions": "0750"},
        },
        tags={"Name": name},
        opts=opts,
    )


def _let_mount(
    name: str,
    node_role: Role | None,
    file_system_arn: pulumi.Output[str],
    points: Sequence[pulumi.Output[str]],
    opts: pulumi.ResourceOptions,
) -> pulumi.Output[str] | None:
    """Let the role of node groups mount the file system by these access points, if clients need a role for it.

    Return what other roles of nodes need for that.
    """
    if node_role is None:
        return None
    policy = pulumi.Output.all(file_system_arn, *points).apply(
        lambda found: policies.to_json(policies.mount(found[0], found[1:]))
    )
    write_policy(f"{name}-node-{MOUNT}", MOUNT, node_role, policy, opts)
    return policy
