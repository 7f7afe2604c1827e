"""Clusters: the parameters of CreateCluster, the states of a cluster, updates and deletion."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from localcloud.aws.eks import reconcile
from localcloud.aws.eks.errors import EksError
from localcloud.aws.eks.state import Eks

from packages.localcloud.tests.aws import fakes
from packages.localcloud.tests.aws.fakes import World


@pytest.fixture
def world(account: World) -> World:
    """The account without a cluster."""
    return account


def test_a_cluster_is_creating_until_its_control_plane_runs(world: World) -> None:
    subnets = {"subnetIds": sorted(world.ec2.subnets)}
    made = world.call("CreateCluster", name="demo", roleArn=world.cluster_role, resourcesVpcConfig=subnets)["cluster"]
    assert made["status"] == "CREATING"
    assert "endpoint" not in made
    reconcile.start(world.eks, world.eks.clusters["demo"])
    seen = world.call("DescribeCluster", name="demo")["cluster"]
    assert seen["status"] == "ACTIVE"
    assert seen["endpoint"] == "https://198.18.0.2:6443"
    assert seen["certificateAuthority"]["data"]
    assert seen["identity"]["oidc"]["issuer"].startswith("https://oidc.eks.us-west-2.amazonaws.com/id/")
    assert seen["version"] == "1.35"


def test_the_kubeconfig_has_a_cluster_before_it_is_active_and_until_it_is_deleted(world: World) -> None:
    seen: list[dict[str, tuple[str, str | None]]] = []

    def changed(eks: Eks) -> None:
        seen.append({name: (state.cluster.status, state.cluster.endpoint) for name, state in eks.clusters.items()})

    world.eks.settings = replace(world.eks.settings, changed=changed)
    world.cluster()
    world.call("DeleteCluster", name="demo")
    reconcile.take_down(world.eks, world.eks.clusters["demo"])
    assert seen == [{"demo": ("CREATING", "https://198.18.0.2:6443")}, {}]


def test_a_cluster_has_a_security_group_and_an_interface_in_two_zones(world: World) -> None:
    world.cluster(resourcesVpcConfig={"subnetIds": sorted(world.ec2.subnets), "securityGroupIds": ["sg-own"]})
    group = world.call("DescribeCluster", name="demo")["cluster"]["resourcesVpcConfig"]["clusterSecurityGroupId"]
    assert world.ec2.groups[group].startswith("eks-cluster-sg-demo-")
    assert sorted(world.ec2.interfaces.values()) == ["subnet-a", "subnet-b"]


@pytest.mark.parametrize(
    ("params", "text"),
    [
        ({"name": "-bad"}, "cluster name"),
        ({"version": "1.29"}, r"1\.29.*1\.34"),
        ({"roleArn": "arn:aws:iam::123456789012:role/none"}, "role/none"),
        ({"resourcesVpcConfig": {"subnetIds": ["subnet-a", "subnet-x"]}}, "subnet-x"),
        ({"resourcesVpcConfig": {"subnetIds": ["subnet-a"]}}, "two different AZs"),
        ({"resourcesVpcConfig": {"subnetIds": ["subnet-a", "subnet-b"], "securityGroupIds": ["sg-x"]}}, "sg-x"),
        ({"accessConfig": {"authenticationMode": "NONE"}}, "NONE"),
        ({"kubernetesNetworkConfig": {"serviceIpv4Cidr": "10.9.0.0/16"}}, r"10\.9\.0\.0/16"),
        ({"logging": {"clusterLogging": [{"types": ["gossip"], "enabled": True}]}}, "gossip"),
        ({"outpostConfig": {"outpostArns": ["x"]}}, "outpostConfig"),
        ({"tags": {"aws:x": "y"}}, "aws:x"),
    ],
    ids=lambda value: value if isinstance(value, str) else next(iter(value)),
)
def test_a_bad_parameter_is_refused_by_name_and_creates_nothing(
    world: World, params: dict[str, Any], text: str
) -> None:
    given = {"roleArn": world.cluster_role, "resourcesVpcConfig": {"subnetIds": ["subnet-a", "subnet-b"]}}
    with pytest.raises(EksError, match=text) as caught:
        world.call("CreateCluster", **({"name": "demo"} | given | params))
    assert caught.value.code == "InvalidParameterException"
    assert world.eks.clusters == {}
    assert world.ec2.interfaces == {}


def test_a_cluster_name_can_be_used_only_once(world: World) -> None:
    world.cluster()
    with pytest.raises(EksError, match="already exists") as caught:
        world.cluster()
    assert (caught.value.code, caught.value.status) == ("ResourceInUseException", 409)


def test_a_cluster_with_node_groups_is_not_deleted(world: World) -> None:
    world.cluster()
    world.nodegroup(1)
    with pytest.raises(EksError, match="nodegroups attached") as caught:
        world.call("DeleteCluster", name="demo")
    assert caught.value.code == "ResourceInUseException"


def test_a_cluster_with_deletion_protection_is_not_deleted(world: World) -> None:
    world.cluster(deletionProtection=True)
    with pytest.raises(EksError, match="deletion protection"):
        world.call("DeleteCluster", name="demo")
    world.call("UpdateClusterConfig", name="demo", deletionProtection=False)
    assert world.call("DeleteCluster", name="demo")["cluster"]["status"] == "DELETING"


def test_deletion_protection_is_the_reason_even_if_there_are_node_groups(world: World) -> None:
    world.cluster(deletionProtection=True)
    world.nodegroup(1)
    with pytest.raises(EksError, match="deletion protection"):
        world.call("DeleteCluster", name="demo")


def test_a_deleted_cluster_leaves_nothing_in_the_account(world: World) -> None:
    world.cluster()
    world.call("DeleteCluster", name="demo")
    reconcile.take_down(world.eks, world.eks.clusters["demo"])
    assert world.machine.planes[0].stopped
    assert (world.ec2.interfaces, world.ec2.groups) == ({}, {"sg-own": "own"})
    with pytest.raises(EksError, match="No cluster found for name: demo") as caught:
        world.call("DescribeCluster", name="demo")
    assert (caught.value.code, caught.value.status) == ("ResourceNotFoundException", 404)


def test_an_update_of_logging_changes_the_cluster_and_succeeds(world: World) -> None:
    world.cluster()
    change = {"clusterLogging": [{"types": ["api", "audit"], "enabled": True}]}
    update = world.call("UpdateClusterConfig", name="demo", logging=change)["update"]
    assert (update["status"], update["type"]) == ("InProgress", "LoggingUpdate")
    assert world.call("DescribeUpdate", name="demo", updateId=update["id"])["update"]["status"] == "Successful"
    seen = world.call("DescribeCluster", name="demo")["cluster"]["logging"]["clusterLogging"]
    assert seen[0] == {"types": ["api", "audit"], "enabled": True}
    with pytest.raises(EksError, match="already at the desired configuration"):
        world.call("UpdateClusterConfig", name="demo", logging=change)


def test_a_cluster_goes_to_the_next_version_of_kubernetes(world: World) -> None:
    world.cluster(version="1.34")
    assert world.machine.planes[0].spec["version"] == "1.34"
    update = world.call("UpdateClusterVersion", name="demo", version="1.35")["update"]
    assert (update["status"], update["type"]) == ("InProgress", "VersionUpdate")
    seen = world.call("DescribeCluster", name="demo")["cluster"]
    assert (seen["status"], seen["version"]) == ("ACTIVE", "1.35")
    assert world.machine.planes[0].spec["version"] == "1.35"
    assert world.call("DescribeUpdate", name="demo", updateId=update["id"])["update"]["status"] == "Successful"


def test_a_cluster_that_is_being_updated_takes_no_other_update_and_is_not_deleted(world: World) -> None:
    world.cluster(version="1.34")
    world.eks.pool = fakes.LatePool()  # type: ignore[assignment]
    world.call("UpdateClusterVersion", name="demo", version="1.35")
    calls: dict[str, dict[str, Any]] = {"UpdateClusterVersion": {"version": "1.35"}, "DeleteCluster": {}}
    for operation, params in calls.items():
        with pytest.raises(EksError) as caught:
            world.call(operation, name="demo", **params)
        assert caught.value.code == "ResourceInUseException"
    assert world.call("DescribeCluster", name="demo")["cluster"]["status"] == "UPDATING"


def test_of_two_updates_of_the_version_at_once_one_is_refused(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.cluster(version="1.34")
    world.eks.pool = fakes.LatePool()  # type: ignore[assignment]
    asked: dict[str, Any] = {"name": "demo", "version": "1.35"}

    def meanwhile() -> list[str]:
        monkeypatch.setattr(world.machine, "kubernetes_versions", lambda: ["1.34", "1.35"])
        world.call("UpdateClusterVersion", **asked)
        return ["1.34", "1.35"]

    monkeypatch.setattr(world.machine, "kubernetes_versions", meanwhile)
    with pytest.raises(EksError, match="not in ACTIVE status"):
        world.call("UpdateClusterVersion", **asked)
    assert len(world.eks.clusters["demo"].updates) == 1


def test_a_failed_update_of_the_version_says_why_and_leaves_the_old_one(world: World) -> None:
    world.cluster(version="1.34")
    world.machine.planes[0].breaks = True
    identity = world.call("UpdateClusterVersion", name="demo", version="1.35")["update"]["id"]
    update = world.call("DescribeUpdate", name="demo", updateId=identity)["update"]
    assert (update["status"], update["errors"][0]["errorMessage"]) == ("Failed", "kube-apiserver died")
    seen = world.call("DescribeCluster", name="demo")["cluster"]
    assert (seen["status"], seen["version"]) == ("ACTIVE", "1.34")


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("1.35", "1.35", "already at version 1.35"),
        ("1.35", "1.34", "Unsupported Kubernetes minor version update from 1.35 to 1.34"),
        ("1.34", "1.40", "unsupported Kubernetes version 1.40"),
    ],
    ids=["the same", "back", "unknown"],
)
def test_a_cluster_goes_to_no_other_version(world: World, old: str, new: str, reason: str) -> None:
    world.cluster(version=old)
    with pytest.raises(EksError, match=reason):
        world.call("UpdateClusterVersion", name="demo", version=new)


def test_a_version_that_is_not_built_is_refused_with_the_remedy(world: World) -> None:
    world.machine.versions = ["1.35"]
    with pytest.raises(EksError, match=r"Kubernetes 1\.34 is not installed: run `python3 -m scripts.toolchain prev"):
        world.cluster(version="1.34")


def test_an_update_of_public_access_keeps_the_other_settings(world: World) -> None:
    world.cluster()
    world.call("UpdateClusterConfig", name="demo", resourcesVpcConfig={"publicAccessCidrs": ["192.0.2.0/24"]})
    seen = world.call("DescribeCluster", name="demo")["cluster"]["resourcesVpcConfig"]
    assert seen["publicAccessCidrs"] == ["192.0.2.0/24"]
    assert seen["endpointPublicAccess"]


def test_lists_come_in_pages(world: World) -> None:
    for name in ("a", "b", "c"):
        world.cluster(name)
    first = world.call("ListClusters", maxResults="2")
    assert first["clusters"] == ["a", "b"]
    assert world.call("ListClusters", maxResults="2", nextToken=first["nextToken"]) == {"clusters": ["c"]}
    with pytest.raises(EksError, match="nextToken"):
        world.call("ListClusters", nextToken="forged")


def test_tags_of_every_kind_of_resource_can_be_changed(world: World) -> None:
    world.cluster(tags={"a": "1"})
    arns = [
        world.call("DescribeCluster", name="demo")["cluster"]["arn"],
        world.nodegroup(0)["nodegroupArn"],
        world.call("CreateAddon", clusterName="demo", addonName="vpc-cni")["addon"]["addonArn"],
        world.call("CreateAccessEntry", clusterName="demo", principalArn=world.pod_role)["accessEntry"][
            "accessEntryArn"
        ],
    ]
    for arn in arns:
        world.call("TagResource", resourceArn=arn, tags={"b": "2"})
        world.call("UntagResource", resourceArn=arn, tagKeys="a")
        assert world.call("ListTagsForResource", resourceArn=arn)["tags"] == {"b": "2"}
    with pytest.raises(EksError, match="No resource found"):
        world.call("ListTagsForResource", resourceArn="arn:aws:eks:us-west-2:123456789012:cluster/none")


def test_clusters_have_different_indices_and_a_free_index_is_reused(world: World) -> None:
    world.cluster("a")
    world.cluster("b")
    assert [state.cluster.index for state in world.eks.clusters.values()] == [0, 1]
    reconcile.take_down(world.eks, world.eks.clusters["a"])
    world.cluster("c")
    assert world.eks.clusters["c"].cluster.index == 0


def test_bootstrapped_addons_are_installed_but_not_listed(world: World) -> None:
    world.cluster(bootstrapSelfManagedAddons=True)
    assert sorted(world.machine.software.installed) == ["coredns", "kube-proxy", "vpc-cni"]
    assert world.call("ListAddons", clusterName="demo")["addons"] == []
