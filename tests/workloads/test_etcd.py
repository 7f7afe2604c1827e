"""etcd's manifests, with one member and with three."""

from __future__ import annotations

import pytest

from tests import graph
from workloads import etcd


def test_each_of_three_members_has_the_others_addresses() -> None:
    arguments = etcd.arguments("lab", 3)
    assert (
        "--initial-cluster=etcd-0=http://etcd-0.etcd-peers.lab.svc:2380,"
        "etcd-1=http://etcd-1.etcd-peers.lab.svc:2380,etcd-2=http://etcd-2.etcd-peers.lab.svc:2380" in arguments
    )


def test_another_number_of_members_uses_another_data_directory() -> None:
    one, three = ({each.split("=")[0]: each for each in etcd.arguments("lab", members)} for members in (1, 3))
    assert one["--data-dir"] != three["--data-dir"]
    assert one["--initial-cluster-token"] != three["--initial-cluster-token"]


def test_members_have_names_before_they_are_ready_and_start_together() -> None:
    assert etcd.peers_service_manifest("lab")["spec"]["publishNotReadyAddresses"] is True
    stateful_set = etcd.stateful_set_manifest("lab", members=3, image="etcd:1", priority_class="high")
    assert stateful_set["spec"]["podManagementPolicy"] == "Parallel"
    assert stateful_set["spec"]["serviceName"] == etcd.peers_service_manifest("lab")["metadata"]["name"]


@pytest.mark.parametrize("members", [1, 3])
def test_no_two_members_are_on_one_node_and_zones_have_as_many_each(members: int) -> None:
    stateful_set = etcd.stateful_set_manifest("lab", members=members, image="etcd:1", priority_class="high")
    nodes, zones = stateful_set["spec"]["template"]["spec"]["topologySpreadConstraints"]
    assert (nodes["topologyKey"], nodes["minDomains"]) == ("kubernetes.io/hostname", members)
    assert zones["topologyKey"] == "topology.kubernetes.io/zone"
    for each in (nodes, zones):
        assert (each["maxSkew"], each["whenUnsatisfiable"]) == (1, "DoNotSchedule")
        assert each["labelSelector"]["matchLabels"] == stateful_set["spec"]["selector"]["matchLabels"]


def test_a_node_that_is_drained_holds_no_member_up() -> None:
    stateful_set = etcd.stateful_set_manifest("lab", members=3, image="etcd:1", priority_class="high")
    constraints = stateful_set["spec"]["template"]["spec"]["topologySpreadConstraints"]
    assert {each["nodeTaintsPolicy"] for each in constraints} == {"Honor"}


@pytest.mark.parametrize("members", [1, 3])
def test_the_settings_say_how_many_members(members: int) -> None:
    deployed = graph.deploy({**graph.stack_config("Pulumi.local.yaml"), "etcdMembers": members, "systemNodes": members})
    assert deployed.one("kubernetes:apps/v1:StatefulSet").inputs["spec"]["replicas"] == members
    assert deployed.outputs["etcdEndpoint"] == "http://etcd.training.svc:2379"


def test_only_members_and_pods_of_jobs_reach_etcd() -> None:
    policy = etcd.network_policy_manifest("lab")["spec"]
    assert policy["policyTypes"] == ["Ingress"]
    assert [rule["ports"][0]["port"] for rule in policy["ingress"]] == [2380, 2379]
