"""Calls with a `clientRequestToken`: repeated calls create one resource, or start one update."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import pytest
from localcloud.aws.eks import reconcile
from localcloud.aws.eks.errors import EksError

from packages.localcloud.tests.aws.fakes import ACCOUNT, World

USER = f"arn:aws:iam::{ACCOUNT}:user/ann"
Values = dict[str, Any]


@dataclass(frozen=True)
class Kind:
    """A create operation: its parameters, and how to delete what it creates."""

    operation: str
    member: str
    arn: str
    params: Callable[[World], Values]
    delete: Callable[[World, Values], None]

    def create(self, world: World, token: str, **more: Any) -> Values:
        params = {**self.params(world), "clientRequestToken": token, **more}
        made: Values = world.call(self.operation, **params)[self.member]
        return made


def _deleted(operation: str, *keys: str) -> Callable[[World, Values], None]:
    def delete(world: World, made: Values) -> None:
        world.call(operation, **{key: made[key] for key in keys})

    return delete


def _delete_cluster(world: World, made: Values) -> None:
    world.call("DeleteCluster", name=made["name"])
    reconcile.take_down(world.eks, world.eks.clusters[made["name"]])


def _delete_group(world: World, made: Values) -> None:
    _deleted("DeleteNodegroup", "clusterName", "nodegroupName")(world, made)
    world.turn()


def _cluster(world: World) -> Values:
    return {
        "name": "another",
        "roleArn": world.cluster_role,
        "resourcesVpcConfig": {"subnetIds": sorted(world.ec2.subnets)},
    }


def _group(world: World) -> Values:
    scaling = {"minSize": 0, "maxSize": 1, "desiredSize": 0}
    return {
        "clusterName": "demo",
        "nodegroupName": "workers",
        "nodeRole": world.node_role,
        "subnets": sorted(world.ec2.subnets),
        "scalingConfig": scaling,
        "instanceTypes": ["m5.large"],
    }


def _association(world: World) -> Values:
    return {"clusterName": "demo", "namespace": "n", "serviceAccount": "s", "roleArn": world.pod_role}


KINDS = [
    Kind("CreateCluster", "cluster", "arn", _cluster, _delete_cluster),
    Kind("CreateNodegroup", "nodegroup", "nodegroupArn", _group, _delete_group),
    Kind(
        "CreateAddon",
        "addon",
        "addonArn",
        lambda world: {"clusterName": "demo", "addonName": "vpc-cni"},
        _deleted("DeleteAddon", "clusterName", "addonName"),
    ),
    Kind(
        "CreateAccessEntry",
        "accessEntry",
        "accessEntryArn",
        lambda world: {"clusterName": "demo", "principalArn": USER},
        _deleted("DeleteAccessEntry", "clusterName", "principalArn"),
    ),
    Kind(
        "CreatePodIdentityAssociation",
        "association",
        "associationArn",
        _association,
        _deleted("DeletePodIdentityAssociation", "clusterName", "associationId"),
    ),
]
every_kind = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.operation)


def active(world: World, made: Mapping[str, Any]) -> None:
    """Run the reconciler, so that the created resource becomes ACTIVE."""
    if made.get("name") == "another":
        reconcile.start(world.eks, world.eks.clusters["another"])
    world.turn()


@every_kind
def test_a_repeated_request_gets_the_same_reply(world: World, kind: Kind) -> None:
    made = kind.create(world, "one")
    active(world, made)
    assert kind.create(world, "one") == made


@every_kind
def test_another_token_for_an_existing_resource_is_refused(world: World, kind: Kind) -> None:
    kind.create(world, "one")
    for token in ("two", ""):
        with pytest.raises(EksError, match="already") as caught:
            kind.create(world, token)
        assert caught.value.code == "ResourceInUseException"


@every_kind
def test_a_token_with_other_parameters_is_refused_with_the_parameters_names(world: World, kind: Kind) -> None:
    made = kind.create(world, "one")
    with pytest.raises(EksError, match=r"clientRequestToken one .* another value of tags:") as caught:
        kind.create(world, "one", tags={"a": "1"})
    assert caught.value.code == "InvalidParameterException"
    assert kind.create(world, "one") == made


@every_kind
def test_a_request_that_is_repeated_after_a_deletion_creates_a_new_resource(world: World, kind: Kind) -> None:
    made = kind.create(world, "one")
    active(world, made)
    kind.delete(world, made)
    anew = kind.create(world, "one")
    assert anew["createdAt"] > made["createdAt"]
    assert kind.create(world, "one") == anew


@pytest.mark.parametrize("kind", KINDS[:2], ids=lambda kind: kind.operation)
def test_a_resource_that_is_being_deleted_is_not_returned(world: World, kind: Kind) -> None:
    made = kind.create(world, "one")
    active(world, made)
    world.call(kind.operation.replace("Create", "Delete"), **kind.params(world))
    with pytest.raises(EksError, match="already exists"):
        kind.create(world, "one")


def test_a_failed_request_is_carried_out_when_it_is_repeated(world: World) -> None:
    kind = KINDS[-1]
    role = world.principals.roles.pop(world.pod_role)
    with pytest.raises(EksError, match="does not exist"):
        kind.create(world, "one")
    world.principals.roles[world.pod_role] = role
    assert kind.create(world, "one")["associationId"]


def test_a_token_is_valid_for_one_operation_in_one_cluster(world: World) -> None:
    world.cluster("other")
    entry: Values = {"principalArn": USER, "clientRequestToken": "one"}
    made = world.call("CreateAccessEntry", clusterName="demo", **entry)["accessEntry"]
    assert world.call("CreateAccessEntry", clusterName="other", **entry)["accessEntry"] != made
    assert KINDS[2].create(world, "one")["addonName"] == "vpc-cni"


@pytest.mark.parametrize(
    ("operation", "params", "other"),
    [
        ("UpdateClusterVersion", {"name": "older", "version": "1.35"}, {"force": True}),
        ("UpdateClusterConfig", {"name": "older", "deletionProtection": True}, {"deletionProtection": False}),
        ("UpdateAddon", {"clusterName": "older", "addonName": "vpc-cni"}, {"addonVersion": "v1.20.3-eksbuild.1"}),
        ("UpdateNodegroupVersion", {"clusterName": "older", "nodegroupName": "workers"}, {"version": "1.34"}),
        ("UpdateNodegroupConfig", {"clusterName": "older", "nodegroupName": "workers"}, {"labels": {}}),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_repeated_update_is_the_same_update(world: World, operation: str, params: Values, other: Values) -> None:
    world.cluster("older", version="1.34")
    world.call("CreateAddon", clusterName="older", addonName="vpc-cni")
    world.call("CreateNodegroup", **{**_group(world), "clusterName": "older"})
    reconcile.step(world.eks, world.eks.clusters["older"], time.monotonic())
    made = world.call(operation, **params, clientRequestToken="one")
    assert world.call(operation, **params, clientRequestToken="one") == made
    with pytest.raises(EksError, match="clientRequestToken one belongs to"):
        world.call(operation, **(params | other), clientRequestToken="one")
    shown = world.call("ListUpdates", **{"name": "older", **params})["updateIds"]
    assert shown == [made["update"]["id"]]


def test_only_one_of_two_simultaneous_requests_is_carried_out(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    kind = KINDS[-1]
    monkeypatch.undo()  # threads run again
    checked, go_on, ask = threading.Event(), threading.Event(), world.principals.role

    def slow_role(arn: str) -> Any:
        checked.set()
        go_on.wait(60)
        return ask(arn)

    monkeypatch.setattr(world.principals, "role", slow_role)
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(kind.create, world, "one")
        assert checked.wait(60)
        second = pool.submit(kind.create, world, "one")
        time.sleep(0.1)  # so that it arrives while the first is being carried out
        go_on.set()
        assert first.result(60) == second.result(60)
    assert len(world.eks.clusters["demo"].associations) == 1
