"""The outputs of `eks:index:Cluster`. A method of the component reads one of them, `core`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pulumi.provider.experimental.property_value import PropertyValue

from localcloud.standins.algebra import NULL, combine, depending, is_set, member, path, record
from localcloud.standins.eks.components.kubeconfig import kubeconfig_json, kubeconfig_of
from localcloud.standins.eks.scope import members
from localcloud.standins.monitor import Resource


@dataclass(frozen=True, kw_only=True)
class ClusterParts:
    """The children of a cluster, and the inputs that its outputs repeat."""

    inputs: Mapping[str, PropertyValue]
    subnet_ids: PropertyValue
    cluster: Resource
    endpoint: PropertyValue
    role: Resource
    provider: Resource
    cni: Resource | None

    def input(self, key: str) -> PropertyValue:
        """An input of the component, or null."""
        return self.inputs.get(key, NULL)

    @property
    def kubeconfig_sources(self) -> tuple[PropertyValue, ...]:
        """The arguments of the kubeconfig for every user."""
        role_arn = member(self.input("providerCredentialOpts"), "roleArn")
        return kubeconfig_sources(self.cluster, self.endpoint, role_arn, NULL)


def kubeconfig_sources(
    cluster: Resource, endpoint: PropertyValue, role_arn: PropertyValue, profile: PropertyValue
) -> tuple[PropertyValue, ...]:
    """The arguments of `kubeconfig_of`, as values that may be unknown."""
    certificate_authority = path(cluster.output("certificateAuthority"), "data")
    return cluster.output("name"), endpoint, certificate_authority, cluster.output("arn"), role_arn, profile


def cluster_outputs(parts: ClusterParts) -> dict[str, PropertyValue]:
    """The component's outputs."""
    cluster = parts.cluster
    # The component makes no security groups: both outputs name the one that EKS makes.
    own_group = path(cluster.output("vpcConfig"), "clusterSecurityGroupId")
    issuer = combine(first_issuer, cluster.output("identities"))
    empty = depending(PropertyValue(""), [cluster.urn])
    outputs: dict[str, PropertyValue | str | float | bool | None] = {
        "core": core_data(parts),
        "kubeconfig": combine(kubeconfig_of, *parts.kubeconfig_sources),
        "kubeconfigJson": combine(kubeconfig_json, *parts.kubeconfig_sources),
        "eksCluster": cluster.reference,
        "instanceRoles": PropertyValue([]),
        "clusterSecurityGroupId": own_group,
        "nodeSecurityGroupId": own_group,
        "clusterIngressRuleId": empty,
        "defaultNodeGroupAsgName": empty,
        "fargateProfileId": empty,
        "fargateProfileStatus": empty,
        "oidcProviderArn": empty,
        "oidcProviderUrl": issuer,
        "oidcIssuer": combine(lambda url: url.replace("https://", ""), issuer),
        "autoModeNodeRoleName": empty,
    }
    return members(record(outputs))


def core_data(parts: ClusterParts) -> PropertyValue:
    """The output `core`."""
    entries = parts.input("accessEntries")
    return record(
        {
            "cluster": parts.cluster.reference,
            "vpcId": parts.input("vpcId"),
            "subnetIds": parts.subnet_ids,
            "publicSubnetIds": parts.input("publicSubnetIds"),
            "privateSubnetIds": parts.input("privateSubnetIds"),
            "endpoint": parts.endpoint,
            "provider": parts.provider.reference,
            "instanceRoles": PropertyValue([]),
            "nodeGroupOptions": record({key: parts.input(key) for key in ("nodeSubnetIds", "version")}),
            "kubeconfig": combine(kubeconfig_of, *parts.kubeconfig_sources),
            "vpcCni": parts.cni.reference if parts.cni else None,
            "tags": parts.input("tags"),
            "storageClasses": PropertyValue({}),
            "encryptionConfig": combine(encryption_config, parts.input("encryptionConfigKeyArn")),
            "clusterIamRole": parts.role.reference,
            "accessEntries": PropertyValue(list(members(entries).values()) if is_set(entries) else []),
            "autoModeNodeRoleName": "",
        }
    )


def encryption_config(key_arn: str | None) -> dict[str, object] | None:
    """Envelope encryption of Kubernetes' secrets with a key, if there is one."""
    return {"provider": {"keyArn": key_arn}, "resources": ["secrets"]} if key_arn else None


def first_issuer(identities: list[dict[str, list[dict[str, str]]]] | None) -> str:
    """The URL of the cluster's OIDC issuer, or an empty string."""
    issuers = [oidc.get("issuer", "") for identity in identities or [] for oidc in identity.get("oidcs", [])]
    return issuers[0] if issuers else ""
