"""The shared file system: EFS in every private subnet, reachable from the nodes only, through one access point."""

from __future__ import annotations

import pulumi
import pulumi_aws as aws

import settings
from infra import policies
from infra.account import Account
from infra.cluster import Cluster
from infra.encryption import Encryption
from infra.network import Network

NFS_PORT = 2049
ROOT = "/tidewater"

POSIX_ID = 1000
"""User and group that own everything on the shared file system, and that the pods run as."""


class SharedStorage(pulumi.ComponentResource):
    """The file system. `ready` is what must stand before a pod can mount it, and go after the last one."""

    file_system_id: pulumi.Output[str]
    access_point_id: pulumi.Output[str]
    ready: list[pulumi.Resource]

    def __init__(
        self,
        stack: settings.Settings,
        account: Account,
        network: Network,
        encryption: Encryption,
        cluster: Cluster,
    ) -> None:
        name, protect = stack.name, stack.protect
        super().__init__("tidewater:infra:SharedStorage", name, None, account.options)
        self._child = pulumi.ResourceOptions(parent=self)
        file_system = aws.efs.FileSystem(
            f"{name}-data",
            encrypted=True,
            kms_key_id=encryption.key_arn,
            throughput_mode="elastic",
            performance_mode="generalPurpose",
            tags={"Name": f"{name}-data"},
            opts=pulumi.ResourceOptions(parent=self, protect=protect),
        )
        access_point = self._access_point(name, file_system)
        aws.efs.BackupPolicy(
            f"{name}-data",
            file_system_id=file_system.id,
            backup_policy={"status": "ENABLED"},
            opts=self._child,
        )
        policy = aws.efs.FileSystemPolicy(
            f"{name}-data",
            file_system_id=file_system.id,
            policy=pulumi.Output.all(file_system.arn, access_point.arn).apply(
                lambda found: policies.to_json(policies.file_system(found[0], found[1]))
            ),
            opts=self._child,
        )
        group = self._security_group(name, network.vpc_id, cluster.security_group_id)
        targets = [
            aws.efs.MountTarget(
                f"{name}-data-{index}",
                file_system_id=file_system.id,
                subnet_id=subnet_id,
                security_groups=[group.id],
                opts=self._child,
            )
            for index, subnet_id in enumerate(network.private_subnet_ids)
        ]
        self.file_system_id = file_system.id
        self.access_point_id = access_point.id
        self.ready = [*targets, self._nfs, policy]
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
        self._nfs = aws.vpc.SecurityGroupIngressRule(
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
