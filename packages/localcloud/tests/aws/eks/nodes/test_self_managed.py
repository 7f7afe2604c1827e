"""Instances that others launched become nodes of the cluster that their user data names, if they may."""

from __future__ import annotations

import logging
from base64 import b64encode
from typing import Any

import pytest
import yaml
from localcloud.aws.ec2 import Ec2Instance
from localcloud.aws.eks import reconcile
from localcloud.aws.eks.model import Phase
from localcloud.aws.eks.nodes import self_managed

from packages.localcloud.tests.aws import fakes
from packages.localcloud.tests.aws.fakes import ACCOUNT, World

PROFILE = f"arn:aws:iam::{ACCOUNT}:instance-profile/surge"


@pytest.fixture
def world(world: World) -> World:
    """A cluster, and a role that may join it, with an instance profile."""
    role = world.principals.add_role("surge", fakes.trust("ec2.amazonaws.com"))
    world.principals.profiles[PROFILE] = role
    world.call("CreateAccessEntry", clusterName="demo", principalArn=role, type="EC2_LINUX")
    return world


def user_data(world: World, kubelet: Any = None, **changed: Any) -> bytes:
    """Return user data in YAML with the cluster's coordinates, some of them changed."""
    plane = world.machine.planes[0]
    cluster = {
        "name": "demo",
        "apiServerEndpoint": plane.endpoint,
        "certificateAuthority": b64encode(plane.ca_pem.encode()).decode(),
        "cidr": "172.20.0.0/16",
    }
    spec = {"cluster": cluster | changed, "kubelet": kubelet or {}}
    return yaml.safe_dump({"apiVersion": "node.eks.aws/v1alpha1", "kind": "NodeConfig", "spec": spec}).encode()


def launch(world: World, **fields: Any) -> Ec2Instance:
    given = {"user_data": user_data(world), "profile_arn": PROFILE} | fields
    return world.ec2.start("subnet-b", **given)


def phases(world: World) -> dict[str, Phase]:
    workers = world.eks.clusters["demo"].self_managed.workers
    return {worker.instance_id: worker.phase for worker in workers.values()}


def test_an_instance_becomes_a_node_with_what_its_node_config_says(world: World) -> None:
    taint = {"key": "karpenter.sh/unregistered", "effect": "NoExecute"}
    flags = ["--node-labels=karpenter.sh/nodepool=surge,role=worker"]
    told = user_data(world, {"config": {"maxPods": 29, "registerWithTaints": [taint]}, "flags": flags})
    instance = launch(world, user_data=told, instance_type="t3.medium")
    world.turn(2)
    spec = world.machine.nodes[instance.id].spec
    assert spec["labels"] == {"karpenter.sh/nodepool": "surge", "role": "worker"}
    assert spec["taints"] == [{**taint, "value": ""}]
    assert spec["kubelet"] == {"clusterDNS": ["172.20.0.10"], "maxPods": 29}
    assert (spec["name"], spec["private_ip"]) == (instance.private_dns_name, instance.private_ip)
    assert (spec["instance_type"], spec["memory_mib"], spec["zone"]) == ("t3.medium", 4096, "us-west-2b")
    assert world.eks.clusters["demo"].self_managed.workers[instance.id].ready


def test_a_node_can_be_named_by_its_instance_id(world: World) -> None:
    instance = launch(world, user_data=user_data(world) + b"  featureGates: {InstanceIdNodeName: true}\n")
    world.turn()
    assert world.machine.nodes[instance.id].spec["name"] == instance.id


def test_a_terminated_instances_node_ends_at_once_and_its_node_object_soon(world: World) -> None:
    instance = launch(world)
    world.turn(2)
    world.ec2.terminate(instance.id)
    world.turn()
    assert world.machine.nodes[instance.id].ended == "powered off"
    assert world.machine.planes[0].deleted_nodes == []
    world.turn(later_seconds=6)
    assert world.machine.planes[0].deleted_nodes == [instance.private_dns_name]
    assert phases(world) == {}


def test_a_stopped_instance_is_not_terminated_and_its_node_comes_back_with_it(world: World) -> None:
    instance = launch(world)
    world.turn(2)
    node = world.machine.nodes[instance.id]
    world.ec2.states[instance.id] = "stopped"
    world.turn(2, later_seconds=60)
    assert (node.running, phases(world)) == (False, {instance.id: Phase.DEAD})
    assert world.machine.planes[0].deleted_nodes == []
    world.ec2.boot(instance.id)
    world.turn(2)
    assert (node.running, phases(world)) == (True, {instance.id: Phase.UP})


def test_a_reboot_restarts_the_node(world: World) -> None:
    instance = launch(world)
    world.turn(2)
    node = world.machine.nodes[instance.id]
    world.ec2.boot(instance.id)
    world.turn()
    assert (node.ended, node.running) == ("powered off", True)
    assert world.eks.clusters["demo"].self_managed.workers[instance.id].boots == 2


def test_a_node_that_failed_to_start_is_tried_again_on_its_instance(world: World) -> None:
    world.machine.next_node_fails = True
    instance = launch(world)
    world.turn(2)
    assert phases(world) == {instance.id: Phase.FAILED}
    world.machine.nodes[instance.id].fails = False
    world.turn(2, later_seconds=11)
    assert phases(world) == {instance.id: Phase.UP}
    assert world.ec2.running() == {instance.id}


def test_the_instances_of_a_node_group_are_the_groups_own(world: World) -> None:
    world.ec2.template_user_data = user_data(world)
    world.nodegroup(2, launchTemplate={"id": "lt-1"})
    world.turn(3)
    assert len(world.machine.nodes) == 2
    assert phases(world) == {}


def test_a_role_of_a_node_group_may_join_without_an_entry_of_its_own(world: World) -> None:
    world.nodegroup(0)
    world.call("DeleteAccessEntry", clusterName="demo", principalArn=world.node_role)
    world.principals.profiles[PROFILE] = world.node_role
    instance = launch(world)
    world.turn()
    assert phases(world) == {instance.id: Phase.UP}


def test_an_instance_joins_once_its_role_gets_an_access_entry(world: World, caplog: pytest.LogCaptureFixture) -> None:
    role = world.principals.add_role("late", fakes.trust("ec2.amazonaws.com"))
    world.principals.profiles["late"] = role
    instance = launch(world, profile_arn="late")
    world.turn(3)
    assert caplog.text.count(f"{instance.id} ({instance.private_dns_name}) is not a node: its role {role} has no") == 1
    assert phases(world) == {}
    world.call("CreateAccessEntry", clusterName="demo", principalArn=role, type="EC2_LINUX")
    world.turn()
    assert phases(world) == {instance.id: Phase.UP}


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"user_data": b"#!/bin/bash\n"}, "its user data has no NodeConfig"),
        ({"user_data": b"kind: NodeConfig\napiVersion: node.eks.aws/v1alpha1"}, "has no spec.cluster.name"),
        ({"user_data": b"kind: [node.eks.aws"}, "is not YAML"),
        ({"profile_arn": None}, "has no instance profile"),
        ({"profile_arn": "arn:empty"}, "instance profile arn:empty has no role"),
        ({"vpc_id": "vpc-2"}, "it is in vpc-2, and cluster demo in vpc-1"),
    ],
    ids=["script", "no cluster", "not YAML", "no profile", "no role", "other VPC"],
)
def test_an_instance_that_cannot_join_runs_without_a_node_and_the_log_says_why(
    world: World, fields: dict[str, Any], reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    instance = launch(world, **fields)
    world.turn(3)
    assert world.ec2.running() == {instance.id}
    assert world.machine.nodes == {}
    assert caplog.text.count(reason) == 1


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"name": "other"}, "names the cluster 'other', which does not exist"),
        ({"apiServerEndpoint": "https://elsewhere"}, "apiServerEndpoint 'https://elsewhere' is not cluster demo's"),
        ({"certificateAuthority": b64encode(b"x").decode()}, "certificateAuthority is not that of cluster demo"),
    ],
    ids=["name", "endpoint", "authority"],
)
def test_wrong_coordinates_of_the_cluster_are_named(
    world: World, changed: dict[str, str], reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    launch(world, user_data=user_data(world, **changed))
    self_managed.look(world.eks)
    world.turn()
    assert world.machine.nodes == {}
    assert caplog.text.count(reason) == 1


def test_an_entry_of_a_person_lets_no_instance_in(world: World) -> None:
    role = world.principals.profiles[PROFILE]
    world.call("DeleteAccessEntry", clusterName="demo", principalArn=role)
    world.call("CreateAccessEntry", clusterName="demo", principalArn=role)
    launch(world)
    world.turn()
    assert world.machine.nodes == {}


def test_instances_without_user_data_are_nobodys_nodes(world: World, caplog: pytest.LogCaptureFixture) -> None:
    launch(world, user_data=b"")
    world.turn()
    assert world.machine.nodes == {}
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


def test_kubelet_options_without_effect_are_logged(world: World, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    launch(world, user_data=user_data(world, {"config": {"evictionHard": {}}, "flags": ["--root-dir=/x"]}))
    world.turn()
    assert "have no effect on this cloud: evictionHard, --root-dir" in caplog.text


def test_deleting_the_cluster_ends_its_nodes_but_not_their_instances(world: World) -> None:
    instance = launch(world)
    world.turn(2)
    world.call("DeleteCluster", name="demo")
    reconcile.take_down(world.eks, world.eks.clusters["demo"])
    assert world.machine.nodes[instance.id].ended == "powered off"
    assert world.ec2.running() == {instance.id}


def test_instances_wait_for_their_cluster(world: World) -> None:
    state = world.eks.clusters["demo"]
    state.change(status="CREATING")
    launch(world)
    self_managed.look(world.eks)
    assert (world.machine.nodes, world.eks.reasons) == ({}, {})
