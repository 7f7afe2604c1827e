"""`eks:index:Cluster`: the control plane, its role, who may use it, and the addons it brings."""

from __future__ import annotations

import asyncio
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from typing import Final

from pulumi.provider.experimental.property_value import PropertyValue

from localcloud.standins.algebra import NULL, combine, first_set, is_set, is_truthy, member, record
from localcloud.standins.eks.arguments import ACCESS_ENTRY, ACCESS_POLICY, ADDON_OPTIONS, VPC_CNI_OPTIONS, check_cluster
from localcloud.standins.eks.components.addons import default_addon, vpc_cni
from localcloud.standins.eks.components.cluster_outputs import (
    ClusterParts,
    cluster_outputs,
    encryption_config,
    kubeconfig_sources,
)
from localcloud.standins.eks.components.kubeconfig import compact_json, kubeconfig_json
from localcloud.standins.eks.scope import Scope, members, provider_reference
from localcloud.standins.monitor import Resource

_PATIENCE_SECONDS: Final = 300.0
_PAUSE_SECONDS: Final = 5.0
_REQUEST_SECONDS: Final = 1.0
_TRUST: Final = {
    "Version": "2012-10-17",
    "Statement": [
        {
            "Action": ["sts:AssumeRole", "sts:TagSession"],
            "Effect": "Allow",
            "Principal": {"Service": ["eks.amazonaws.com"]},
        }
    ],
}
_POLICY: Final = "AmazonEKSClusterPolicy"
_POLICY_HASH: Final = "4b490823"  # of the policy's ARN in the standard partition, in the attachment's name
_IGNORED: Final = (
    # Its default differs between versions of the provider; a difference would replace the cluster.
    "accessConfig.bootstrapClusterCreatorAdminPermissions",
    # It matters on creation only.
    "bootstrapSelfManagedAddons",
)


class ClusterExpansion:
    """Expand one cluster. Each child is registered as soon as what it needs is known."""

    def __init__(self, scope: Scope, name: str, inputs: Mapping[str, PropertyValue], profile: str | None) -> None:
        """
        Args:
            scope: the registered component.
            name: the component's name, which its children's names begin with.
            inputs: the component's inputs.
            profile: the AWS profile of the stack's configuration or the environment, if any.
        """
        check_cluster(inputs)
        self._scope = scope
        self._name = name
        self._inputs = inputs
        self._profile = profile
        for key, options in (
            ("corednsAddonOptions", ADDON_OPTIONS),
            ("kubeProxyAddonOptions", ADDON_OPTIONS),
            ("vpcCniOptions", VPC_CNI_OPTIONS),
        ):
            if is_set(self._input(key)):
                options.check(members(self._input(key)))

    def _input(self, key: str) -> PropertyValue:
        return self._inputs.get(key, NULL)

    async def expand(self) -> dict[str, PropertyValue]:
        """Register the children and returns the component's outputs."""
        scope = self._scope
        partition = await scope.invoke("index/getPartition:getPartition", record({}))
        subnet_ids = self._subnet_ids()
        role, usable = await self._service_role(partition)
        cluster = await self._cluster(subnet_ids, role, usable)
        endpoint = await self._endpoint(cluster)
        (provider, cni), _ = await asyncio.gather(
            self._access_then_cni(cluster, endpoint), self._self_contained_addons(cluster)
        )
        parts = ClusterParts(
            inputs=self._inputs,
            subnet_ids=subnet_ids,
            cluster=cluster,
            endpoint=endpoint,
            role=role,
            provider=provider,
            cni=cni,
        )
        return await scope.close(cluster_outputs(parts))

    def _subnet_ids(self) -> PropertyValue:
        given = self._input("subnetIds")
        if is_set(given):
            return given
        return combine(
            lambda public, private: [*(public or []), *(private or [])],
            self._input("publicSubnetIds"),
            self._input("privateSubnetIds"),
        )

    async def _service_role(self, partition: PropertyValue) -> tuple[Resource, frozenset[str]]:
        """Return the cluster's role, and the URNs that must exist before it is usable."""
        given = self._input("serviceRole")
        if is_set(given):
            return await self._scope.resource(given, "serviceRole"), frozenset()
        name = f"{self._name}-eksRole"
        scope = await self._scope.component("ServiceRole", name)
        inputs = record(
            {
                "description": "Allows EKS to manage clusters on your behalf.",
                "assumeRolePolicy": compact_json(_TRUST),
                "tags": self._input("tags"),
            }
        )
        role = await scope.aws("iam/role:Role", f"{name}-role", inputs)
        arn = combine(lambda part: f"arn:{part}:iam::aws:policy/{_POLICY}", member(partition, "partition"))
        attachment = await scope.aws(
            "iam/rolePolicyAttachment:RolePolicyAttachment",
            f"{name}-{_POLICY_HASH}",
            record({"policyArn": arn, "role": role.identity}),
        )
        await scope.close({"role": role.reference})
        return role, frozenset({role.urn, attachment.urn})

    async def _cluster(self, subnet_ids: PropertyValue, role: Resource, usable: frozenset[str]) -> Resource:
        tags = combine(
            lambda common, own: {"Name": f"{self._name}-eksCluster", **(own or {}), **(common or {})},
            self._input("tags"),
            self._input("clusterTags"),
        )
        vpc_config = record(
            {
                "subnetIds": subnet_ids,
                "endpointPrivateAccess": self._input("endpointPrivateAccess"),
                "endpointPublicAccess": self._input("endpointPublicAccess"),
                "publicAccessCidrs": self._input("publicAccessCidrs"),
            }
        )
        inputs = record(
            {
                "name": self._input("name"),
                "roleArn": role.output("arn"),
                "vpcConfig": vpc_config,
                "kubernetesNetworkConfig": self._network_config(),
                "bootstrapSelfManagedAddons": first_set(self._input("bootstrapSelfManagedAddons"), PropertyValue(True)),
                "version": self._input("version"),
                "enabledClusterLogTypes": self._input("enabledClusterLogTypes"),
                "tags": tags,
                "encryptionConfig": combine(encryption_config, self._input("encryptionConfigKeyArn")),
                "accessConfig": record(
                    {
                        "authenticationMode": self._input("authenticationMode"),
                        "bootstrapClusterCreatorAdminPermissions": True,
                    }
                ),
                "upgradePolicy": self._input("upgradePolicy"),
                "deletionProtection": self._input("deletionProtection"),
            }
        )
        return await self._scope.aws(
            "eks/cluster:Cluster", f"{self._name}-eksCluster", inputs, depends_on=usable, ignore_changes=_IGNORED
        )

    def _network_config(self) -> PropertyValue:
        service_range, family = self._input("kubernetesServiceIpAddressRange"), self._input("ipFamily")
        if not is_truthy(service_range) and not is_truthy(family):
            return NULL
        return combine(kubernetes_network_config, service_range, family)

    async def _endpoint(self, cluster: Resource) -> PropertyValue:
        endpoint = cluster.output("endpoint")
        url = endpoint.value
        if isinstance(url, str) and not self._scope.preview and is_truthy(self._input("endpointPublicAccess")):
            await asyncio.to_thread(reachable, url)
        return endpoint

    def _profile_name(self) -> PropertyValue:
        given = self._input("providerCredentialOpts")
        if is_truthy(given):
            return member(given, "profileName")
        return PropertyValue(self._profile) if self._profile else NULL

    async def _access_then_cni(self, cluster: Resource, endpoint: PropertyValue) -> tuple[Resource, Resource | None]:
        """Register the kubernetes provider, the access entries and then the addon vpc-cni, which needs them."""
        provider, entries = await asyncio.gather(
            self._kubernetes_provider(cluster, endpoint),
            access_entries(self._scope, self._name, cluster, self._input("accessEntries")),
        )
        return provider, await self._vpc_cni(cluster, provider, entries)

    async def _kubernetes_provider(self, cluster: Resource, endpoint: PropertyValue) -> Resource:
        # Only this program's own provider uses the profile; the kubeconfig output is for every user.
        role_arn = member(self._input("providerCredentialOpts"), "roleArn")
        sources = kubeconfig_sources(cluster, endpoint, role_arn, self._profile_name())
        text = combine(kubeconfig_json, *sources)
        return await self._scope.provider("kubernetes", f"{self._name}-eks-k8s", record({"kubeconfig": text}))

    async def _self_contained_addons(self, cluster: Resource) -> None:
        """Register kube-proxy, and coredns on request: by default coredns runs on the default node group."""
        tags = self._input("tags")
        proxy, dns = self._input("kubeProxyAddonOptions"), self._input("corednsAddonOptions")
        work = []
        if member(proxy, "enabled").value is not False:
            work.append(default_addon(self._scope, self._name, "kube-proxy", cluster, proxy, tags))
        if member(dns, "enabled").value is True or is_truthy(member(dns, "configurationValues")):
            work.append(default_addon(self._scope, self._name, "coredns", cluster, dns, tags))
        await asyncio.gather(*work)

    async def _vpc_cni(self, cluster: Resource, provider: Resource, entries: frozenset[str]) -> Resource | None:
        if is_truthy(self._input("useDefaultVpcCni")):
            return None
        name = f"{self._name}-vpc-cni"
        scope = await self._scope.component(
            "VpcCniAddon", name, depends_on=entries, providers={"kubernetes": provider_reference(provider)}
        )
        options = members(self._input("vpcCniOptions")) if is_set(self._input("vpcCniOptions")) else {}
        options |= {"clusterName": cluster.output("name"), "clusterVersion": cluster.output("version")}
        if is_set(self._input("tags")):
            options["tags"] = self._input("tags")
        made = await vpc_cni(scope, name, options)
        await scope.close({"addon": made.reference})
        return Resource(scope.urn)


def kubernetes_network_config(service_range: str | None, family: str | None) -> dict[str, object]:
    """The cluster's address family; a range of services can be chosen for IPv4 only."""
    config: dict[str, object] = {"ipFamily": family or "ipv4"}
    if config["ipFamily"] == "ipv4" and service_range:
        config["serviceIpv4Cidr"] = service_range
    return config


def reachable(url: str) -> bool:
    """Wait until `URL/healthz` answers; give up without an error: the first use of the cluster reports a better one.

    Any answer counts, a refusal of the anonymous caller too: the server is there.
    """
    deadline = time.monotonic() + _PATIENCE_SECONDS
    anybody = ssl.create_default_context()
    anybody.check_hostname = False
    anybody.verify_mode = ssl.CERT_NONE
    while True:
        try:
            urllib.request.urlopen(f"{url}/healthz", timeout=_REQUEST_SECONDS, context=anybody).close()
            return True
        except urllib.error.HTTPError as error:
            if error.code < 500:
                return True
        except OSError:
            pass  # not there yet
        if time.monotonic() + _PAUSE_SECONDS > deadline:
            return False
        time.sleep(_PAUSE_SECONDS)


async def access_entries(scope: Scope, name: str, cluster: Resource, given: PropertyValue) -> frozenset[str]:
    """Make an access entry for each member of `given`, and the associations under it. Return the entries' URNs."""
    entries = members(given) if is_set(given) else {}
    made = await asyncio.gather(*(_entry(scope, f"{name}-{key}", cluster, value) for key, value in entries.items()))
    return frozenset(entry.urn for entry in made)


async def _entry(scope: Scope, name: str, cluster: Resource, value: PropertyValue) -> Resource:
    fields = members(value)
    ACCESS_ENTRY.check(fields)
    inputs = record(
        {
            "clusterName": cluster.output("name"),
            "principalArn": fields["principalArn"],
            "kubernetesGroups": fields.get("kubernetesGroups", NULL),
            "tags": fields.get("tags", NULL),
            "type": fields.get("type", NULL),
            "userName": fields.get("username", NULL),
        }
    )
    after_cluster = frozenset({cluster.urn})
    entry = await scope.aws("eks/accessEntry:AccessEntry", name, inputs, depends_on=after_cluster)
    policies = fields.get("accessPolicies", NULL)
    if is_set(policies):
        await asyncio.gather(
            *(
                _association(scope, f"{name}-{key}", cluster, entry, fields["principalArn"], policy)
                for key, policy in members(policies).items()
            )
        )
    return entry


async def _association(
    scope: Scope, name: str, cluster: Resource, entry: Resource, principal: PropertyValue, policy: PropertyValue
) -> None:
    fields = members(policy)
    ACCESS_POLICY.check(fields)
    inputs = record(
        {
            "accessScope": fields["accessScope"],
            "clusterName": cluster.output("name"),
            "policyArn": fields["policyArn"],
            "principalArn": principal,
        }
    )
    await scope.aws(
        "eks/accessPolicyAssociation:AccessPolicyAssociation",
        name,
        inputs,
        depends_on=frozenset({entry.urn}),
        parent=entry.urn,
    )
