"""Equivalent values are no change."""

from __future__ import annotations

import json
from typing import Any

import pytest
from localcloud.standins.aws.equality import project, same
from localcloud.standins.values import UNKNOWN

POLICY: dict[str, Any] = {
    "Version": "2012-10-17",
    "Statement": [{"Effect": "Allow", "Action": ["s3:Get*", "s3:List*"], "Resource": "*"}],
}
OTHER_ORDER = {
    "Statement": {"Resource": ["*"], "Sid": "", "Effect": "Allow", "Action": ["s3:List*", "s3:Get*"]},
    "Version": "2012-10-17",
}


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (["a", "b"], ["b", "a"], True),
        (["a"], ["a", "b"], False),
        (None, [], True),
        (None, False, True),
        ("", None, True),
        (None, 0, True),
        ({"a": 1, "b": None}, {"a": 1}, True),
        ({"a": 1}, {"a": 2}, False),
        (UNKNOWN, UNKNOWN, False),
        ([{"x": UNKNOWN}], [{"x": 1}], False),
        (True, False, False),
    ],
    ids=str,
)
def test_equivalent_values_are_equal(old: Any, new: Any, expected: bool) -> None:
    assert same(old, new) is expected


def test_order_matters_in_ordered_lists() -> None:
    assert not same(["a", "b"], ["b", "a"], ordered=True)


def test_equivalent_documents_are_equal() -> None:
    assert same(json.dumps(POLICY), json.dumps(OTHER_ORDER, indent=2), document=True)
    assert not same(json.dumps(POLICY), json.dumps({**POLICY, "Statement": []}), document=True)


def test_what_the_program_does_not_set_is_no_difference() -> None:
    found = {"httpTokens": "required", "state": "applied", "nested": [{"a": 1, "b": 2}]}
    assert project(found, {"httpTokens": "x", "nested": [{"a": 0}]}) == {"httpTokens": "required", "nested": [{"a": 1}]}
