"""etcd's manifests, with one member and with three."""

from __future__ import annotations

import pytest

from tests import graph
from workloads.etcd import manifests as etcd
from workloads.manifests import DATA_MOUNT, Manifest
from workloads.storage import CLAIM


def stateful_set(members: int) -> Manifest:
    return etcd.stateful_set_manifest(
        "lab", members=members, image="etcd:1", python_image="python:3", priority_class="high"
    )


def pod(members: int) -> Manifest:
    spec: Manifest = stateful_set(members)["spec"]["template"]["spec"]
    return spec


def volume_of_the_data(members: int) -> Manifest:
    """Return the volume that the program before etcd and etcd itself have at the directory of the data."""
    containers = pod(members)["initContainers"] + pod(members)["containers"]
    mounts = [mount for container in containers for mount in container["volumeMounts"]]
    (name, other) = [mount["name"] for mount in mounts if mount["mountPath"] == DATA_MOUNT["mountPath"]]
    assert name == other
    volume: Manifest = next(each for each in pod(members)["volumes"] if each["name"] == name)
    return volume


def test_each_of_three_members_has_the_others_addresses() -> None:
    command = pod(3)["initContainers"][0]["command"]
    assert [each for each in command if each.startswith("--member=")] == [
        f"--member=etcd-{n},http://etcd-{n}.etcd-peers.lab.svc:2380,http://etcd-{n}.etcd-peers.lab.svc:2379"
        for n in range(3)
    ]


def test_another_number_of_members_uses_another_data_directory() -> None:
    assert etcd.options("lab", 1)["data-dir"] != etcd.options("lab", 3)["data-dir"]


def test_one_member_has_its_data_on_the_shared_file_system_and_three_on_the_disks_of_their_nodes() -> None:
    data = {members: volume_of_the_data(members) for members in (1, 3)}
    assert data[1]["persistentVolumeClaim"]["claimName"] == CLAIM
    assert data[3]["emptyDir"] == {}


def test_one_member_and_three_have_no_volume_of_the_same_name_and_another_kind() -> None:
    # In the preview of a replacement, the API server merges the volumes of both by their names.
    assert volume_of_the_data(1)["name"] != volume_of_the_data(3)["name"]
    one, three = ({each["name"]: each for each in pod(members)["volumes"]} for members in (1, 3))
    assert all(one[name].keys() == three[name].keys() for name in one.keys() & three.keys())


def test_etcd_starts_with_what_the_program_before_it_has_written() -> None:
    (before,), (container,) = pod(3)["initContainers"], pod(3)["containers"]
    (written,) = [each.removeprefix("--config=") for each in before["command"] if each.startswith("--config=")]
    assert container["command"] == ["etcd", f"--config-file={written}"]
    shared = [each["name"] for each in container["volumeMounts"] if written.startswith(each["mountPath"] + "/")]
    assert shared == [each["name"] for each in before["volumeMounts"] if written.startswith(each["mountPath"] + "/")]
    program = etcd.program_manifest("lab")
    assert f"/program/{next(iter(program['data']))}" in before["command"]
    assert {"name": "program", "configMap": {"name": program["metadata"]["name"]}} in pod(3)["volumes"]


def test_members_have_names_before_they_are_ready_and_start_together() -> None:
    assert etcd.peers_service_manifest("lab")["spec"]["publishNotReadyAddresses"] is True
    spec = stateful_set(3)["spec"]
    assert spec["podManagementPolicy"] == "Parallel"
    assert spec["serviceName"] == etcd.peers_service_manifest("lab")["metadata"]["name"]


@pytest.mark.parametrize("members", [1, 3])
def test_no_two_members_are_on_one_node_and_zones_have_as_many_each(members: int) -> None:
    nodes, zones = pod(members)["topologySpreadConstraints"]
    assert (nodes["topologyKey"], nodes["minDomains"]) == ("kubernetes.io/hostname", members)
    assert zones["topologyKey"] == "topology.kubernetes.io/zone"
    for each in (nodes, zones):
        assert (each["maxSkew"], each["whenUnsatisfiable"]) == (1, "DoNotSchedule")
        assert each["labelSelector"]["matchLabels"] == stateful_set(members)["spec"]["selector"]["matchLabels"]


def test_a_node_that_is_drained_holds_no_member_up() -> None:
    assert {each["nodeTaintsPolicy"] for each in pod(3)["topologySpreadConstraints"]} == {"Honor"}


@pytest.mark.parametrize("members", [1, 3])
def test_the_settings_say_how_many_members(members: int) -> None:
    deployed = graph.deploy({**graph.stack_config("Pulumi.local.yaml"), "etcdMembers": members, "systemNodes": members})
    assert deployed.one("kubernetes:apps/v1:StatefulSet").inputs["spec"]["replicas"] == members
    assert deployed.outputs["etcdEndpoint"] == "http://etcd.training.svc:2379"


def test_only_members_and_pods_of_jobs_reach_etcd() -> None:
    policy = etcd.network_policy_manifest("lab")["spec"]
    assert policy["policyTypes"] == ["Ingress"]
    assert [[each["port"] for each in rule["ports"]] for rule in policy["ingress"]] == [[2380, 2379], [2379]]
