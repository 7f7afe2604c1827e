"""The control plane's component, except for the security checks."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pulumi
import pytest

from infra import cluster
from settings import versions
from tests import graph

NODE_GROUP = "aws:eks/nodeGroup:NodeGroup"
ADMIN = "arn:aws:iam::123456789012:role/platform-admins"


def transformed(type_: str) -> pulumi.ResourceTransformResult | None:
    """Return the result of the transform for a resource of pulumi-eks."""
    args = pulumi.ResourceTransformArgs(
        custom=True, type_=type_, name="x", props={"kubeconfig": graph.KUBECONFIG}, opts=pulumi.ResourceOptions()
    )
    return cluster.kubeconfig_stays_secret(args)


def test_the_kubeconfig_stays_secret_in_the_state_of_pulumi_eks_own_provider() -> None:
    async def secret() -> bool:
        result = transformed("pulumi:providers:kubernetes")
        assert result is not None
        return await pulumi.Output.from_input(result.props["kubeconfig"]).is_secret()

    assert asyncio.run(secret())
    assert transformed("aws:eks/cluster:Cluster") is None


def test_every_administrator_gets_an_access_entry() -> None:
    deployed = graph.deploy({**graph.stack_config("Pulumi.local.yaml"), "adminArns": [ADMIN]})
    (entry,) = deployed.one("eks:index:Cluster").inputs["accessEntries"].values()
    assert entry["principalArn"] == ADMIN
    assert entry["accessPolicies"]["admin"]["policyArn"].endswith(":cluster-access-policy/AmazonEKSClusterAdminPolicy")
    assert entry["accessPolicies"]["admin"]["accessScope"] == {"type": "cluster"}


def test_the_profile_is_part_of_the_kubeconfig() -> None:
    deployed = graph.deploy({**graph.stack_config("Pulumi.local.yaml"), "profile": "research"})
    options = deployed.one("eks:index:Cluster").inputs["providerCredentialOpts"]
    assert options == {"profileName": "research"}
    assert deployed.one("pulumi:providers:aws").inputs["profile"] == "research"


def test_without_public_addresses_the_api_is_private() -> None:
    deployed = graph.deploy({**graph.stack_config("Pulumi.local.yaml"), "publicAccessCidrs": []})
    assert deployed.one("eks:index:Cluster").inputs["endpointPublicAccess"] is False


def test_every_aws_resource_gets_the_stacks_tags() -> None:
    deployed = graph.deploy({**graph.stack_config("Pulumi.local.yaml"), "tags": {"Owner": "me"}})
    tags = deployed.one("pulumi:providers:aws").inputs["defaultTags"]
    tags = json.loads(tags) if isinstance(tags, str) else tags
    assert tags["tags"] == {"Owner": "me", "Project": "tidewater", "Stack": "local", "ManagedBy": "pulumi"}


def test_another_kubeconfig_does_not_replace_the_objects() -> None:
    deployed = graph.deploy(graph.stack_config("Pulumi.local.yaml"))
    provider = deployed.one("pulumi:providers:kubernetes").inputs
    assert provider["clusterIdentifier"] == "tidewater-local"
    assert "deleteUnreachable" not in provider


def addon_versions(config: dict[str, Any]) -> dict[str, str]:
    """Return the version of each addon that the program asks for, those of pulumi-eks included."""
    deployed = graph.deploy(config)
    cluster = deployed.one("eks:index:Cluster").inputs
    own = {each.inputs["addonName"]: each.inputs["addonVersion"] for each in deployed.all("aws:eks/addon:Addon")}
    return {
        **own,
        "vpc-cni": cluster["vpcCniOptions"]["addonVersion"],
        "kube-proxy": cluster["kubeProxyAddonOptions"]["version"],
    }


@pytest.mark.parametrize("kubernetes", list(versions.KUBERNETES))
def test_every_addon_has_the_version_of_the_table(kubernetes: str) -> None:
    config = {**graph.stack_config("Pulumi.local.yaml"), "kubernetesVersion": kubernetes}
    assert addon_versions(config) == versions.KUBERNETES[kubernetes].addons
    assert graph.deploy(config).one("eks:index:Cluster").inputs["version"] == kubernetes


def test_eks_is_not_asked_for_extended_support() -> None:
    cluster = graph.deploy(graph.stack_config("Pulumi.local.yaml")).one("eks:index:Cluster").inputs
    assert cluster["upgradePolicy"] == {"supportType": "STANDARD"}


def test_gpu_faults_are_found_and_their_nodes_repaired() -> None:
    deployed = graph.deploy(graph.stack_config("Pulumi.local.yaml"))
    assert "eks-node-monitoring-agent" in addon_versions(graph.stack_config("Pulumi.local.yaml"))
    assert all(group.inputs["nodeRepairConfig"] == {"enabled": True} for group in deployed.all(NODE_GROUP))
