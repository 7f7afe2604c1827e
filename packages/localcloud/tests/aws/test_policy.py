"""Policies are evaluated as the IAM documentation says."""

from __future__ import annotations

from typing import Any

import pytest
from localcloud.aws.policy import UNKNOWN_RESOURCE, Decision, Query, evaluate


def statement(**fields: Any) -> dict[str, Any]:
    return {"Effect": "Allow", "Action": "s3:GetObject", "Resource": "arn:aws:s3:::b/*", **fields}


def ask(*statements: dict[str, Any], **query: Any) -> Decision:
    given = {"action": "s3:GetObject", "resource": "arn:aws:s3:::b/k", **query}
    return evaluate([{"Version": "2012-10-17", "Statement": list(statements)}], Query(**given))


LIST = statement(
    Action="s3:ListBucket", Resource="arn:aws:s3:::b", Condition={"StringLike": {"s3:prefix": ["code/*", "code"]}}
)


@pytest.mark.parametrize(
    ("statements", "query", "expected"),
    [
        ([], {}, Decision.SILENT),
        ([statement()], {}, Decision.ALLOW),
        ([statement()], {"resource": "arn:aws:s3:::other/k"}, Decision.SILENT),
        ([statement()], {"action": "s3:PutObject"}, Decision.SILENT),
        ([statement(Action="S3:get*")], {}, Decision.ALLOW),
        ([statement(Resource="arn:aws:s3:::b/?")], {}, Decision.ALLOW),
        ([statement(Resource="arn:aws:s3:::b.k")], {}, Decision.SILENT),
        ([statement(), statement(Effect="Deny")], {}, Decision.DENY),
        ([statement(Effect="Deny"), statement()], {}, Decision.DENY),
        ([{"Effect": "Allow", "NotAction": "iam:*", "Resource": "*"}], {}, Decision.ALLOW),
        ([{"Effect": "Allow", "NotAction": "s3:*", "Resource": "*"}], {}, Decision.SILENT),
        ([{"Effect": "Allow", "Action": "*", "NotResource": "arn:aws:s3:::b/*"}], {}, Decision.SILENT),
        ([statement()], {"resource": UNKNOWN_RESOURCE}, Decision.ALLOW),
        ([statement(Resource="*"), statement(Effect="Deny")], {"resource": UNKNOWN_RESOURCE}, Decision.ALLOW),
    ],
    ids=[
        "no statement is silent",
        "allowed",
        "another resource",
        "another action",
        "actions ignore case and take wildcards",
        "? is one character",
        ". is itself",
        "deny after allow wins",
        "deny before allow wins",
        "everything but",
        "everything but this",
        "resources but this",
        "an unknown resource is in any allow",
        "an unknown resource is in no narrow deny",
    ],
)
def test_statements_are_evaluated(statements: list[dict[str, Any]], query: dict[str, Any], expected: Decision) -> None:
    assert ask(*statements, **query) is expected


@pytest.mark.parametrize(
    ("prefix", "expected"),
    [("code/a", Decision.ALLOW), ("data/a", Decision.SILENT), (None, Decision.SILENT)],
    ids=["inside", "outside", "absent"],
)
def test_an_unmet_condition_disables_only_its_own_statement(prefix: str | None, expected: Decision) -> None:
    context = {} if prefix is None else {"s3:prefix": (prefix,)}
    query = Query("s3:ListBucket", "arn:aws:s3:::b", context)
    document = {"Statement": [LIST, statement()]}
    assert evaluate([document], query) is expected
    assert evaluate([document], Query("s3:GetObject", "arn:aws:s3:::b/k", context)) is Decision.ALLOW


@pytest.mark.parametrize(
    ("condition", "holds"),
    [
        ({"StringEquals": {"k": "v"}}, True),
        ({"StringNotEquals": {"k": "v"}}, False),
        ({"StringNotEquals": {"absent": "v"}}, True),
        ({"StringEqualsIfExists": {"absent": "v"}}, True),
        ({"StringNotLike": {"k": ["a*", "v*"]}}, False),
        ({"Bool": {"aws:SecureTransport": True}}, True),
        ({"Bool": {"aws:SecureTransport": "false"}}, False),
        ({"Null": {"absent": "true"}}, True),
        ({"Null": {"k": "true"}}, False),
        ({"NumericLessThan": {"n": "10"}}, True),
        ({"IpAddress": {"ip": "10.0.0.0/8"}}, True),
        ({"NotIpAddress": {"ip": "10.0.0.0/8"}}, False),
        ({"ForAnyValue:StringEquals": {"many": ["b"]}}, True),
        ({"ForAllValues:StringEquals": {"many": ["b"]}}, False),
        ({"ForAllValues:StringEquals": {"absent": ["b"]}}, True),
        ({"ArnLike": {"arn": "arn:aws:iam::*:role/x"}}, True),
        ({"DateLessThan": {"k": "2030"}}, False),
    ],
    ids=str,
)
def test_conditions_are_evaluated(condition: dict[str, Any], holds: bool) -> None:
    context = {
        "k": ("v",),
        "aws:securetransport": ("true",),
        "n": ("9",),
        "ip": ("10.1.2.3",),
        "many": ("a", "b"),
        "arn": ("arn:aws:iam::1:role/x",),
    }
    expected = Decision.ALLOW if holds else Decision.SILENT
    assert ask(statement(Condition=condition), context=context) is expected


def test_an_unknown_operator_never_allows_a_call() -> None:
    condition = {"BinaryEquals": {"k": "v"}}
    context = {"k": ("v",)}
    assert ask(statement(Condition=condition), context=context) is Decision.SILENT
    assert ask(statement(), statement(Effect="Deny", Condition=condition), context=context) is Decision.DENY


@pytest.mark.parametrize(
    ("principal", "expected"),
    [
        ("*", Decision.ALLOW),
        ({"AWS": "arn:aws:iam::1:root"}, Decision.ALLOW),
        ({"AWS": ["arn:aws:iam::2:root", "arn:aws:iam::1:user/u"]}, Decision.ALLOW),
        ({"AWS": "arn:aws:iam::2:root"}, Decision.SILENT),
        ({"Service": "pods.eks.amazonaws.com"}, Decision.SILENT),
    ],
    ids=["anybody", "the account", "by name", "another account", "a service"],
)
def test_principals_of_a_statement_are_matched(principal: Any, expected: Decision) -> None:
    names = ("arn:aws:iam::1:user/u", "1", "arn:aws:iam::1:root")
    assert ask(statement(Principal=principal), principals=names) is expected
