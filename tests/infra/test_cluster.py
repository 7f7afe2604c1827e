"""The control plane's component, except for the security checks."""

from __future__ import annotations

import asyncio
import json

import pulumi

from infra import cluster
from tests import graph

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
