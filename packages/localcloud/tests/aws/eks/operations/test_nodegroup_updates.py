"""Updates of a node group's version: its nodes are replaced one after the other, or the update fails."""

from __future__ import annotations

from typing import Any

import pytest
from localcloud.aws.eks.errors import EksError
from localcloud.aws.eks_images import RELEASES

from packages.localcloud.tests.aws.fakes import World


def updated_versions(world: World) -> list[str]:
    """Return the Kubernetes versions of the nodes that have not ended."""
    return [node.spec["version"] for node in world.machine.nodes.values() if node.ended is None]


def test_a_group_follows_its_cluster_node_by_node(account: World) -> None:
    world = account
    world.cluster(version="1.34")
    assert world.nodegroup(2)["releaseVersion"] == RELEASES["1.34"][0]
    world.turn(3)
    with pytest.raises(EksError, match=r"Version 1\.35 is not supported: the cluster has 1\.34"):
        world.of_group("UpdateNodegroupVersion", version="1.35")
    world.call("UpdateClusterVersion", name="demo", version="1.35")
    assert updated_versions(world) == ["1.34", "1.34"]
    update = world.of_group("UpdateNodegroupVersion", version="1.35")["update"]
    assert update["status"] == "InProgress"
    seen = []
    while world.status() == "UPDATING":
        world.turn()
        seen.append(sorted(updated_versions(world)))
        assert len(seen) < 50
    assert ["1.34", "1.34", "1.35"] in seen, "a new node is there before an old one goes"
    assert min(len(each) for each in seen) == 2
    assert updated_versions(world) == ["1.35", "1.35"]
    group = world.group()
    assert (group["status"], group["version"], group["releaseVersion"]) == ("ACTIVE", "1.35", RELEASES["1.35"][0])
    described = world.call("DescribeUpdate", name="demo", nodegroupName="workers", updateId=update["id"])["update"]
    assert described["status"] == "Successful"
    assert len(world.machine.planes[0].drained) == 2


def test_a_group_that_is_being_updated_takes_no_other_update(world: World) -> None:
    world.nodegroup(1, releaseVersion=RELEASES["1.35"][1])
    world.turn(2)
    world.of_group("UpdateNodegroupVersion")
    with pytest.raises(EksError, match="not in Active state, but UPDATING"):
        world.of_group("UpdateNodegroupConfig", labels={"addOrUpdateLabels": {"a": "b"}})


def begun_update(world: World) -> dict[str, Any]:
    """Begin the update of a group of two nodes; return what names it."""
    world.nodegroup(2, releaseVersion=RELEASES["1.35"][1])
    world.turn(3)
    identity = world.of_group("UpdateNodegroupVersion")["update"]["id"]
    return {"name": "demo", "nodegroupName": "workers", "updateId": identity}


def test_an_update_without_new_nodes_fails_and_leaves_the_old_ones(world: World) -> None:
    asked = begun_update(world)
    old = world.ec2.running()
    world.ec2.without_capacity = {("m5.large", subnet) for subnet in world.ec2.subnets}
    world.turn(3)
    assert world.call("DescribeUpdate", **asked)["update"]["status"] == "InProgress"
    world.turn(3, later_seconds=301)
    update = world.call("DescribeUpdate", **asked)["update"]
    assert (update["status"], update["errors"][0]["errorCode"]) == ("Failed", "NodeCreationFailure")
    assert "InsufficientInstanceCapacity" in update["errors"][0]["errorMessage"]
    group = world.group()
    assert (group["status"], group["releaseVersion"]) == ("ACTIVE", RELEASES["1.35"][1])
    assert world.ec2.running() == old


def test_a_new_node_that_does_not_join_ends_the_update_and_goes(world: World) -> None:
    asked = begun_update(world)
    old = world.ec2.running()
    world.turn()
    (new,) = world.ec2.running() - old
    world.machine.nodes[new].ready = lambda: False  # type: ignore[method-assign]
    world.turn(5)
    assert world.status() == "UPDATING"
    world.turn(5, later_seconds=301)
    assert world.call("DescribeUpdate", **asked)["update"]["status"] == "Failed"
    assert (world.status(), world.ec2.running()) == ("ACTIVE", old)


def test_the_update_of_a_deleted_group_is_cancelled(world: World) -> None:
    asked = begun_update(world)
    state = world.eks.clusters["demo"]
    world.of_group("DeleteNodegroup")
    world.turn(9, later_seconds=60)
    assert world.call("ListNodegroups", clusterName="demo")["nodegroups"] == []
    assert state.updates[asked["updateId"]].status == "Cancelled"


@pytest.mark.parametrize("template", [None, {"id": "lt-2"}], ids=["none", "another"])
def test_a_group_keeps_the_launch_template_that_it_was_created_with(world: World, template: Any) -> None:
    world.nodegroup(1, **({"launchTemplate": template} if template else {}))
    world.turn(3)
    with pytest.raises(EksError, match=r"can't change from launch template (none|lt-2) to lt-1") as caught:
        world.of_group("UpdateNodegroupVersion", launchTemplate={"id": "lt-1"})
    assert caught.value.code == "InvalidParameterException"
    assert world.status() == "ACTIVE"


def test_the_update_of_a_group_is_found_with_the_groups_name_only(world: World) -> None:
    asked = begun_update(world)
    assert world.call("DescribeUpdate", **asked)["update"]["type"] == "VersionUpdate"
    with pytest.raises(EksError, match="No update found") as caught:
        world.call("DescribeUpdate", name="demo", updateId=asked["updateId"])
    assert caught.value.code == "ResourceNotFoundException"
