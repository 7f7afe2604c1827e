"""IAM roles of the nodes, the EFS CSI driver and the training pods. (pulumi-eks makes the control plane's own.)

The nodes' role holds only what a node needs to join; everything else comes to pods through EKS Pod Identity.
"""

from __future__ import annotations

import pulumi
import pulumi_aws as aws

import settings
from infra import policies
from infra.account import Account
from infra.bucket import Bucket, checkpoints_folder
from infra.encryption import Encryption

NODE_POLICIES = ("AmazonEKSWorkerNodePolicy", "AmazonEKS_CNI_Policy", "AmazonEC2ContainerRegistryPullOnly")
"""https://docs.aws.amazon.com/eks/latest/userguide/create-node-role.html"""

EFS_CSI_POLICY = "service-role/AmazonEFSCSIDriverPolicy"
"""https://docs.aws.amazon.com/eks/latest/userguide/efs-csi.html"""


EFS_CSI_NAMESPACE = "kube-system"
EFS_CSI_SERVICE_ACCOUNT = "efs-csi-controller-sa"
TRAINER_SERVICE_ACCOUNT = "trainer"


def cluster_arn(name: str, *, region: str, account: str, partition: str) -> str:
    """The ARN that a cluster of this name has."""
    return f"arn:{partition}:eks:{region}:{account}:cluster/{name}"


class Identity(pulumi.ComponentResource):
    """The roles. `ready` is what must stand before a node or pod can use them, and go after it."""

    node_role_arn: pulumi.Output[str]
    efs_csi_role_arn: pulumi.Output[str]
    trainer_role_arn: pulumi.Output[str]
    ready: list[pulumi.Resource]

    def __init__(self, stack: settings.Settings, account: Account, bucket: Bucket, encryption: Encryption) -> None:
        name, wanted = stack.name, stack.training
        super().__init__("tidewater:infra:Identity", name, None, account.options)
        self._name = name
        self._account = account
        self._child = pulumi.ResourceOptions(parent=self)
        self.ready = []
        self._cluster_arn = pulumi.Output.all(account.id, account.partition).apply(
            lambda found: cluster_arn(name, region=stack.region, account=found[0], partition=found[1])
        )
        nodes = policies.to_json(policies.service_trust("ec2.amazonaws.com", "sts:AssumeRole"))
        self.node_role_arn = self._role("node", "The nodes of the cluster", nodes, NODE_POLICIES).arn
        csi = self._pods_trust(EFS_CSI_NAMESPACE, EFS_CSI_SERVICE_ACCOUNT)
        self.efs_csi_role_arn = self._role("efs-csi", "The EFS CSI driver's controller", csi, (EFS_CSI_POLICY,)).arn
        pods = self._pods_trust(wanted.namespace, TRAINER_SERVICE_ACCOUNT)
        trainer = self._role("trainer", "The training pods", pods, ())
        self.trainer_role_arn = trainer.arn
        self.ready.append(
            aws.iam.RolePolicy(
                f"{name}-trainer",
                role=trainer.name,
                policy=pulumi.Output.all(bucket.arn, encryption.key_arn, account.partition).apply(
                    lambda found: policies.to_json(
                        policies.trainer(
                            found[0],
                            found[1],
                            checkpoints=checkpoints_folder(wanted.job) if wanted.checkpoints.s3 else None,
                            dataset=policies.dataset_object_arn(wanted.dataset.uri, found[2]),
                        )
                    )
                ),
                opts=self._child,
            )
        )
        self.register_outputs({"trainerRoleArn": trainer.arn})

    def _pods_trust(self, namespace: str, service_account: str) -> pulumi.Output[str]:
        return self._cluster_arn.apply(
            lambda arn: policies.to_json(policies.pod_identity_trust(arn, namespace, service_account))
        )

    def _role(self, label: str, description: str, trust: pulumi.Input[str], managed: tuple[str, ...]) -> aws.iam.Role:
        role = aws.iam.Role(
            f"{self._name}-{label}",
            description=f"{description} of {self._name}",
            assume_role_policy=trust,
            tags={"Name": f"{self._name}-{label}"},
            opts=self._child,
        )
        for policy in managed:
            attachment = aws.iam.RolePolicyAttachment(
                f"{self._name}-{label}-{policy.split('/')[-1]}",
                role=role.name,
                policy_arn=pulumi.Output.concat("arn:", self._account.partition, ":iam::aws:policy/", policy),
                opts=self._child,
            )
            self.ready.append(attachment)
        return role
