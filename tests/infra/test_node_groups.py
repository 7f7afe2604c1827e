"""The node groups follow the settings."""

from __future__ import annotations

import base64
import email
import json
from collections.abc import Mapping
from typing import Any

import pulumi
import pytest

import settings
from infra import node_groups
from infra.node_groups import NODE_MINUTES, UPDATE_MINUTES, most_unavailable
from tests import graph
from tidewater.contract import labels

GROUP = "aws:eks/nodeGroup:NodeGroup"
ELASTIC_JOB = "kubernetes:elastic.pytorch.org/v1alpha1:ElasticJob"
NODE_CLASS = "kubernetes:karpenter.k8s.aws/v1:EC2NodeClass"
PARAMETER = "aws:ssm/getParameter:getParameter"
TEMPLATE = "aws:ec2/launchTemplate:LaunchTemplate"


@pytest.fixture(scope="module")
def production() -> graph.Graph:
    """The production example."""
    return graph.production()


@pytest.fixture(scope="module")
def tuned() -> graph.Graph:
    """The production example with other disks, near one another, with scratch on the instances' own disks."""
    return graph.production(diskGib=500, diskIops=6000, diskThroughput=750, placementGroup=True, instanceStore=True)


def test_with_karpenter_the_worker_group_is_the_core(production: graph.Graph) -> None:
    group = production.one(GROUP, "workers").inputs
    assert group["scalingConfig"] == {"desiredSize": 1, "minSize": 1, "maxSize": 1}
    assert group["capacityType"] == "ON_DEMAND"


def test_without_karpenter_the_worker_group_follows_workers() -> None:
    group = graph.production(surgeNodes="nodegroup", maintenanceWindow="").one(GROUP, "workers").inputs
    assert group["scalingConfig"] == {"desiredSize": 4, "minSize": 1, "maxSize": 16}
    assert group["capacityType"] == "SPOT"


def test_only_a_core_is_labelled_as_one_so_that_the_group_of_an_earlier_release_stays_as_it_is() -> None:
    own = graph.stack_config("Pulumi.local.yaml")
    role = {labels.NODE_ROLE: labels.NODE_ROLE_WORKER}
    for surge_nodes, core in (("karpenter", {labels.NODES: labels.NODES_CORE}), ("nodegroup", {})):
        group = graph.deploy({**own, "surgeNodes": surge_nodes}).one(GROUP, "workers").inputs
        assert group["labels"] == {**role, **core}


def test_a_core_without_nodes_has_a_size_that_eks_accepts() -> None:
    config = {**graph.stack_config("Pulumi.local.yaml"), "minWorkers": 0, "workers": 0}
    group = graph.deploy(config).one(GROUP, "workers").inputs
    assert group["scalingConfig"] == {"desiredSize": 0, "minSize": 0, "maxSize": 1}


def test_a_worker_node_is_replaced_without_a_further_instance_and_repaired(production: graph.Graph) -> None:
    group = production.one(GROUP, "workers").inputs
    assert group["amiType"] == "AL2023_x86_64_NVIDIA"
    assert group["updateConfig"] == {"maxUnavailable": 1, "updateStrategy": "MINIMAL"}
    assert group["nodeRepairConfig"] == {"enabled": True}


def test_a_system_node_is_replaced_when_the_new_one_is_there(production: graph.Graph) -> None:
    group = production.one(GROUP, "system").inputs
    assert group["updateConfig"] == {"maxUnavailable": 1, "updateStrategy": "DEFAULT"}


@pytest.mark.parametrize("nodes", [1, 8, 9, 16, 100, 800])
def test_a_group_of_any_size_is_replaced_in_time(nodes: int) -> None:
    rounds = -(-nodes // most_unavailable(nodes))
    assert rounds * NODE_MINUTES <= UPDATE_MINUTES


def test_no_more_nodes_are_replaced_at_a_time_than_eks_accepts() -> None:
    assert most_unavailable(1000) == 100


def test_only_pods_that_tolerate_the_taint_run_on_worker_nodes(production: graph.Graph) -> None:
    group = production.one(GROUP, "workers").inputs
    assert group["taints"] == [{"key": labels.TAINT_WORKER, "value": "true", "effect": "NO_SCHEDULE"}]
    assert group["labels"][labels.NODE_ROLE] == labels.NODE_ROLE_WORKER
    assert "taints" not in production.one(GROUP, "system").inputs


def test_the_workers_disks_are_as_large_and_as_fast_as_the_settings_say(
    production: graph.Graph, tuned: graph.Graph
) -> None:
    assert _disk(tuned, "workers") == (500, 6000, 750)
    assert _disk(tuned, "system") == _disk(production, "system") == (60, 3000, 125)
    assert _disk(production, "workers") == (100, 3000, 125)
    (mapping,) = tuned.one(NODE_CLASS).inputs["spec"]["blockDeviceMappings"]
    ebs = mapping["ebs"]
    assert (ebs["volumeSize"], ebs["iops"], ebs["throughput"]) == ("500Gi", 6000, 750)


def _disk(deployed: graph.Graph, group: str) -> tuple[int, int, int]:
    (mapping,) = deployed.one(TEMPLATE, group).inputs["blockDeviceMappings"]
    return mapping["ebs"]["volumeSize"], mapping["ebs"]["iops"], mapping["ebs"]["throughput"]


def test_workers_are_in_a_placement_group_if_the_settings_say_so(production: graph.Graph, tuned: graph.Graph) -> None:
    group = tuned.one("aws:ec2/placementGroup:PlacementGroup")
    assert group.inputs["strategy"] == "cluster"
    assert tuned.one(TEMPLATE, "workers").inputs["placement"] == {"groupName": f"name of {group.name}"}
    node_class = tuned.one(NODE_CLASS)
    assert node_class.inputs["spec"]["placementGroupSelector"] == {"name": f"name of {group.name}"}
    for nodes in (tuned.one(GROUP, "workers"), node_class):
        assert tuned.needs(nodes, group), "a group with instances can't be deleted"
    assert "placement" not in tuned.one(TEMPLATE, "system").inputs
    assert not production.all("aws:ec2/placementGroup:PlacementGroup")
    assert "placement" not in production.one(TEMPLATE, "workers").inputs


def test_scratch_is_on_the_instances_own_disks_if_the_settings_say_so(
    production: graph.Graph, tuned: graph.Graph
) -> None:
    message = email.message_from_bytes(base64.b64decode(tuned.one(TEMPLATE, "workers").inputs["userData"]))
    parts = {part.get_content_type(): part.get_payload(decode=True) for part in message.walk()}
    config = parts["application/node.eks.aws"]
    assert isinstance(config, bytes)
    assert json.loads(config)["spec"] == {"instance": {"localStorage": {"strategy": "RAID0"}}}
    assert tuned.one(NODE_CLASS).inputs["spec"]["instanceStorePolicy"] == "RAID0"
    assert "userData" not in tuned.one(TEMPLATE, "system").inputs
    assert "userData" not in production.one(TEMPLATE, "workers").inputs
    assert "instanceStorePolicy" not in production.one(NODE_CLASS).inputs["spec"]


def test_workers_have_an_efa_on_each_network_card_if_the_settings_say_so(production: graph.Graph) -> None:
    fast = graph.production(efa=True, instanceTypes=["p4d.24xlarge"], gpusPerWorker=8, capacityType="ON_DEMAND")
    interfaces = fast.one(TEMPLATE, "workers").inputs["networkInterfaces"]
    places = [(each["networkCardIndex"], each["deviceIndex"], each["interfaceType"]) for each in interfaces]
    assert places == [(0, 0, "interface"), *((card, int(card == 0), "efa-only") for card in range(4))]
    assert all(each["securityGroups"] == [graph.NODES_SECURITY_GROUP] for each in interfaces)
    container = fast.one(ELASTIC_JOB).inputs["spec"]["replicaSpecs"]["Worker"]["template"]["spec"]["containers"][0]
    for asked in ("requests", "limits"):
        assert container["resources"][asked]["vpc.amazonaws.com/efa"] == "4"
    plugin = next(each for each in fast.all("kubernetes:apps/v1:DaemonSet") if "efa" in each.name)
    pod = plugin.inputs["spec"]["template"]["spec"]
    assert pod["containers"][0]["image"] == graph.stack_config("Pulumi.aws.yaml.example")["efaPluginImage"]
    assert pod["nodeSelector"] == {labels.NODE_ROLE: labels.NODE_ROLE_WORKER}
    assert "networkInterfaces" not in fast.one(TEMPLATE, "system").inputs


def test_no_efa_is_on_a_network_card_that_can_have_none() -> None:
    fast = graph.production(efa=True, instanceTypes=["p6-b300.48xlarge"], gpusPerWorker=8, capacityType="ON_DEMAND")
    interfaces = fast.one(TEMPLATE, "workers").inputs["networkInterfaces"]
    places = [(each["networkCardIndex"], each["deviceIndex"], each["interfaceType"]) for each in interfaces]
    assert places == [(0, 0, "interface"), *((card, 0, "efa-only") for card in range(1, 17))]


def test_without_efa_there_is_nothing_of_it(production: graph.Graph) -> None:
    assert "networkInterfaces" not in production.one(TEMPLATE, "workers").inputs
    assert not [each for each in production.all("kubernetes:apps/v1:DaemonSet") if "efa" in each.name]
    assert "vpc.amazonaws.com/efa" not in str(production.one(ELASTIC_JOB).inputs)


def test_nodes_without_gpus_get_the_standard_image() -> None:
    group = graph.deploy(graph.stack_config("Pulumi.local.yaml")).one(GROUP, "workers").inputs
    assert group["amiType"] == "AL2023_x86_64_STANDARD"


def test_an_edited_tag_makes_no_new_version_of_a_launch_template(production: graph.Graph) -> None:
    edited = graph.production(tags={"CostCentre": "operations"})
    for before in production.all(TEMPLATE):
        after = edited.one(TEMPLATE, before.name)
        changed = {name for name in before.inputs if before.inputs[name] != after.inputs[name]}
        assert changed - set(after.ignored) == {"tags"}  # the template's own, which are in no version


def test_an_edited_tag_changes_nothing_of_a_node_group_but_its_tags(production: graph.Graph) -> None:
    edited = graph.production(tags={"CostCentre": "operations"})
    for before in production.all(GROUP):
        after = edited.one(GROUP, before.name)
        assert {name for name in before.inputs if before.inputs[name] != after.inputs[name]} == {"tags"}


def test_instances_and_volumes_carry_the_tags(production: graph.Graph) -> None:
    for template in production.all(TEMPLATE):
        for specification in template.inputs["tagSpecifications"]:
            assert specification["tags"]["Stack"] == "production"
            assert specification["tags"]["CostCentre"] == "research"


@pytest.mark.parametrize("file", ["Pulumi.local.yaml", "Pulumi.aws.yaml.example"])
def test_all_node_groups_have_the_image_of_the_release_that_is_set(file: str) -> None:
    made = graph.deploy({**graph.stack_config(file), "nodeImageVersion": "v20260512"})
    assert {each.inputs["releaseVersion"] for each in made.all(GROUP)} == {"1.35.4-20260512"}


def test_the_release_is_looked_up_for_the_variant_and_the_version_of_kubernetes() -> None:
    assert node_groups.parameter("1.35", "nvidia", "v20260930") == (
        "/aws/service/eks/optimized-ami/1.35/amazon-linux-2023/x86_64/nvidia/"
        "amazon-eks-node-al2023-x86_64-nvidia-1.35-v20260930/release_version"
    )


def test_a_release_that_eks_does_not_have_is_an_error_that_names_the_setting() -> None:
    def ask(token: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        if token == PARAMETER and "-nvidia-" in arguments["name"]:
            raise graph.Refused(f"reading SSM Parameter ({arguments['name']}): couldn't find resource")
        return graph.answer(token, arguments)

    message = (
        r"nodeImageVersion = v20260512: EKS' nvidia image for Kubernetes 1\.35 was not found in this release; choose "
        r"one of .* couldn't find resource"
    )
    with pytest.raises(pulumi.RunError, match=message):
        graph.run(graph.program, {**graph.defaults(), "nodeImageVersion": "v20260512"}, ask=ask)


def test_the_release_is_no_secret_though_the_plug_in_answers_with_one_too() -> None:
    def ask(token: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        found = graph.answer(token, arguments)
        return {**found, "value": pulumi.Output.secret(found["value"])} if token == PARAMETER else found

    made = graph.run(graph.program, graph.defaults(), ask=ask)
    for group in made.all(GROUP):
        assert group.inputs["releaseVersion"] == "1.35.4-20260903"


def made_again(*names: str, status: str = "CREATE_FAILED", stack: str = "local") -> graph.Graph:
    """Run the program in an account in which the cluster has these groups, with the tags of a stack."""

    def ask(token: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        if token == "aws:eks/getNodeGroups:getNodeGroups":
            return {"names": list(names)}
        if token == "aws:eks/getNodeGroup:getNodeGroup":
            return {**arguments, "status": status, "tags": settings.parse(graph.defaults(), stack=stack).own_tags}
        return graph.answer(token, arguments)

    return graph.run(graph.program, graph.stack_config("Pulumi.local.yaml"), ask=ask)


def test_a_group_that_eks_could_not_make_is_deleted_and_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    monkeypatch.setattr(pulumi.log, "warn", said.append)
    made = made_again("tidewater-local-workers-0a1b2c3", "tidewater-local-system-0a1b2c3")
    for kind in ("workers", "system"):
        group = made.one(GROUP, kind)
        assert (group.replaced_on, group.deleted_first) == (("*",), True)
    (workers,) = [each for each in said if "could not make the node group tidewater-local-workers-0a1b2c3" in each]
    assert workers.endswith("run pulumi up --replace '**::aws:eks/nodeGroup:NodeGroup::tidewater-local-workers'")


def test_a_group_that_runs_is_updated_in_place_and_its_replacement_comes_first() -> None:
    for made in (
        made_again("tidewater-local-workers-0a1b2c3", status="DEGRADED"),
        made_again("tidewater-local-system-0a1b2c3"),
        made_again("tidewater-local-workers-system-0a1b2c3", stack="local-workers"),
        made_again(),
    ):
        group = made.one(GROUP, "workers")
        assert (group.replaced_on, group.deleted_first) == ((), False)


def test_before_there_is_a_cluster_no_group_has_failed() -> None:
    def ask(token: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        if token == "aws:eks/getNodeGroups:getNodeGroups":
            raise graph.Refused("ResourceNotFoundException: No cluster found for name: tidewater-local")
        return graph.answer(token, arguments)

    made = graph.run(graph.program, graph.stack_config("Pulumi.local.yaml"), ask=ask)
    assert made.one(GROUP, "workers").replaced_on == ()
