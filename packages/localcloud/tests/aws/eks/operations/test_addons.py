"""Addons: versions, configuration, health and deletion."""

from __future__ import annotations

from typing import Any

import pytest
from localcloud.aws.eks.errors import EksError
from localcloud.errors import CloudError

from packages.localcloud.tests.aws import fakes
from packages.localcloud.tests.aws.fakes import World


def create(world: World, **params: Any) -> dict[str, Any]:
    addon: dict[str, Any] = world.call("CreateAddon", **({"clusterName": "demo", "addonName": "vpc-cni"} | params))
    return addon["addon"]  # type: ignore[no-any-return]


def status(world: World, name: str = "vpc-cni") -> str:
    return str(world.call("DescribeAddon", clusterName="demo", addonName=name)["addon"]["status"])


def test_an_addon_without_version_gets_the_newest_one(world: World) -> None:
    assert create(world)["addonVersion"] == "v1.20.4-eksbuild.1"
    assert status(world) == "CREATING"
    world.turn()
    assert status(world) == "ACTIVE"
    assert world.machine.software.installed["vpc-cni"] == ("v1.20.4-eksbuild.1", {})


@pytest.mark.parametrize("text", ['{"a": {"b": 1}}', "a:\n  b: 1\n"], ids=["JSON", "YAML"])
def test_configuration_is_passed_on_as_an_object(world: World, text: str) -> None:
    assert create(world, configurationValues=text)["configurationValues"] == text
    assert world.machine.software.installed["vpc-cni"][1] == {"a": {"b": 1}}


@pytest.mark.parametrize(
    ("params", "text"),
    [
        ({"addonName": "adot"}, "adot"),
        ({"addonVersion": "v0.1"}, r"v0\.1"),
        ({"configurationValues": "[1]"}, "not an object"),
        ({"configurationValues": "{: ["}, "neither JSON nor YAML"),
    ],
    ids=["name", "version", "a list", "garbage"],
)
def test_a_bad_parameter_is_refused_by_name(world: World, params: dict[str, Any], text: str) -> None:
    with pytest.raises(EksError, match=text):
        create(world, **params)


def test_an_addon_is_degraded_while_its_pods_do_not_run(world: World) -> None:
    world.machine.software.statuses["coredns"] = "DEGRADED"
    create(world, addonName="coredns")
    world.turn()
    addon = world.call("DescribeAddon", clusterName="demo", addonName="coredns")["addon"]
    assert (addon["status"], addon["health"]["issues"][0]["code"]) == ("DEGRADED", "InsufficientNumberOfReplicas")
    world.machine.software.statuses["coredns"] = "ACTIVE"
    world.turn()
    assert status(world, "coredns") == "ACTIVE"


def test_deletion_removes_the_software_unless_preserve_is_set(world: World) -> None:
    create(world)
    world.call("DeleteAddon", clusterName="demo", addonName="vpc-cni", preserve="true")
    assert "vpc-cni" in world.machine.software.installed
    create(world)
    world.call("DeleteAddon", clusterName="demo", addonName="vpc-cni")
    assert "vpc-cni" not in world.machine.software.installed
    with pytest.raises(EksError, match="No addon: vpc-cni found in cluster: demo"):
        status(world)


def test_an_update_changes_version_and_configuration(world: World) -> None:
    create(world)
    update = world.call(
        "UpdateAddon",
        clusterName="demo",
        addonName="vpc-cni",
        addonVersion="v1.20.3-eksbuild.1",
        configurationValues='{"x": 1}',
    )["update"]
    assert (update["type"], update["status"]) == ("AddonUpdate", "InProgress")
    assert world.machine.software.installed["vpc-cni"] == ("v1.20.3-eksbuild.1", {"x": 1})


def test_an_addon_is_active_once_its_new_version_is_installed(world: World) -> None:
    create(world)
    world.turn()
    world.eks.pool = pool = fakes.LatePool()  # type: ignore[assignment]
    asked: dict[str, Any] = {"clusterName": "demo", "addonName": "vpc-cni"}
    identity = world.call("UpdateAddon", **asked, addonVersion="v1.20.3-eksbuild.1")["update"]["id"]
    seen = []
    for work in (None, pool.left[0]):
        if work:
            work()
        world.turn()
        described = world.call("DescribeUpdate", name="demo", addonName="vpc-cni", updateId=identity)["update"]
        seen.append((status(world), described["status"]))
    assert seen == [("UPDATING", "InProgress"), ("ACTIVE", "Successful")]


def test_a_failed_update_of_an_addon_says_why(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    create(world)

    def install(*_: Any) -> None:
        raise CloudError("kube-system/aws-node is somebody else's")

    monkeypatch.setattr(world.machine.software, "install", install)
    identity = world.call("UpdateAddon", clusterName="demo", addonName="vpc-cni")["update"]["id"]
    described = world.call("DescribeUpdate", name="demo", addonName="vpc-cni", updateId=identity)["update"]
    (error,) = described["errors"]
    assert (described["status"], error["errorCode"]) == ("Failed", "ConfigurationConflict")
    assert (status(world), error["errorMessage"]) == ("UPDATE_FAILED", "kube-system/aws-node is somebody else's")


def test_an_addon_is_not_degraded_while_the_control_plane_is_updated(world: World) -> None:
    create(world)
    world.turn()
    world.eks.clusters["demo"].change(status="UPDATING")
    world.machine.software.statuses["vpc-cni"] = "DEGRADED"
    world.turn()
    assert status(world) == "ACTIVE"


def test_an_addons_pod_identity_associations_are_deleted_with_it(world: World) -> None:
    wanted = [{"serviceAccount": "aws-node", "roleArn": world.pod_role}]
    addon = create(world, podIdentityAssociations=wanted)
    listed = world.call("ListPodIdentityAssociations", clusterName="demo")["associations"]
    assert [found["associationArn"] for found in listed] == addon["podIdentityAssociations"]
    assert listed[0]["ownerArn"] == addon["addonArn"]
    world.call("DeleteAddon", clusterName="demo", addonName="vpc-cni")
    assert world.call("ListPodIdentityAssociations", clusterName="demo")["associations"] == []


def test_kube_proxy_has_the_version_of_the_cluster(world: World) -> None:
    addon = world.call("DescribeAddonVersions", addonName="kube-proxy", kubernetesVersion="1.34")["addons"][0]
    assert [each["addonVersion"] for each in addon["addonVersions"]] == ["v1.34.6-eksbuild.29"]
    fits = world.call("DescribeAddonVersions", addonName="kube-proxy")["addons"][0]["addonVersions"]
    assert [[each["clusterVersion"] for each in version["compatibilities"]] for version in fits] == [["1.35"], ["1.34"]]
    with pytest.raises(EksError, match=r"v1\.34\.6-eksbuild\.29 specified is not supported: kube-proxy has v1\.35\.3"):
        create(world, addonName="kube-proxy", addonVersion="v1.34.6-eksbuild.29")


def test_an_addon_keeps_its_version_when_its_configuration_changes_after_an_upgrade(
    account: World,
) -> None:
    world = account
    world.cluster(version="1.34")
    create(world, addonName="kube-proxy")
    world.call("UpdateClusterVersion", name="demo", version="1.35")
    seen = []
    for change in ({"configurationValues": '{"x": 1}'}, {"addonVersion": "v1.35.3-eksbuild.29"}):
        world.call("UpdateAddon", clusterName="demo", addonName="kube-proxy", **change)  # type: ignore[arg-type]
        seen.append(world.machine.software.installed["kube-proxy"])
    assert seen == [("v1.34.6-eksbuild.29", {"x": 1}), ("v1.35.3-eksbuild.29", {"x": 1})]


def test_versions_are_listed_newest_first_with_one_default(world: World) -> None:
    addon = world.call("DescribeAddonVersions", addonName="vpc-cni", kubernetesVersion="1.34")["addons"][0]
    versions = [(v["addonVersion"], v["compatibilities"][0]["defaultVersion"]) for v in addon["addonVersions"]]
    assert versions == [("v1.20.4-eksbuild.1", True), ("v1.20.3-eksbuild.1", False)]
    assert world.call("DescribeAddonVersions", addonName="vpc-cni", kubernetesVersion="1.20")["addons"] == []
