"""Policy documents: what the training pods may do, and what not."""

from __future__ import annotations

import fnmatch
from typing import Any

import pytest

from infra import policies

BUCKET = "arn:aws:s3:::bucket"
KEY = "arn:aws:kms:us-west-2:123456789012:key/k"


def allows(document: policies.Document, action: str, resource: str) -> bool:
    """Whether a statement allows the action on the resource, conditions aside."""

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
        ("s3:DeleteObject", "checkpoints/digits/1", False),
        ("s3:GetObject", "elsewhere", False),
    ],
)
def test_training_pods_read_code_and_write_checkpoints(action: str, key: str, allowed: bool) -> None:
    assert allows(policies.trainer(BUCKET, KEY), action, f"{BUCKET}/{key}") is allowed


def test_listing_is_limited_to_their_prefixes() -> None:
    (statement,) = [each for each in policies.trainer(BUCKET, KEY)["Statement"] if each["Action"] == "s3:ListBucket"]
    assert statement["Condition"] == {"StringLike": {"s3:prefix": ["code/*", "checkpoints/*"]}}


def test_a_dataset_in_s3_may_be_read_and_nothing_beside_it() -> None:
    arn = policies.dataset_object_arn("s3://other/data/cats.zip", "aws")
    assert arn == "arn:aws:s3:::other/data/cats.zip"
    document = policies.trainer(BUCKET, KEY, arn)
    assert allows(document, "s3:GetObject", arn)
    assert not allows(document, "s3:GetObject", "arn:aws:s3:::other/data/dogs.zip")


@pytest.mark.parametrize("uri", [None, "https://example.com/cats.zip"])
def test_a_dataset_from_elsewhere_needs_no_right(uri: str | None) -> None:
    assert policies.dataset_object_arn(uri, "aws") is None


def test_pod_identity_may_take_a_role_for_one_service_account_of_one_cluster_only() -> None:
    (statement,) = policies.pod_identity_trust("arn:of:cluster", "lab", "trainer")["Statement"]
    assert statement["Action"] == ["sts:AssumeRole", "sts:TagSession"]
    assert set(statement["Condition"]["StringEquals"].values()) == {"arn:of:cluster", "lab", "trainer"}


def test_the_same_document_is_always_the_same_text() -> None:
    assert policies.to_json({"b": 1, "a": 2}) == policies.to_json({"a": 2, "b": 1})
