"""The policies name what a config needs, on the stack's own resources, in documents that IAM takes."""

from __future__ import annotations

import json
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest

import settings
from infra.policies import Document
from scripts.adopt import kinds
from scripts.policy import documents
from scripts.policy.scopes import Place
from scripts.policy.stacks import account, read
from scripts.session import Session, UpError
from tests import graph
from tests.infra.preflight.cluster import existing_cluster
from tests.infra.preflight.roles.given_roles import arns_for
from tests.infra.preflight.vpc import existing_vpc

MADE_BY_PULUMI_EKS = {
    f"aws:{each}"
    for each in (
        *("eks/cluster:Cluster", "eks/addon:Addon", "iam/role:Role"),
        "iam/rolePolicyAttachment:RolePolicyAttachment",
    )
}
BY_ENTRIES = {"aws:eks/accessEntry:AccessEntry", "aws:eks/accessPolicyAssociation:AccessPolicyAssociation"}
KEY = "arn:aws:kms:us-west-2:123456789012:key/1234abcd"
ADMIN = f"arn:aws:iam::{graph.ACCOUNT}:role/admins"
BOUNDARY = f"arn:aws:iam::{graph.ACCOUNT}:policy/boundary"

CONFIGS: dict[str, dict[str, Any]] = {
    "the defaults": {},
    "one node group": {"surgeNodes": "nodegroup"},
    "one node group that teams share": {
        "surgeNodes": "nodegroup",
        "fileAccess": "iam",
        "teams": [{"name": "vision", "maxWorkers": 4, "userArns": ["arn:aws:iam::123456789012:role/vision"]}],
    },
    "with a key that is there": {"dataKeyArn": KEY},
    "with roles that are there": {"vpcFlowLogs": 14, "roleArns": arns_for(vpcFlowLogs=14)},
    "in a VPC that is there": existing_vpc.CONFIG,
    "on a cluster that is there": existing_cluster.CONFIG,
    "with everything": {
        "vpcFlowLogs": 14,
        "imageCache": True,
        "monitoring": "managed",
        "nodeDiskKeyArn": KEY,
        "placementGroup": True,
        "adminArns": [ADMIN],
        "dataset": "s3://bucket/images/",
        "datasetStorage": "s3",
    },
}


@pytest.mark.parametrize("changes", CONFIGS.values(), ids=CONFIGS)
def test_the_types_are_those_that_the_program_registers(changes: dict[str, Any]) -> None:
    config = {**graph.defaults(), "publicAccessCidrs": [graph.ADDRESS], **changes}
    on_vpc = existing_vpc.ask if config["vpcId"] else graph.answer
    ask = existing_cluster.ask if config["clusterName"] else on_vpc
    made = graph.run(graph.program, config, "dev", ask=ask)
    registered = {each.type for each in made.resources if each.type.startswith("aws:")}
    by_entries = BY_ENTRIES if config["adminArns"] else set()
    by_pulumi_eks = set() if config["clusterName"] else MADE_BY_PULUMI_EKS
    by_pulumi_eks = {each for each in by_pulumi_eks if not config["roleArns"] or not each.startswith("aws:iam/")}
    assert documents.types_of(settings.parse(config, stack="dev")) == registered | by_entries | by_pulumi_eks


def printed(**changes: Any) -> list[Document]:
    stack = graph.parsed(**changes)
    return documents.policies(stack, Place.of(stack, graph.ACCOUNT))


def statement(sid: str, **changes: Any) -> dict[str, Any]:
    (found,) = (each for policy in printed(**changes) for each in policy["Statement"] if each["Sid"] == sid)
    return dict(found)


@pytest.mark.parametrize("changes", CONFIGS.values(), ids=CONFIGS)
def test_each_document_fits_into_a_managed_policy(changes: dict[str, Any]) -> None:
    found = printed(**changes)
    assert all(len("".join(json.dumps(each).split())) <= 6144 for each in found)
    assert len(found) <= 10  # so many managed policies can be attached to a role or user


def test_a_document_is_divided_between_statements() -> None:
    statements = [{"Sid": str(number), "Action": "x" * 40} for number in range(5)]
    found = documents.divided(statements, documents.size(statements[:2]))
    assert [len(each["Statement"]) for each in found] == [2, 2, 1]
    assert [each for policy in found for each in policy["Statement"]] == statements


def test_roles_are_made_only_under_the_stacks_names_and_with_its_boundary() -> None:
    made = statement("NewRoles", rolePath="/ml/", permissionsBoundary=BOUNDARY)
    assert made["Resource"] == [f"arn:aws:iam::{graph.ACCOUNT}:role/ml/tidewater-dev-*"]
    assert made["Condition"] == {"StringEquals": {"iam:PermissionsBoundary": BOUNDARY}}
    assert "Condition" not in statement("NewRoles")


def test_names_without_random_digits_are_not_those_of_a_stack_with_a_longer_name() -> None:
    for sid in ("Alias", "Logs", "Queue", "Cluster", "Rules"):
        for arn in statement(sid, vpcFlowLogs=14)["Resource"]:
            assert not fnmatch(arn.replace("*", "x").replace("tidewater-dev", "tidewater-dev-2", 1), arn), arn


def test_on_a_cluster_of_others_only_the_stacks_own_is_changed() -> None:
    found = statement("Cluster", **{**existing_cluster.CONFIG, "monitoring": "none"})
    platform = f"arn:aws:eks:us-west-2:{graph.ACCOUNT}"
    assert found["Resource"] == [
        f"{platform}:cluster/platform",
        f"{platform}:nodegroup/platform/tidewater-dev-*/*",
        f"{platform}:addon/platform/*",
        f"{platform}:access-entry/platform/role/{graph.ACCOUNT}/tidewater-dev-*/*",
        f"{platform}:podidentityassociation/platform/*",
    ]
    changes = ("UpdateCluster", "DeleteCluster", "CreateAddon", "UpdateAddon", "DeleteAddon", "AssociateAccessPolicy")
    assert not [each for each in found["Action"] if each.removeprefix("eks:").startswith(changes)]


def test_on_a_cluster_of_others_only_entries_of_the_teams_people_are_changed() -> None:
    people = [f"arn:aws:iam::{graph.ACCOUNT}:role/ml/ada", f"arn:aws:iam::{graph.ACCOUNT}:user/bob"]
    teams = [{"name": "vision", "maxWorkers": 2, "userArns": people}]
    changes = {**existing_cluster.CONFIG, "monitoring": "none", "fileAccess": "iam", "teams": teams}
    entry = f"arn:aws:eks:us-west-2:{graph.ACCOUNT}:access-entry/platform"
    assert [each for each in statement("Cluster", **changes)["Resource"] if ":access-entry/" in each] == [
        f"{entry}/role/{graph.ACCOUNT}/tidewater-dev-*/*",
        f"{entry}/role/{graph.ACCOUNT}/ada/*",
        f"{entry}/role/{graph.ACCOUNT}/ml/ada/*",
        f"{entry}/user/{graph.ACCOUNT}/bob/*",
    ]


def test_a_key_that_is_there_is_used_and_no_key_is_made_or_changed() -> None:
    key = statement("Key", dataKeyArn=KEY)
    uses = ("CreateGrant", "Decrypt", "DescribeKey", "GenerateDataKey", "GenerateDataKeyWithoutPlaintext")
    assert (key["Resource"], key["Action"]) == ([KEY], [f"kms:{use}" for use in uses])
    others = [each for policy in printed(dataKeyArn=KEY) for each in policy["Statement"] if each["Sid"] != "Key"]
    assert [action for each in others for action in each["Action"] if action.startswith("kms:")] == []


def test_a_key_that_is_there_can_be_read_also_where_only_the_bucket_has_it() -> None:
    there = {**existing_cluster.CONFIG, "fileSystemId": "fs-01234567", "dataKeyArn": KEY}
    assert statement("Key", **there)["Action"] == ["kms:Decrypt", "kms:DescribeKey", "kms:GenerateDataKey"]


def test_roles_that_are_there_are_read_and_passed_and_no_role_is_made_or_changed() -> None:
    arns = arns_for()
    found = [each for policy in printed(roleArns=arns) for each in policy["Statement"]]
    of_iam = {each["Sid"]: each for each in found if any(action.startswith("iam:") for action in each["Action"])}
    assert of_iam.keys() == {"Roles", "Passed", "ServiceRoles"}
    assert of_iam["Roles"]["Resource"] == of_iam["Passed"]["Resource"] == sorted(arns.values())
    assert of_iam["Roles"]["Action"] == [
        f"iam:{each}" for each in ("GetRole", "ListAttachedRolePolicies", "ListRolePolicies")
    ]
    assert of_iam["Passed"]["Action"] == ["iam:PassRole"]


def test_on_a_cluster_of_others_only_the_entries_of_given_roles_of_nodes_are_changed() -> None:
    changes = {**existing_cluster.CONFIG, "monitoring": "none"}
    arns = {name: f"arn:aws:iam::{graph.ACCOUNT}:role/ml/{name}" for name in arns_for(**changes)}
    found = statement("Cluster", **changes, roleArns=arns)["Resource"]
    entry = f"arn:aws:eks:us-west-2:{graph.ACCOUNT}:access-entry/platform/role/{graph.ACCOUNT}"
    wanted = [f"{entry}/{path}{name}/*" for path in ("ml/", "") for name in arns if name in ("node", "surge-node")]
    assert sorted(each for each in found if ":access-entry/" in each) == sorted(wanted)


def test_a_boundary_can_be_taken_away_only_where_the_config_has_none() -> None:
    take_away = "iam:DeleteRolePermissionsBoundary"
    assert take_away in statement("Roles")["Action"]
    assert take_away not in statement("Roles", permissionsBoundary=BOUNDARY)["Action"]


def test_the_boundary_can_be_read_and_not_changed() -> None:
    found = statement("Boundary", permissionsBoundary=BOUNDARY)
    assert (found["Action"], found["Resource"]) == (["iam:GetPolicy", "iam:GetPolicyVersion"], [BOUNDARY])
    assert all(each["Sid"] != "Boundary" for policy in printed() for each in policy["Statement"])


def test_roles_get_only_the_policies_of_the_stack() -> None:
    mine = f"arn:aws:iam::{graph.ACCOUNT}:policy/data"
    allowed = statement("Attached", trainerPolicyArns=[mine])["Condition"]["ArnEquals"]["iam:PolicyARN"]
    attached = graph.deploy({**graph.defaults(), "publicAccessCidrs": [graph.ADDRESS], "trainerPolicyArns": [mine]})
    arns = {each.inputs["policyArn"] for each in attached.all("aws:iam/rolePolicyAttachment:RolePolicyAttachment")}
    assert {*allowed} == {*arns, "arn:aws:iam::aws:policy/AmazonEKSClusterPolicy"}


def test_in_china_arns_are_of_its_partition() -> None:
    stack = graph.parsed(region="cn-north-1")
    found = json.dumps(documents.policies(stack, Place.of(stack, graph.ACCOUNT)))
    assert "arn:aws-cn:" in found
    assert "arn:aws:" not in found


def test_the_account_is_the_only_allowed_one_without_a_question() -> None:
    assert account(graph.parsed(allowedAccountIds=["210987654321"]), Session(Path(), {})) == "210987654321"


def test_a_stack_with_mistakes_is_refused(tmp_path: Path) -> None:
    (tmp_path / "Pulumi.yaml").write_text((graph.ROOT / "Pulumi.yaml").read_text())
    (tmp_path / "Pulumi.dev.yaml").write_text("config: {'tidewater:workers': 99, 'tidewater:trainerArgs': {secure: x}}")
    with pytest.raises(UpError, match="workers = 99"):
        read(tmp_path, "dev")
    (tmp_path / "Pulumi.dev.yaml").write_text("config: {'tidewater:trainerArgs': {secure: v1:abc}}")
    assert read(tmp_path, "dev").stack == "dev"


def test_what_adopt_lists_is_allowed() -> None:
    services = {"efs": "elasticfilesystem", "s3api": "s3"}
    allowed = [each for policy in printed(**CONFIGS["with everything"]) for each in policy["Statement"]]
    for kind in kinds.KINDS.values():
        service, command = kind.command.split()[:2]
        action = f"{services.get(service, service)}:{''.join(word.capitalize() for word in command.split('-'))}"
        assert any(action in each["Action"] for each in allowed), action
