"""The EKS control plane: private nodes, access entries only, encrypted secrets, all logs. Or one that was there before.

    cluster = Cluster(name, ClusterArgs(stack, account, network, key.arn), account.options())
    cluster.kubeconfig          # a secret; logs in with `aws eks get-token`

EKS makes the cluster's creator its administrator, by an access entry that it creates itself. `adminArns` adds entries,
and EKS creates one for each node group. A creator who is in `adminArns` too gets the entry from there, and EKS makes
none: two would be an error, and an entry of the program stays when another identity deploys. The aws-auth ConfigMap is
not used, so a mistake in it cannot lock everyone out.

The people of teams get entries with a group of Kubernetes for each of their teams, and without a policy of EKS's: these
list no ElasticJobs, and Kubernetes' aggregation doesn't reach them. A RoleBinding gives the group its rights.
https://docs.aws.amazon.com/eks/latest/userguide/access-policy-permissions.html

A cluster that was there before is its owner's, with its addons and its logs: the stack makes and changes nothing of it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pulumi
import pulumi_aws as aws
import pulumi_eks as eks

import settings
from infra.account import Account, is_caller
from infra.encryption import control_plane_log_group_name, log_group
from infra.identity import name_of
from infra.network import Network
from infra.preflight.cluster.kubeconfig import kubeconfig

LOG_TYPES = ("api", "audit", "authenticator", "controllerManager", "scheduler")
ADMIN_POLICY = "eks::aws:cluster-access-policy/AmazonEKSClusterAdminPolicy"
"""https://docs.aws.amazon.com/eks/latest/userguide/access-policy-permissions.html"""

PRIVATE_API = (
    "publicAccessCidrs is empty: only machines in the stack's VPC, or connected to it, reach the Kubernetes API. "
    "Elsewhere `pulumi up` fails at the first Kubernetes object. Unless pulumi runs inside, set your address: "
    "pulumi config set --path 'tidewater:publicAccessCidrs[0]' A.B.C.D/32"
)
"""https://docs.aws.amazon.com/eks/latest/userguide/cluster-endpoint.html#private-access"""


@dataclass(frozen=True)
class ClusterArgs:
    """The stack's settings, the account, the network, the role of node groups, and the KMS key of secrets and logs."""

    stack: settings.Settings
    account: Account
    network: Network
    node_role_arn: pulumi.Input[str]
    key_arn: pulumi.Input[str]


class Cluster(pulumi.ComponentResource):
    """The control plane, and the addons that nodes need in order to become ready.

    Nodes depend on the whole component: they join after all of it and are deleted before any of it.

    Attributes:
        security_group_id: the group that EKS makes for the cluster. EKS adds a managed node to it if its launch
            template names no other group; ours name none.
    """

    kubeconfig: pulumi.Output[str]
    security_group_id: pulumi.Output[str]

    def __init__(self, name: str, args: ClusterArgs, opts: pulumi.ResourceOptions) -> None:
        stack, wanted = args.stack, args.stack.cluster
        transforms: list[pulumi.ResourceTransform] = [kubeconfig_stays_secret, role_as_others(stack.roles)]
        if wanted.admin_arns:
            transforms.append(creator_entry_by_eks(unless_listed(args.account.caller_arn, wanted.admin_arns)))
        changed = pulumi.ResourceOptions(transforms=transforms)
        super().__init__("tidewater:infra:Cluster", name, None, pulumi.ResourceOptions.merge(opts, changed))
        if wanted.existing:
            self._find(name, wanted.existing, args)
        else:
            self._make(name, args)
        self.register_outputs({"name": stack.cluster_name})

    def _find(self, name: str, existing: settings.ExistingCluster, args: ClusterArgs) -> None:
        """Let the nodes into the cluster that was there before.

        EKS makes an entry for the role of a node group that has none, and leaves it there after the node group.
        """
        self.kubeconfig = pulumi.Output.secret(kubeconfig(existing, args.stack.region, args.stack.profile))
        self.security_group_id = pulumi.Output.from_input(existing.security_group_id)
        aws.eks.AccessEntry(
            f"{name}-node",
            cluster_name=existing.name,
            principal_arn=args.node_role_arn,
            type="EC2_LINUX",
            tags={"Name": f"{name}-node"},
            opts=pulumi.ResourceOptions(parent=self),
        )
        self._let_in_people(args.stack)

    def _make(self, name: str, args: ClusterArgs) -> None:
        """Make the control plane and its first addons."""
        stack, wanted = args.stack, args.stack.cluster
        if not wanted.public_access_cidrs:
            pulumi.log.warn(PRIVATE_API)
        logs = log_group(
            f"{name}-control-plane",
            control_plane_log_group_name(name),
            key_arn=args.key_arn,
            retention_days=wanted.log_retention_days,
            opts=pulumi.ResourceOptions(parent=self),
        )
        cluster = eks.Cluster(
            name,
            name=name,
            version=wanted.version,
            vpc_id=args.network.vpc_id,
            private_subnet_ids=args.network.first_subnet_ids,
            node_subnet_ids=args.network.first_subnet_ids,
            skip_default_node_group=True,
            # pulumi-eks's default groups open port 443 of the control plane's interfaces to every address. The group
            # that EKS makes itself allows traffic between nodes and control plane only.
            skip_default_security_groups=True,
            create_oidc_provider=False,  # pod identity does not need one
            authentication_mode=eks.AuthenticationMode.API,
            access_entries={
                label: _administrator(arn, args.account.partition) for label, arn in labelled(wanted.admin_arns).items()
            },
            endpoint_private_access=True,
            endpoint_public_access=bool(wanted.public_access_cidrs),
            public_access_cidrs=list(wanted.public_access_cidrs) or None,
            encryption_config_key_arn=args.key_arn,
            enabled_cluster_log_types=list(LOG_TYPES),
            deletion_protection=stack.protect,
            provider_credential_opts={"profile_name": stack.profile} if stack.profile else None,
            vpc_cni_options={"enable_network_policy": True, "addon_version": wanted.addons["vpc-cni"]},
            kube_proxy_addon_options={"enabled": True, "version": wanted.addons["kube-proxy"]},
            # Else EKS goes on to extended support, for six times the price of the control plane.
            # https://docs.aws.amazon.com/eks/latest/userguide/kubernetes-versions.html
            upgrade_policy={"support_type": "STANDARD"},
            service_role=self._role_of_others(name, stack.roles.arns.get("cluster")),
            tags=stack.all_tags,
            opts=pulumi.ResourceOptions(
                parent=self,
                additional_secret_outputs=["core", "kubeconfig", "kubeconfigJson"],
                # Without it EKS makes a log group of its own, without retention and key.
                depends_on=[logs],
            ),
        )
        self.kubeconfig = pulumi.Output.secret(kubeconfig_of(cluster, stack.profile))
        self.security_group_id = cluster.node_security_group_id
        self._let_in_people(stack, cluster)
        agent = "eks-pod-identity-agent"
        addon(name, agent, wanted.addons[agent], pulumi.ResourceOptions(parent=self, depends_on=[cluster]))

    def _role_of_others(self, name: str, arn: str | None) -> aws.iam.Role | None:
        """Return the control plane's role if it was there before: Pulumi reads it, and leaves it when it destroys."""
        if arn is None:
            return None
        return aws.iam.Role.get(f"{name}-cluster", name_of(arn), opts=pulumi.ResourceOptions(parent=self))

    def _let_in_people(self, stack: settings.Settings, *after: pulumi.Resource) -> None:
        people = groups(stack.teams)
        for label, arn in labelled(list(people)).items():
            aws.eks.AccessEntry(
                f"{stack.name}-{label}",
                cluster_name=stack.cluster_name,
                principal_arn=arn,
                kubernetes_groups=people[arn],
                tags={"Name": f"{stack.name}-{label}"},
                opts=pulumi.ResourceOptions(parent=self, depends_on=[*after]),
            )


def kubeconfig_of(cluster: eks.Cluster, profile: str) -> pulumi.Output[str]:
    """Return the kubeconfig, with the profile if there is one: the component's own outputs never name it.

    pulumi-eks, nodejs/eks/cluster/cluster.ts: `genKubeconfig(false)` for the outputs, and `getKubeconfig`.
    """
    return cluster.get_kubeconfig(profile_name=profile) if profile else cluster.kubeconfig_json


def groups(teams: Sequence[settings.Team]) -> dict[str, list[str]]:
    """Return the groups of each person, by ARN: a principal has one access entry, whatever teams it is in."""
    found: dict[str, list[str]] = {}
    for team in teams:
        for arn in team.user_arns:
            found.setdefault(arn, []).append(team.group)
    return found


def unless_listed(caller_arn: pulumi.Output[str], listed: Sequence[str]) -> pulumi.Output[bool]:
    """Return whether the caller is none of the listed principals."""
    return caller_arn.apply(lambda caller: not any(is_caller(arn, caller) for arn in listed))


def creator_entry_by_eks(wanted: pulumi.Output[bool]) -> pulumi.ResourceTransform:
    """Return a transform that says whether EKS makes an entry for the creator, which pulumi-eks always asks for.

    https://github.com/pulumi/pulumi-eks/issues/2373: the creator's own entry is refused then (409 ResourceInUse). It
    matters only when the cluster is created; pulumi-eks ignores later changes.
    """

    def transform(args: pulumi.ResourceTransformArgs) -> pulumi.ResourceTransformResult | None:
        if args.type_ != "aws:eks/cluster:Cluster":
            return None
        access = {"authenticationMode": "API", "bootstrapClusterCreatorAdminPermissions": wanted}
        return pulumi.ResourceTransformResult(props={**args.props, "accessConfig": access}, opts=args.opts)

    return transform


def role_as_others(roles: settings.Roles) -> pulumi.ResourceTransform:
    """Return a transform that gives pulumi-eks's role the path and the boundary of the stack's other roles."""

    def transform(args: pulumi.ResourceTransformArgs) -> pulumi.ResourceTransformResult | None:
        if args.type_ != "aws:iam/role:Role":
            return None
        own: dict[str, Any] = {"path": roles.path} | ({"permissionsBoundary": roles.boundary} if roles.boundary else {})
        return pulumi.ResourceTransformResult(props={**args.props, **own}, opts=args.opts)

    return transform


def kubeconfig_stays_secret(args: pulumi.ResourceTransformArgs) -> pulumi.ResourceTransformResult | None:
    """Mark the kubeconfig as secret where pulumi-eks passes it to its own provider; the state would show it."""
    if args.type_ != "pulumi:providers:kubernetes":
        return None
    props = {**args.props, "kubeconfig": pulumi.Output.secret(args.props["kubeconfig"])}
    return pulumi.ResourceTransformResult(props=props, opts=args.opts)


def addon(
    cluster_name: str,
    addon_name: str,
    version: str | None,
    opts: pulumi.ResourceOptions,
    configuration: Mapping[str, Any] | None = None,
) -> aws.eks.Addon:
    """Make one EKS addon; `configuration` has values of its chart that differ from the addon's own.

    Without a version it has EKS's default one of the day on which it is made, and keeps it.
    """
    return aws.eks.Addon(
        f"{cluster_name}-{addon_name}",
        cluster_name=cluster_name,
        addon_name=addon_name,
        addon_version=version,
        configuration_values=json.dumps(configuration, sort_keys=True) if configuration else None,
        resolve_conflicts_on_create="OVERWRITE",
        resolve_conflicts_on_update="OVERWRITE",
        tags={"Name": f"{cluster_name}-{addon_name}"},
        opts=opts,
    )


def labelled(arns: Sequence[str]) -> dict[str, str]:
    """Return the ARNs by names for their access entries. Of two with the same signs, only the first has a plain name.

    Another name would replace an entry that exists, and EKS refuses a second one for its principal.
    """
    found: dict[str, str] = {}
    for arn in arns:
        label = arn.split(":", 4)[-1].replace(":", "-").replace("/", "-")
        found[label if label not in found else f"{label}-{hashlib.sha256(arn.encode()).hexdigest()[:8]}"] = arn
    return found


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
