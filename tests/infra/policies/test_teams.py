"""What teams have in AWS: each its own folder of the bucket and of the file system, and nothing of another's.

The policies that the program writes are put to the evaluator with which the one-machine cloud checks every call.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest
from localcloud.aws.policy import Decision, Query, evaluate

from tests import graph

ADA, BOB = f"arn:aws:iam::{graph.ACCOUNT}:role/ml/ada", f"arn:aws:iam::{graph.ACCOUNT}:user/bob"
TEAMS: dict[str, Any] = {
    "fileAccess": "iam",
    "teams": [
        {"name": "vision", "userArns": [ADA, BOB], "minWorkers": 1, "maxWorkers": 2},
        {"name": "speech", "userArns": [BOB], "maxWorkers": 4},
    ],
}
NAME = "tidewater-production"
BUCKET = f"arn:aws:mock:::{NAME}"
FILES = f"arn:aws:mock:::{NAME}-data"
POINTS = {
    "data": f"arn:aws:mock:::{NAME}-data",
    **{team: f"arn:aws:mock:::{NAME}-team-{team}" for team in ("vision", "speech")},
}
TLS = {"aws:securetransport": ("true",), "elasticfilesystem:accessedviamounttarget": ("true",)}
ANONYMOUS = ("*",)


@pytest.fixture(scope="module")
def made() -> graph.Graph:
    """Return the graph of the production example with two teams."""
    return graph.production(**TEAMS)


def inline(made: graph.Graph, role: str) -> list[dict[str, Any]]:
    """Return the policies that are written into a role."""
    name = f"{NAME}-{role}"
    return [
        json.loads(each.inputs["policy"])
        for each in made.all("aws:iam/rolePolicy:RolePolicy")
        if each.inputs["role"] == name
    ]


def may(made: graph.Graph, role: str, action: str, resource: str, **context: tuple[str, ...]) -> bool:
    """Return whether a role's own policies allow a call."""
    return evaluate(inline(made, role), Query(action, resource, context)) is Decision.ALLOW


def mounts(
    made: graph.Graph, role: str | None, context: Mapping[str, tuple[str, ...]], action: str = "ClientMount"
) -> bool:
    """Return whether EFS lets a client do it: its policy, and those of the client's role if it has one."""
    policy = json.loads(made.one("aws:efs/fileSystemPolicy:FileSystemPolicy").inputs["policy"])
    question = Query(f"elasticfilesystem:{action}", FILES, context, ANONYMOUS)
    return evaluate([policy, *(inline(made, role) if role else ())], question) is Decision.ALLOW


@pytest.mark.parametrize(("own", "other"), [("vision", "speech"), ("speech", "vision")])
@pytest.mark.parametrize("action", ["s3:GetObject", "s3:PutObject", "s3:DeleteObject"])
def test_pods_of_a_team_use_their_own_folder_of_the_bucket_only(
    made: graph.Graph, own: str, other: str, action: str
) -> None:
    assert may(made, own, action, f"{BUCKET}/teams/{own}/checkpoints/1")
    for key in (f"teams/{other}/checkpoints/1", f"teams/{own}2/x", "checkpoints/digits/1", "code/x.zip", "teams/x"):
        assert not may(made, own, action, f"{BUCKET}/{key}"), key


@pytest.mark.parametrize(("own", "other"), [("vision", "speech"), ("speech", "vision")])
def test_pods_of_a_team_list_their_own_folder_only(made: graph.Graph, own: str, other: str) -> None:
    def lists(prefix: str) -> bool:
        return may(made, own, "s3:ListBucket", BUCKET, **{"s3:prefix": (prefix,)})

    assert lists(f"teams/{own}/")
    assert not any(map(lists, (f"teams/{other}/", "teams/", "checkpoints/digits/", "")))
    assert not may(made, own, "s3:ListBucket", BUCKET)


def test_the_stacks_own_pods_use_no_folder_of_a_team(made: graph.Graph) -> None:
    assert not may(made, "trainer", "s3:GetObject", f"{BUCKET}/teams/vision/checkpoints/1")


def test_only_pods_of_its_namespace_get_a_teams_role(made: graph.Graph) -> None:
    for team in ("vision", "speech"):
        role = made.one("aws:iam/role:Role", f"{NAME}-{team}")
        (statement,) = json.loads(role.inputs["assumeRolePolicy"])["Statement"]
        assert statement["Condition"]["StringEquals"]["aws:RequestTag/kubernetes-namespace"] == team
        identity = made.one("aws:eks/podIdentityAssociation:PodIdentityAssociation", f"-{team}-").inputs
        assert (identity["namespace"], identity["serviceAccount"]) == (team, "trainer")
        assert identity["roleArn"] == role.outputs["arn"]


@pytest.mark.parametrize("role", ["node", "surge-node"])
@pytest.mark.parametrize("point", POINTS.values(), ids=POINTS)
def test_nodes_mount_every_access_point_and_not_as_root(made: graph.Graph, role: str, point: str) -> None:
    through = {**TLS, "elasticfilesystem:accesspointarn": (point,)}
    assert mounts(made, role, through)
    assert mounts(made, role, through, "ClientWrite")
    assert not mounts(made, role, through, "ClientRootAccess")
    assert not mounts(made, role, {**through, "aws:securetransport": ("false",)})


def test_nodes_mount_nothing_around_the_access_points(made: graph.Graph) -> None:
    assert not mounts(made, "node", TLS)
    assert not mounts(made, "node", {**TLS, "elasticfilesystem:accesspointarn": ("arn:aws:mock:::another",)})


@pytest.mark.parametrize("role", [None, "trainer", "vision", "speech", "efs-csi", "karpenter"])
@pytest.mark.parametrize("point", POINTS.values(), ids=POINTS)
def test_a_pod_mounts_nothing_without_credentials_nor_with_its_own(
    made: graph.Graph, role: str | None, point: str
) -> None:
    assert not mounts(made, role, {**TLS, "elasticfilesystem:accesspointarn": (point,)})


def test_an_administrator_is_kept_to_the_access_points_too(made: graph.Graph) -> None:
    policy = json.loads(made.one("aws:efs/fileSystemPolicy:FileSystemPolicy").inputs["policy"])
    everything = {"Statement": [{"Effect": "Allow", "Action": "*", "Resource": "*"}]}
    question = Query("elasticfilesystem:ClientRootAccess", FILES, TLS, ANONYMOUS)
    assert evaluate([everything, policy], question) is Decision.DENY


def test_with_iam_but_without_teams_pods_mount_nothing_either() -> None:
    made = graph.production(fileAccess="iam")
    through = {**TLS, "elasticfilesystem:accesspointarn": (POINTS["data"],)}
    assert mounts(made, "node", through)
    assert not mounts(made, None, through)
    (volume,) = made.all("kubernetes:core/v1:PersistentVolume")
    assert volume.inputs["spec"]["mountOptions"] == ["iam"]


def test_without_iam_every_client_in_the_vpc_mounts_as_before() -> None:
    made = graph.production()
    assert mounts(made, None, {**TLS, "elasticfilesystem:accesspointarn": (POINTS["data"],)})
    (volume,) = made.all("kubernetes:core/v1:PersistentVolume")
    assert "mountOptions" not in volume.inputs["spec"]


def test_each_team_has_a_folder_of_its_own_on_the_file_system(made: graph.Graph) -> None:
    roots = {each.name: each.inputs["rootDirectory"]["path"] for each in made.all("aws:efs/accessPoint:AccessPoint")}
    teams = {f"{NAME}-team-{team}": f"/teams/{team}" for team in ("vision", "speech")}
    assert roots == {f"{NAME}-data": "/tidewater", **teams}


def test_a_person_has_one_entry_with_a_group_for_each_team_and_no_policy_of_eks(made: graph.Graph) -> None:
    entries = [each.inputs for each in made.all("aws:eks/accessEntry:AccessEntry") if "kubernetesGroups" in each.inputs]
    assert {each["principalArn"]: each["kubernetesGroups"] for each in entries} == {
        ADA: ["tidewater:vision"],
        BOB: ["tidewater:vision", "tidewater:speech"],
    }
    assert all(each["clusterName"] == NAME for each in entries)
    assert not made.all("aws:eks/accessPolicyAssociation:AccessPolicyAssociation")


def test_a_team_may_have_the_name_of_something_of_the_stacks() -> None:
    """Pulumi refuses two resources of one type, parent and name."""
    made = graph.production(fileAccess="iam", teams=[{"name": "data", "userArns": [ADA], "maxWorkers": 1}])
    assert {each.name for each in made.all("aws:efs/accessPoint:AccessPoint")} == {f"{NAME}-data", f"{NAME}-team-data"}
