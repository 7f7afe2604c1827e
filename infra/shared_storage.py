"""The shared file system: EFS with a mount target in every zone of the private subnets. Only the nodes reach it."""

from __future__ import annotations

from dataclasses import dataclass

import pulumi
import pulumi_aws as aws

from infra import policies
from infra.network import Network
from settings.model import FileThroughput

NFS_PORT = 2049
ROOT = "/tidewater"

POSIX_ID = 1000
"""User and group of the pods, and the owner of everything on the shared file system."""


@dataclass(frozen=True)
class SharedStorageArgs:
    """Where the mount targets are, who may use them, and the KMS key; `protect` refuses to delete the file system."""

    network: Network
    nodes_security_group_id: pulumi.Input[str]
    key_arn: pulumi.Input[str]
    throughput: FileThroughput
    protect: bool


class SharedStorage(pulumi.ComponentResource):
    """The file system, its access point and its mount targets.

    Volumes depend on the whole component: a pod can mount it once all is there, and the mount targets are deleted
    after the last mount.
    """

    file_system_id: pulumi.Output[str]
    volume_handle: pulumi.Output[str]
    """The access point as the EFS CSI driver names it."""

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
        access_point = self._access_point(name, file_system)
        aws.efs.BackupPolicy(
            f"{name}-data",
            file_system_id=file_system.id,
            backup_policy={"status": "ENABLED"},
            opts=self._child,
        )
        aws.efs.FileSystemPolicy(
            f"{name}-data",
            file_system_id=file_system.id,
            policy=pulumi.Output.all(file_system.arn, access_point.arn).apply(
                lambda found: policies.to_json(policies.file_system(found[0], found[1]))
            ),
            opts=self._child,
        )
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
        self.register_outputs({"fileSystemId": file_system.id})

    def _access_point(self, name: str, file_system: aws.efs.FileSystem) -> aws.efs.AccessPoint:
        return aws.efs.AccessPoint(
            f"{name}-data",
            file_system_id=file_system.id,
            posix_user={"uid": POSIX_ID, "gid": POSIX_ID},
            root_directory={
                "path": ROOT,
                "creation_info": {"owner_uid": POSIX_ID, "owner_gid": POSIX_ID, "permissions": "0750"},
            },
            tags={"Name": f"{name}-data"},
            opts=self._child,
        )

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
