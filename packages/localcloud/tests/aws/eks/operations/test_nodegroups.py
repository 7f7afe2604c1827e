"""Node groups: instances are launched, replaced and terminated."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from localcloud.aws.eks import reconcile
from localcloud.aws.eks.errors import EksError
from localcloud.aws.eks_images import RELEASES, image_of

from packages.localcloud.tests.aws.fakes import World


def test_a_group_is_active_once_its_nodes_are_ready(world: World) -> None:
    assert world.nodegroup(2)["status"] == "CREATING"
    world.turn(2)
    assert world.status() == "ACTIVE"
    assert len(world.ec2.running()) == 2
    spec = world.ec2.launched[0]
    assert spec.tags["eks:nodegroup-name"] == "workers"
    assert {launch.subnet for launch in world.ec2.launched} == {"subnet-a", "subnet-b"}


def test_a_node_gets_its_labels_taints_and_size(world: World) -> None:
    taint = {"key": "gpu", "value": "true", "effect": "NO_SCHEDULE"}
    world.nodegroup(1, labels={"role": "worker"}, taints=[taint])
    world.turn()
    spec = next(iter(world.machine.nodes.values())).spec
    assert spec["labels"]["role"] == "worker"
    assert spec["labels"]["eks.amazonaws.com/nodegroup"] == "workers"
    assert spec["taints"] == [{"key": "gpu", "value": "true", "effect": "NoSchedule"}]
    assert (spec["vcpus"], spec["memory_mib"], spec["instance_type"]) == (2, 8192, "m5.large")


def test_a_terminated_instances_node_loses_power_and_is_replaced(world: World) -> None:
    world.nodegroup(2)
    world.turn(2)
    victim = sorted(world.ec2.running())[0]
    world.ec2.terminate(victim)
    world.turn()
    assert world.machine.nodes[victim].ended == "powered off"
    assert len(world.ec2.running()) == 2
    assert world.machine.planes[0].deleted_nodes == []
    world.turn(later_seconds=6)
    assert world.machine.planes[0].deleted_nodes == [world.machine.nodes[victim].spec["name"]]


def stop(world: World, instance: str) -> None:
    world.ec2.states[instance] = "stopped"


def kill_processes(world: World, instance: str) -> None:
    world.machine.nodes[instance].running = False


@pytest.mark.parametrize("end", [stop, kill_processes])
def test_an_instance_whose_node_has_ended_is_terminated_and_replaced(
    world: World, end: Callable[[World, str], None]
) -> None:
    world.nodegroup(1)
    world.turn(2)
    victim = next(iter(world.ec2.running()))
    end(world, victim)
    world.turn(2)
    assert world.ec2.states[victim] == "terminated"
    assert len(world.ec2.running()) == 1


def test_a_failed_start_is_retried_after_a_delay(world: World) -> None:
    world.machine.next_node_fails = True
    world.nodegroup(1)
    world.turn(3)
    assert world.ec2.running() == set()
    world.turn(2, later_seconds=11)
    assert len(world.ec2.running()) == 1
    assert world.status() == "CREATING" or world.status() == "ACTIVE"


def test_scaling_in_drains_nodes_before_terminating_them(world: World) -> None:
    world.nodegroup(2)
    world.turn(2)
    scaling = {"minSize": 0, "maxSize": 8, "desiredSize": 1}
    update = world.of_group("UpdateNodegroupConfig", scalingConfig=scaling)
    assert update["update"]["type"] == "ConfigUpdate"
    world.turn(4)
    drained = world.machine.planes[0].drained
    assert len(drained) == 1
    assert [node.spec["name"] for node in world.machine.nodes.values() if node.ended == "stopped"] == drained
    assert world.machine.planes[0].deleted_nodes == drained
    assert len(world.ec2.running()) == 1
    assert world.status() == "ACTIVE"


def test_scaling_out_adds_only_the_missing_nodes(world: World) -> None:
    world.nodegroup(1)
    world.turn(2)
    first = world.ec2.running()
    world.of_group("UpdateNodegroupConfig", scalingConfig={"desiredSize": 3})
    world.turn(2)
    assert first < world.ec2.running()
    assert len(world.ec2.running()) == 3


def test_deleting_a_group_terminates_its_instances(world: World) -> None:
    world.nodegroup(2)
    world.turn(2)
    world.of_group("DeleteNodegroup")
    assert world.status() == "DELETING"
    world.turn(5)
    assert len(world.machine.planes[0].drained) == 2
    assert world.ec2.running() == set()
    with pytest.raises(EksError, match="No node group found for name: workers"):
        world.status()


def test_a_group_whose_nodes_never_join_fails_with_the_reason(world: World) -> None:
    world.nodegroup(1)
    world.turn()
    for node in world.machine.nodes.values():
        node.ready = lambda: False  # type: ignore[method-assign]
    world.turn(later_seconds=301)
    group = world.group()
    assert group["status"] == "CREATE_FAILED"
    assert group["health"]["issues"][0]["code"] == "NodeCreationFailure"


def health(world: World) -> tuple[str, list[str]]:
    group = world.group()
    return group["status"], [issue["code"] for issue in group["health"]["issues"]]


def test_a_group_without_capacity_is_degraded_until_there_is_some(world: World) -> None:
    world.nodegroup(1)
    world.turn(3)
    world.ec2.without_capacity = {("m5.large", "subnet-a"), ("m5.large", "subnet-b")}
    world.of_group("UpdateNodegroupConfig", scalingConfig={"desiredSize": 2})
    world.turn()
    assert health(world) == ("DEGRADED", ["AsgInstanceLaunchFailures"])
    group = world.group()
    assert "Could not launch On-Demand Instances. InsufficientInstanceCapacity - " in str(group["health"]["issues"])
    assert len(world.ec2.running()) == 1
    world.ec2.without_capacity = set()
    world.turn()
    assert len(world.ec2.running()) == 1  # the next attempt waits
    world.turn(3, later_seconds=11)
    assert health(world) == ("ACTIVE", [])
    assert len(world.ec2.running()) == 2


def issues(world: World) -> str:
    group = world.call("DescribeNodegroup", clusterName="demo", nodegroupName="workers")["nodegroup"]
    return str(group["health"]["issues"])


def test_a_node_that_dies_at_once_is_launched_again_after_a_delay_and_its_log_is_in_the_health(world: World) -> None:
    world.nodegroup(1)
    world.turn()
    (node,) = world.machine.nodes.values()
    node.running, node.log = False, "OSError: mount overlay: Invalid argument"
    world.turn(5)
    assert len(world.ec2.launched) == 1
    assert health(world) == ("CREATING", ["NodeCreationFailure"])
    assert "Instances failed to join the kubernetes cluster: OSError: mount overlay: Invalid argument" in issues(world)
    world.turn(3, later_seconds=11)
    assert len(world.ec2.launched) == 2
    assert health(world) == ("ACTIVE", [])


def test_the_last_error_of_a_kubelet_that_ends_again_and_again_is_in_the_health_until_the_node_is_ready(
    world: World,
) -> None:
    world.nodegroup(1)
    world.turn(2)
    world.call("UpdateNodegroupConfig", clusterName="demo", nodegroupName="workers", scalingConfig={"desiredSize": 2})
    world.turn()
    identity, node = list(world.machine.nodes.items())[-1]
    node.log = "kubelet has ended 3 times, now with status 1: inotify_init: too many open files"
    world.turn()
    assert health(world) == ("DEGRADED", ["NodeCreationFailure"])
    assert "too many open files" in issues(world)
    assert identity in issues(world)
    node.log = ""
    world.turn()
    assert health(world) == ("ACTIVE", [])


def test_a_node_that_can_not_be_started_is_named_in_the_health(world: World) -> None:
    world.machine.next_node_fails = True
    world.nodegroup(1)
    world.turn(3)
    assert health(world) == ("CREATING", ["NodeCreationFailure"])
    assert "containerd died" in issues(world)


def test_a_new_group_without_capacity_fails_with_the_reason_accepts_no_update_and_can_be_deleted(world: World) -> None:
    world.ec2.without_capacity = {("m5.large", "subnet-a"), ("m5.large", "subnet-b")}
    world.nodegroup(1, capacityType="SPOT")
    world.turn()
    assert health(world) == ("CREATING", ["AsgInstanceLaunchFailures"])
    world.turn(later_seconds=301)
    assert health(world) == ("CREATE_FAILED", ["AsgInstanceLaunchFailures"])
    with pytest.raises(EksError, match="currently not in Active state, but CREATE_FAILED"):
        world.of_group("UpdateNodegroupConfig", scalingConfig={"minSize": 0, "desiredSize": 0})
    world.of_group("DeleteNodegroup")
    world.turn(5)
    world.nodegroup(0)
    world.turn()
    assert health(world) == ("ACTIVE", [])


def test_another_type_or_zone_is_taken_where_there_is_capacity(world: World) -> None:
    world.ec2.without_capacity = {("m5.large", "subnet-a"), ("t3.medium", "subnet-a"), ("m5.large", "subnet-b")}
    world.nodegroup(1, instanceTypes=["m5.large", "t3.medium"])
    world.turn(3)
    assert health(world) == ("ACTIVE", [])
    (spec,) = world.ec2.launched
    assert (spec.instance_type, spec.subnet) == ("t3.medium", "subnet-b")


def test_a_node_whose_spot_instance_has_its_notice_is_drained_and_replaced(world: World) -> None:
    world.nodegroup(2, capacityType="SPOT")
    world.turn(3)
    first = sorted(world.ec2.running())[0]
    name = world.ec2.seen[first].private_dns_name
    reconcile.interrupted(world.eks, first)
    world.turn(4)
    assert world.machine.planes[0].drained == [name]
    assert first not in world.ec2.running()
    assert len(world.ec2.running()) == 2


def test_changed_labels_are_applied_to_existing_nodes(world: World) -> None:
    world.nodegroup(1, labels={"old": "1", "kept": "1"})
    world.turn(3)
    world.of_group(
        "UpdateNodegroupConfig",
        labels={"addOrUpdateLabels": {"new": "1"}, "removeLabels": ["old"]},
    )
    world.turn()
    patches = world.machine.planes[0].client.patches
    labels = patches[0][1]["metadata"]["labels"]
    assert (labels["old"], labels["new"], labels["kept"]) == (None, "1", "1")
    assert patches[1][1]["spec"]["taints"] == [{"key": "own", "effect": "NoSchedule"}]


def test_the_node_role_gets_an_access_entry(world: World) -> None:
    world.nodegroup(0)
    entry = world.call("DescribeAccessEntry", clusterName="demo", principalArn=world.node_role)["accessEntry"]
    assert (entry["type"], entry["kubernetesGroups"]) == ("EC2_LINUX", ["system:nodes"])


@pytest.mark.parametrize(
    ("params", "text"),
    [
        ({"instanceTypes": ["m5.largest"]}, r"\[m5\.largest\]"),
        ({"subnets": []}, "subnets"),
        ({"subnets": ["subnet-x"]}, "subnet-x"),
        ({"nodeRole": "arn:aws:iam::123456789012:role/none"}, "role/none"),
        ({"scalingConfig": {"minSize": 2, "maxSize": 3, "desiredSize": 1}}, "Minimum capacity 2"),
        ({"scalingConfig": {"minSize": 0, "maxSize": 1, "desiredSize": 2}}, "desired capacity 2"),
        ({"taints": [{"key": "k", "effect": "NoSchedule"}]}, "NoSchedule"),
        ({"taints": [{"key": "a key", "effect": "NO_SCHEDULE"}]}, "a key=:NoSchedule is no taint"),
        ({"labels": {"node-role.kubernetes.io/worker": ""}}, "may not set the label node-role"),
        ({"capacityType": "CHEAP"}, "CHEAP"),
        ({"launchTemplate": {"id": "lt-x"}}, "lt-x"),
        (
            {"launchTemplate": {"id": "lt-1", "name": "workers"}},
            "Either provide launch template ID or launch template name",
        ),
        ({"warmPoolConfig": {"enabled": True}}, "warmPoolConfig is not supported"),
        ({"amiType": "AL2_x86_64"}, "amiType 'AL2_x86_64' is none of AL2023_x86_64_STANDARD"),
        ({"version": "1.34"}, r"Version 1\.34 is not supported: the cluster has 1\.35"),
        ({"updateConfig": {"updateStrategy": "MINIMAL"}}, "one of maxUnavailable and maxUnavailablePercentage"),
        ({"updateConfig": {"maxUnavailable": 1, "maxUnavailablePercentage": 1}}, "maxUnavailablePercentage"),
        ({"updateConfig": {"maxUnavailable": 101}}, "from 1 to 100"),
        ({"updateConfig": {"maxUnavailable": 1, "updateStrategy": "SLOW"}}, "updateStrategy 'SLOW' is none of"),
    ],
    ids=lambda value: value if isinstance(value, str) else next(iter(value)),
)
def test_a_bad_parameter_is_refused_by_name(world: World, params: dict[str, Any], text: str) -> None:
    with pytest.raises(EksError, match=text) as caught:
        world.nodegroup(1, **params)
    assert caught.value.code == "InvalidParameterException"
    assert world.call("ListNodegroups", clusterName="demo")["nodegroups"] == []


def test_a_launch_template_is_used_and_shown(world: World) -> None:
    shown = world.nodegroup(1, launchTemplate={"id": "lt-1", "version": "3"})
    world.turn()
    assert shown["launchTemplate"] == {"id": "lt-1", "name": "workers", "version": "3"}
    assert world.ec2.launched[0].launch_template == shown["launchTemplate"]


NODE_CONFIG = """apiVersion: node.eks.aws/v1alpha1
kind: NodeConfig
spec:
  cluster: {name: other}
  kubelet: {config: {maxPods: 20}, flags: ["--node-labels=role=reader,disk=fast"]}
"""


def test_the_launch_templates_user_data_adds_to_what_eks_tells_the_nodes(world: World) -> None:
    world.ec2.template_user_data = NODE_CONFIG.encode()
    world.nodegroup(1, launchTemplate={"id": "lt-1"}, labels={"role": "worker", "own": "1"})
    world.turn()
    spec = next(iter(world.machine.nodes.values())).spec
    assert (spec["cluster"], spec["kubelet"]["maxPods"]) == ("demo", 20)
    assert {"role": "reader", "own": "1", "disk": "fast"}.items() <= spec["labels"].items()


def test_a_launch_template_with_a_bad_node_config_is_refused(world: World) -> None:
    world.ec2.template_user_data = NODE_CONFIG.replace("role=reader", "reader").encode()
    with pytest.raises(EksError, match="'reader' must have the form key=value"):
        world.nodegroup(1, launchTemplate={"id": "lt-1"})
    assert world.call("ListNodegroups", clusterName="demo")["nodegroups"] == []


def test_a_rebooted_instances_node_starts_again_and_is_not_replaced(world: World) -> None:
    world.nodegroup(1)
    world.turn(2)
    rebooted = next(iter(world.ec2.running()))
    world.ec2.boot(rebooted)
    world.turn(2)
    assert world.ec2.running() == {rebooted}
    node = world.machine.nodes[rebooted]
    assert (node.ended, node.running) == ("powered off", True)


def test_a_node_group_name_can_be_used_only_once(world: World) -> None:
    world.nodegroup(0)
    with pytest.raises(EksError, match="NodeGroup already exists"):
        world.nodegroup(0)


def test_how_nodes_are_replaced_is_kept_and_shown(world: World) -> None:
    asked = {"maxUnavailablePercentage": 10, "updateStrategy": "MINIMAL"}
    assert world.nodegroup(1, updateConfig=asked)["updateConfig"] == asked


def test_a_group_keeps_the_release_that_it_is_given(world: World) -> None:
    older = RELEASES["1.35"][1]
    assert world.nodegroup(1, releaseVersion=older)["releaseVersion"] == older
    world.turn(2)
    world.of_group("UpdateNodegroupConfig", labels={"addOrUpdateLabels": {"a": "b"}})
    assert world.group()["releaseVersion"] == older
    world.of_group("UpdateNodegroupVersion", releaseVersion=RELEASES["1.35"][0])
    assert world.group()["releaseVersion"] == RELEASES["1.35"][0]


def test_a_release_that_eks_does_not_have_is_refused(world: World) -> None:
    with pytest.raises(EksError, match=r"Requested release version 1\.34\.4-20200101 is not valid for kubernetes"):
        world.nodegroup(1, releaseVersion="1.34.4-20200101")


@pytest.mark.parametrize(("ami_type", "gpus"), [("AL2023_x86_64_NVIDIA", 4), ("AL2023_x86_64_STANDARD", 0)])
def test_a_node_has_the_gpus_of_its_type_if_its_image_has_the_driver(world: World, ami_type: str, gpus: int) -> None:
    world.nodegroup(1, instanceTypes=["g5.12xlarge"], amiType=ami_type)
    world.turn()
    (node,) = world.machine.nodes.values()
    assert node.spec["gpus"] == gpus


def test_the_nodes_image_is_the_one_of_the_release(world: World) -> None:
    world.nodegroup(1, releaseVersion=RELEASES["1.35"][1], amiType="AL2023_x86_64_NVIDIA")
    world.turn()
    wanted = image_of("AL2023_x86_64_NVIDIA", RELEASES["1.35"][1]).id
    assert [spec.image for spec in world.ec2.launched] == [wanted]
    (node,) = world.machine.nodes.values()
    assert node.spec["labels"]["eks.amazonaws.com/nodegroup-image"] == wanted
