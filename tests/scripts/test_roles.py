"""The template has the roles that the stack would make, with the same policies."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import settings
from infra.policies import roles
from scripts.policy.scopes import Place
from scripts.roles import read, template, text
from scripts.session import UpError
from tests import graph
from tests.infra.preflight.cluster import existing_cluster
from tests.infra.preflight.roles.given_roles import arns_for
from tests.scripts.policy.test_documents import CONFIGS

ROLE, OWN = "aws:iam/role:Role", "aws:iam/rolePolicy:RolePolicy"
ATTACHMENT = "aws:iam/rolePolicyAttachment:RolePolicyAttachment"
DRAWN = "arn:aws:mock:::tidewater-dev"
"""What the mocks' ARNs begin with."""

STACKS: dict[str, dict[str, Any]] = {
    **{name: CONFIGS[name] for name in ("one node group", "with a key that is there", "with everything")},
    "with teams": {
        "fileAccess": "iam",
        "teams": [{"name": "vision", "maxWorkers": 2}, {"name": "a-1", "maxWorkers": 1}],
        "imageCache": True,
        "checkpoints": "both",
        "trainerPolicyArns": ["arn:aws:iam::aws:policy/x/Y", f"arn:aws:iam::{graph.ACCOUNT}:policy/a/b"],
    },
    "on a cluster that is there": {**existing_cluster.CONFIG, "monitoring": "none"},
}


def printed(stack: settings.Settings) -> dict[str, dict[str, Any]]:
    """Return the properties of the template's roles, by their names in `roleArns`."""
    found = template(stack, Place.of(stack, graph.ACCOUNT))
    assert all(name.isalnum() for name in found["Resources"])  # as CloudFormation wants it
    each = [resource["Properties"] for resource in found["Resources"].values()]
    return dict(zip(found["Metadata"]["roleArns"], each, strict=True))


def drawn(stack: settings.Settings) -> roles.Names:
    """Return the names that the program gets from the mocks."""
    return replace(
        roles.Names.before(stack, graph.ACCOUNT, "aws"),
        bucket=DRAWN,
        key=stack.data_key or f"{DRAWN}-key",
        key_alias="",
        queue=DRAWN,
        log_group=f"{DRAWN}-flow-logs",
        surge_node=f"{DRAWN}-surge-node",
    )


@pytest.mark.parametrize("changes", STACKS.values(), ids=STACKS)
def test_the_roles_are_those_that_the_program_makes(changes: dict[str, Any]) -> None:
    config = {**graph.defaults(), "publicAccessCidrs": [graph.ADDRESS], **changes}
    ask = existing_cluster.ask if config["clusterName"] else graph.answer
    made, stack = graph.run(graph.program, config, "dev", ask=ask), settings.parse(config, stack="dev")
    given, by_pulumi_eks = printed(stack), set() if config["clusterName"] else {"cluster"}
    assert given.keys() == {*stack.role_names}
    labels = {name: name.removeprefix("team-") for name in given.keys() - by_pulumi_eks}
    entries = {each.name: each for each in made.all(ROLE)}
    assert entries.keys() == {f"tidewater-dev-{label}" for label in labels.values()}
    for name, label in labels.items():
        role, entry = given[name], entries[f"tidewater-dev-{label}"]
        assert json.loads(entry.inputs["assumeRolePolicy"]) == role["AssumeRolePolicyDocument"]
        attached = [each.inputs["policyArn"] for each in made.all(ATTACHMENT) if each.inputs["role"] == entry.name]
        assert sorted(attached) == sorted(role["ManagedPolicyArns"])
        own = {
            each.inputs["name"]: each.inputs["policy"] for each in made.all(OWN) if each.inputs["role"] == entry.name
        }
        assert own.keys() == {each["PolicyName"] for each in role["Policies"]}
        wanted = roles.of(stack, drawn(stack))[name].own
        assert {each: json.loads(own[each]) for each in own if each != roles.MOUNT} == {
            each: wanted[each] for each in own if each != roles.MOUNT
        }


def test_the_control_plane_has_the_policy_that_pulumi_eks_gives_it() -> None:
    role = printed(graph.parsed())["cluster"]
    assert role["ManagedPolicyArns"] == ["arn:aws:iam::aws:policy/AmazonEKSClusterPolicy"]
    assert role["AssumeRolePolicyDocument"]["Statement"][0]["Principal"] == {"Service": "eks.amazonaws.com"}


def statement(role: dict[str, Any], sid: str) -> dict[str, Any]:
    (found,) = (
        each for policy in role["Policies"] for each in policy["PolicyDocument"]["Statement"] if each["Sid"] == sid
    )
    return dict(found)


def test_what_is_not_there_yet_is_named_by_the_stacks_name_its_alias_or_a_pattern() -> None:
    found = printed(graph.parsed(**STACKS["with teams"]))
    key = statement(found["trainer"], "UseTheBucketsKey")
    assert key["Resource"] == f"arn:aws:kms:us-west-2:{graph.ACCOUNT}:key/*"
    assert key["Condition"] == {"ForAnyValue:StringEquals": {"kms:ResourceAliases": "alias/tidewater-dev"}}
    assert statement(found["team-vision"], "KeepTheirOwn")["Resource"] == "arn:aws:s3:::tidewater-dev-*/teams/vision/*"
    mount = statement(found["node"], "MountVolumes")
    point = f"arn:aws:elasticfilesystem:us-west-2:{graph.ACCOUNT}:access-point/*"
    assert mount["Condition"]["StringLike"] == {"elasticfilesystem:AccessPointArn": [point]}
    passed = statement(found["karpenter"], "AllowPassingInstanceRole")["Resource"]
    assert passed == f"arn:aws:iam::{graph.ACCOUNT}:role/tidewater-dev-surge-node"


def test_cloudformation_takes_the_roles_of_twenty_teams_from_a_file() -> None:
    teams = [{"name": f"a-team-{number}", "maxWorkers": 1} for number in range(20)]
    stack = graph.parsed(**CONFIGS["with everything"], fileAccess="iam", checkpoints="both", teams=teams)
    assert len(text(template(stack, Place.of(stack, graph.ACCOUNT)))) <= 51_200


def test_with_a_key_and_a_file_system_that_are_there_they_are_named() -> None:
    there = {**existing_cluster.CONFIG, "monitoring": "none", "fileSystemId": "fs-01234567", "fileAccess": "iam"}
    found = printed(graph.parsed(**there, **CONFIGS["with a key that is there"]))
    key = statement(found["trainer"], "UseTheBucketsKey")
    assert (key["Resource"], "Condition" in key) == (CONFIGS["with a key that is there"]["dataKeyArn"], False)
    assert statement(found["node"], "MountVolumes")["Resource"].endswith(":file-system/fs-01234567")


def test_roles_have_the_path_the_boundary_and_in_china_the_partition_of_the_config() -> None:
    boundary = f"arn:aws:iam::{graph.ACCOUNT}:policy/boundary"
    role = printed(graph.parsed(rolePath="/ml/", permissionsBoundary=boundary))["node"]
    assert (role["RoleName"], role["Path"], role["PermissionsBoundary"]) == ("tidewater-dev-node", "/ml/", boundary)
    assert "arn:aws:" not in json.dumps(printed(graph.parsed(region="cn-north-1")))


def test_roles_that_are_given_keep_their_names_and_the_config_may_lack_that_of_a_new_team(tmp_path: Path) -> None:
    (tmp_path / "Pulumi.yaml").write_text((graph.ROOT / "Pulumi.yaml").read_text())
    own = tmp_path / "Pulumi.dev.yaml"
    arns = {**arns_for(), "surge-node": f"arn:aws:iam::{graph.ACCOUNT}:role/central/surge"}
    config = {"roleArns": arns, "fileAccess": "iam", "teams": [{"name": "vision", "maxWorkers": 2}]}
    own.write_text(json.dumps({"config": {f"tidewater:{key}": value for key, value in config.items()}}))
    found = printed(read(tmp_path, "dev"))
    assert (found["surge-node"]["RoleName"], found["surge-node"]["Path"]) == ("surge", "/central/")
    assert statement(found["karpenter"], "AllowPassingInstanceRole")["Resource"] == arns["surge-node"]
    assert found["team-vision"]["RoleName"] == "tidewater-dev-team-vision"
    own.write_text("config: {'tidewater:roleArns': {node: given-node, nodes: x}}")
    with pytest.raises(UpError, match=r"(?s)roleArns.node = given-node: must be the ARN.*nodes: no role has this name"):
        read(tmp_path, "dev")
    own.write_text("config: {'tidewater:workers': 99}")
    with pytest.raises(UpError, match="workers = 99"):
        read(tmp_path, "dev")
