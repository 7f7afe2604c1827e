"""The EKS control plane: private nodes, access entries only, encrypted secrets, all logs.

    cluster = Cluster(stack, account, network, encryption)
    cluster.kubeconfig          # a secret; logs in with `aws eks get-token`

pulumi-eks always asks EKS to make whoever creates the cluster its administrator, by an access entry of EKS's own
making; `adminArns` adds entries for others. Nodes get theirs from EKS with their node group. Nothing goes through
the aws-auth ConfigMap, so nobody can lock everyone out with it.
"""

from __future__ import annotations

import pulumi
import pulumi_aws as aws
import pulumi_eks as eks

import settings
from infra.account import Account
from infra.encryption import Encryption
from infra.logs import control_plane_log_group
from infra.network import Network

LOG_TYPES = ("api", "audit", "authenticator", "controllerManager", "scheduler")
ADMIN_POLICY = "eks::aws:cluster-access-policy/AmazonEKSClusterAdminPolicy"
"""https://docs.aws.amazon.com/eks/latest/userguide/access-policy-permissions.html"""


class Cluster(pulumi.ComponentResource):
    """The control plane, and the addons that nodes need in order to become ready.

    Attributes:
        security_group_id: the group that EKS makes for the cluster and puts on every managed node whose launch
            template names none, as ours.
        ready: what must stand before nodes join, and go after them.
    """

    kubeconfig: pulumi.Output[str]
    security_group_id: pulumi.Output[str]
    ready: list[pulumi.Resource]

    def __init__(self, stack: settings.Settings, account: Account, network: Network, encryption: Encryption) -> None:
        name, wanted = stack.name, stack.cluster
        options = pulumi.ResourceOptions(transforms=[kubeconfig_stays_secret])
        super().__init__("tidewater:infra:Cluster", name, None, pulumi.ResourceOptions.merge(account.options, options))
        log_group = control_plane_log_group(
            name,
            key_arn=encryption.key_arn,
            retention_days=wanted.log_retention_days,
            opts=pulumi.ResourceOptions(parent=self),
        )
        cluster = eks.Cluster(
            name,
            name=name,
            version=wanted.version,
            vpc_id=network.vpc_id,
            private_subnet_ids=network.private_subnet_ids,
            node_subnet_ids=network.private_subnet_ids,
            skip_default_node_group=True,
            # The default groups open port 443 of the control plane's interfaces to every address; the group that
            # EKS itself makes lets nodes and control plane talk to each other and nobody else in.
            skip_default_security_groups=True,
            create_oidc_provider=False,  # pod identity needs none
            authentication_mode=eks.AuthenticationMode.API,
            access_entries={_label(arn): _administrator(arn, account.partition) for arn in wanted.admin_arns},
            endpoint_private_access=True,
            endpoint_public_access=bool(wanted.public_access_cidrs),
            public_access_cidrs=list(wanted.public_access_cidrs) or None,
            encryption_config_key_arn=encryption.key_arn,
            enabled_cluster_log_types=list(LOG_TYPES),
            deletion_protection=stack.protect,
            provider_credential_opts={"profile_name": stack.profile} if stack.profile else None,
            vpc_cni_options={"enable_network_policy": True},
            tags=stack.all_tags,
            opts=pulumi.ResourceOptions(
                parent=self,
                additional_secret_outputs=["core", "kubeconfig", "kubeconfigJson"],
                # EKS would make the log group itself, without retention or key, if ours weren't there first.
                depends_on=[log_group],
            ),
        )
        self.kubeconfig = pulumi.Output.secret(cluster.kubeconfig_json)
        self.security_group_id = cluster.node_security_group_id
        identity_agent = addon(name, "eks-pod-identity-agent", parent=self, depends_on=[cluster])
        # Nodes need the routes for pulling images and for leaving the cluster in good order.
        self.ready = [cluster, identity_agent, *network.ready]
        self.register_outputs({"name": name})


def kubeconfig_stays_secret(args: pulumi.ResourceTransformArgs) -> pulumi.ResourceTransformResult | None:
    """pulumi-eks gives the kubeconfig to a provider of its own, in whose state it would stand for all to read."""
    if args.type_ != "pulumi:providers:kubernetes":
        return None
    props = {**args.props, "kubeconfig": pulumi.Output.secret(args.props["kubeconfig"])}
    return pulumi.ResourceTransformResult(props=props, opts=args.opts)


def addon(
    cluster_name: str, addon_name: str, *, parent: pulumi.Resource, depends_on: list[pulumi.Resource]
) -> aws.eks.Addon:
    """One EKS addon, in the version that EKS prefers for the cluster's version."""
    return aws.eks.Addon(
        f"{cluster_name}-{addon_name}",
        cluster_name=cluster_name,
        addon_name=addon_name,
        resolve_conflicts_on_create="OVERWRITE",
        resolve_conflicts_on_update="OVERWRITE",
        tags={"Name": f"{cluster_name}-{addon_name}"},
        opts=pulumi.ResourceOptions(parent=parent, depends_on=depends_on),
    )


def _label(arn: str) -> str:
    return arn.split(":", 4)[-1].replace(":", "-").replace("/", "-")


def _administrator(arn: str, partition: pulumi.Input[str]) -> eks.AccessEntryArgs:
    return eks.AccessEntryArgs(
        principal_arn=arn,
        access_policies={
            "admin": eks.AccessPolicyAssociationArgs(
                policy_arn=pulumi.Output.concat("arn:", partition, ":", ADMIN_POLICY),
                access_scope=aws.eks.AccessPolicyAssociationAccessScopeArgs(type="cluster"),
            )
        },
    )
