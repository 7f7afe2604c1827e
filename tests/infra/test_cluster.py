"""The control plane's component, except for the security checks."""

from __future__ import annotations

import asyncio
import json
import logging
from typing import Any

import pulumi
import pytest

from infra import cluster
from settings import versions
from tests import graph
from tidewater.contract import labels

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


def eks_makes_the_creators_entry(caller: str, *listed: str) -> bool:
    """Return what the registered cluster says, deployed by `caller` with `listed` as administrators."""

    async def said() -> bool:
        wanted = cluster.unless_listed(pulumi.Output.from_input(caller), listed)
        props = {"name": "c", "accessConfig": {"bootstrapClusterCreatorAdminPermissions": True}}
        args = pulumi.ResourceTransformArgs(
            custom=True, type_="aws:eks/cluster:Cluster", name="c", props=props, opts=pulumi.ResourceOptions()
        )
        result = cluster.creator_entry_by_eks(wanted)(args)
        assert isinstance(result, pulumi.ResourceTransformResult)
        assert result.props["name"] == "c"
        access: Any = result.props["accessConfig"]
        return bool(await access["bootstrapClusterCreatorAdminPermissions"].future())

    return asyncio.run(said())


def test_a_creator_who_is_listed_gets_one_entry_and_not_two() -> None:
    assert not eks_makes_the_creators_entry(ADMIN, ADMIN)
    assert eks_makes_the_creators_entry("arn:aws:iam::123456789012:user/alice", ADMIN)


def test_the_session_of_a_listed_role_with_a_path_is_its_creator() -> None:
    session = "arn:aws:sts::123456789012:assumed-role/AWSReservedSSO_Admin_0123456789abcdef/alice@example.com"
    role = (
        "arn:aws:iam::123456789012:role/aws-reserved/sso.amazonaws.com/us-west-2/AWSReservedSSO_Admin_0123456789abcdef"
    )
    assert not eks_makes_the_creators_entry(session, role)
    assert eks_makes_the_creators_entry(session, role.replace("123456789012", "210987654321"))
    assert eks_makes_the_creators_entry(session, role.replace(":role/", ":user/"))


def test_only_the_cluster_itself_is_told_who_makes_the_creators_entry() -> None:
    async def answer() -> object:
        args = pulumi.ResourceTransformArgs(
            custom=True, type_="aws:iam/role:Role", name="r", props={}, opts=pulumi.ResourceOptions()
        )
        return cluster.creator_entry_by_eks(pulumi.Output.from_input(False))(args)

    assert asyncio.run(answer()) is None


def test_administrators_with_the_same_signs_have_an_entry_each() -> None:
    arns = [f"arn:aws:iam::123456789012:role/{name}" for name in ("team/admin", "team-admin")]
    config = {**graph.stack_config("Pulumi.local.yaml"), "adminArns": arns}
    entries = graph.deploy(config).one("eks:index:Cluster").inputs["accessEntries"]
    assert sorted(each["principalArn"] for each in entries.values()) == sorted(arns)
    assert "123456789012-role-team-admin" in entries, "an entry that exists would be replaced"


def used_kubeconfig(deployed: graph.Graph) -> str:
    """Return what the program's own Kubernetes provider gets, which is a secret."""
    kubeconfig: str = deployed.one("pulumi:providers:kubernetes").inputs["kubeconfig"]["value"]
    return kubeconfig


def test_the_profile_is_part_of_the_kubeconfig() -> None:
    deployed = graph.deploy({**graph.stack_config("Pulumi.local.yaml"), "profile": "research"})
    options = deployed.one("eks:index:Cluster").inputs["providerCredentialOpts"]
    assert options == {"profileName": "research"}
    assert deployed.one("pulumi:providers:aws").inputs["profile"] == "research"
    assert json.loads(deployed.outputs["kubeconfig"])["profile"] == "research"
    assert used_kubeconfig(deployed) == deployed.outputs["kubeconfig"]


def test_without_a_profile_the_kubeconfig_is_that_of_the_component() -> None:
    deployed = graph.deploy(graph.stack_config("Pulumi.local.yaml"))
    assert used_kubeconfig(deployed) == deployed.outputs["kubeconfig"] == graph.KUBECONFIG


def test_without_public_addresses_the_api_is_private() -> None:
    deployed = graph.deploy({**graph.stack_config("Pulumi.local.yaml"), "publicAccessCidrs": []})
    assert deployed.one("eks:index:Cluster").inputs["endpointPublicAccess"] is False


def warnings_of(caplog: pytest.LogCaptureFixture, *cidrs: str) -> list[str]:
    """Return what the program warns of with these addresses."""
    config = {**graph.stack_config("Pulumi.local.yaml"), "publicAccessCidrs": list(cidrs)}
    graph.run(graph.program, config)
    return [record.message for record in caplog.records if record.levelno == logging.WARNING]


def test_an_api_that_nobody_may_reach_is_a_warning_with_the_remedy(caplog: pytest.LogCaptureFixture) -> None:
    (warning,) = warnings_of(caplog)
    assert "publicAccessCidrs[0]" in warning


def test_an_api_with_an_address_is_no_warning(caplog: pytest.LogCaptureFixture) -> None:
    assert warnings_of(caplog, graph.ADDRESS) == []


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


def test_what_the_node_monitoring_agent_asks_about_gpus_runs_on_the_tainted_worker_nodes() -> None:
    agent = graph.deploy(graph.stack_config("Pulumi.aws.yaml.example")).one("aws:eks/addon:Addon", "monitoring-agent")
    values = json.loads(agent.inputs["configurationValues"])["dcgmAgent"]
    assert values["tolerations"] == [{"operator": "Exists"}]
    # By the stack's own label: the addon's list of instance types lacks those that came out after it.
    (term,) = values["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    assert term["matchExpressions"] == [{"key": labels.NODE_ROLE, "operator": "In", "values": ["worker"]}]


def test_without_gpus_the_node_monitoring_agent_looks_for_them_where_it_would_anyway() -> None:
    config = {**graph.stack_config("Pulumi.local.yaml"), "gpusPerWorker": 0}
    agent = graph.deploy(config).one("aws:eks/addon:Addon", "monitoring-agent")
    assert json.loads(agent.inputs["configurationValues"])["dcgmAgent"].keys() == {"tolerations"}
