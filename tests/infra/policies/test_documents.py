"""Policy documents: what the training pods may do and what they may not."""

from __future__ import annotations

import fnmatch
import json
from typing import Any

import pytest

from infra import policies
from tests import graph

BUCKET = "arn:aws:s3:::bucket"
KEY = "arn:aws:kms:us-west-2:123456789012:key/k"


def allows(document: policies.Document, action: str, resource: str) -> bool:
    """Return whether a statement allows the action on the resource, without regard to conditions."""

    def matches(patterns: Any, value: str) -> bool:
        patterns = [patterns] if isinstance(patterns, str) else patterns
        return any(fnmatch.fnmatchcase(value, pattern) for pattern in patterns)

    return any(
        each["Effect"] == "Allow" and matches(each["Action"], action) and matches(each["Resource"], resource)
        for each in document["Statement"]
    )


@pytest.mark.parametrize(
    ("action", "key", "allowed"),
    [
        ("s3:GetObject", "code/x.zip", True),
        ("s3:PutObject", "code/x.zip", False),
        ("s3:DeleteObject", "code/x.zip", False),
        ("s3:GetObject", "checkpoints/digits/1", True),
        ("s3:PutObject", "checkpoints/digits/1", True),
        ("s3:DeleteObject", "checkpoints/digits/1", True),
        ("s3:AbortMultipartUpload", "checkpoints/digits/1", True),
        ("s3:DeleteObjectVersion", "checkpoints/digits/1", False),
        ("s3:GetObject", "checkpoints/digits2/1", False),
        ("s3:PutObject", "checkpoints/other/1", False),
        ("s3:GetObject", "elsewhere", False),
    ],
)
def test_training_pods_read_code_and_keep_checkpoints_of_their_job(action: str, key: str, allowed: bool) -> None:
    document = policies.trainer(BUCKET, KEY, checkpoints="checkpoints/digits")
    assert allows(document, action, f"{BUCKET}/{key}") is allowed


@pytest.mark.parametrize("action", ["s3:GetObject", "s3:PutObject", "s3:DeleteObject"])
def test_without_checkpoints_in_s3_the_pods_cannot_write_there(action: str) -> None:
    assert not allows(policies.trainer(BUCKET, KEY), action, f"{BUCKET}/checkpoints/digits/1")


@pytest.mark.parametrize(
    ("checkpoints", "prefixes"),
    [(None, ["code/*"]), ("checkpoints/digits", ["code/*", "checkpoints/digits/*"])],
)
def test_the_pods_list_only_their_prefixes(checkpoints: str | None, prefixes: list[str]) -> None:
    document = policies.trainer(BUCKET, KEY, checkpoints=checkpoints)
    (statement,) = [each for each in document["Statement"] if each["Action"] == "s3:ListBucket"]
    assert statement["Condition"] == {"StringLike": {"s3:prefix": prefixes}}


@pytest.mark.parametrize(("where", "allowed"), [("efs", False), ("s3", True), ("both", True)])
def test_the_role_fits_the_places_of_the_checkpoints(where: str, allowed: bool) -> None:
    deployed = graph.deploy({**graph.stack_config("Pulumi.local.yaml"), "checkpoints": where})
    text = deployed.one("aws:iam/rolePolicy:RolePolicy", "trainer").inputs["policy"]
    assert (":::tidewater-local/checkpoints/digits/*" in text) is allowed
    assert allows(json.loads(text), "s3:PutObject", "arn:aws:mock:::tidewater-local/checkpoints/digits/1") is allowed


def test_a_dataset_in_s3_may_be_read_and_no_other_object() -> None:
    arn = policies.dataset_object_arn("s3://other/data/cats.zip", "aws")
    assert arn == "arn:aws:s3:::other/data/cats.zip"
    document = policies.trainer(BUCKET, KEY, dataset=arn)
    assert allows(document, "s3:GetObject", arn)
    assert not allows(document, "s3:GetObject", "arn:aws:s3:::other/data/dogs.zip")


@pytest.mark.parametrize(
    ("role", "config"),
    [
        pytest.param("trainer", {"dataset": "s3://other/cats.zip"}, id="archive"),
        pytest.param("s3-csi", {"dataset": "s3://other/cats/", "datasetStorage": "s3"}, id="mounted-folder"),
    ],
)
def test_the_key_of_a_datasets_objects_is_used_by_what_reads_them_and_through_s3_only(
    role: str, config: dict[str, str]
) -> None:
    key = "arn:aws:kms:us-west-2:210987654321:key/1234abcd"
    local = {**graph.stack_config("Pulumi.local.yaml"), **config}
    for given, expected in (({"datasetKeyArn": key}, [key]), ({}, [])):
        made = graph.deploy({**local, **given}).all("aws:iam/rolePolicy:RolePolicy")
        (text,) = [each.inputs["policy"] for each in made if each.inputs["name"] == role]
        found = [each for each in json.loads(text)["Statement"] if each["Sid"] == "DecryptDataset"]
        assert [each["Resource"] for each in found] == expected
        assert all(each["Action"] == "kms:Decrypt" for each in found)
        assert all(each["Condition"] == {"StringLike": {"kms:ViaService": "s3.*"}} for each in found)


def test_the_pods_get_further_policies_also_two_of_one_name() -> None:
    arns = ["arn:aws:iam::aws:policy/Reader", "arn:aws:iam::123456789012:policy/team/Reader"]
    deployed = graph.deploy({**graph.stack_config("Pulumi.local.yaml"), "trainerPolicyArns": arns})
    made = [
        each for each in deployed.all("aws:iam/rolePolicyAttachment:RolePolicyAttachment") if "trainer" in each.name
    ]
    assert {each.inputs["policyArn"] for each in made} == set(arns)
    assert len({each.name for each in made}) == len(made) == 2
    role = deployed.one("aws:iam/role:Role", "trainer")
    assert {each.inputs["role"] for each in made} == {role.outputs["name"]}
    assert deployed.outputs["trainerRoleArn"] == role.outputs["arn"]


@pytest.mark.parametrize("uri", [None, "https://example.com/cats.zip"])
def test_a_dataset_from_elsewhere_adds_no_permission(uri: str | None) -> None:
    assert policies.dataset_object_arn(uri, "aws") is None


def test_pod_identity_assumes_a_role_for_one_service_account_of_one_cluster_only() -> None:
    (statement,) = policies.pod_identity_trust("arn:of:cluster", "lab", "trainer")["Statement"]
    assert statement["Action"] == ["sts:AssumeRole", "sts:TagSession"]
    assert set(statement["Condition"]["StringEquals"].values()) == {"arn:of:cluster", "lab", "trainer"}


def test_the_same_document_is_always_the_same_text() -> None:
    assert policies.to_json({"b": 1, "a": 2}) == policies.to_json({"a": 2, "b": 1})
