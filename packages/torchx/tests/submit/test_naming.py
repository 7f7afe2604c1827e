"""Names are shortened where that is harmless; otherwise the error names the role."""

from __future__ import annotations

import re

import pytest
from tidewater_torchx.errors import Refused
from tidewater_torchx.submit.naming import app_id, label_value, replica_types

from tidewater.elasticjob import names

UNIQUE = "x7kqm3p9wz1tr"


def test_one_role_is_the_worker_and_others_keep_their_names() -> None:
    assert replica_types(["trainer", "Reader_2", "ps"], worker=0) == ("Worker", "reader2", "ps")
    assert replica_types(["reader", "trainer"], worker=1) == ("reader", "Worker")


@pytest.mark.parametrize(
    ("roles", "types"),
    [
        pytest.param(["a", "worker"], ("Worker", "workerx1"), id="named-worker"),
        pytest.param(["t", "a-b", "ab"], ("Worker", "ab", "abx2"), id="same-letters"),
        pytest.param(["t", "abx3", "ab", "a-b"], ("Worker", "abx3", "ab", "abx4"), id="same-letters-and-number"),
        pytest.param(["t", "2nd"], ("Worker", "role2nd"), id="begins-with-a-digit"),
        pytest.param(["t", "---"], ("Worker", "role"), id="no-letters"),
    ],
)
def test_types_are_distinct_and_begin_with_a_letter(roles: list[str], types: tuple[str, ...]) -> None:
    assert replica_types(roles, worker=0) == types


@pytest.mark.parametrize(
    ("roles", "told"),
    [
        pytest.param(["trainer", "r" * 41], f"role {'r' * 41}: its name is part", id="too-long-for-a-pod"),
        pytest.param(["t" * 64], f"role {'t' * 64}: its name has 64 characters", id="too-long-for-a-label"),
        pytest.param(["a", "b", "a"], "role a: two roles", id="twice"),
        pytest.param([""], "a role has no name", id="empty"),
        pytest.param([f"r{index}" for index in range(9)], "has 9 roles", id="too-many"),
    ],
)
def test_a_role_that_can_have_no_pods_is_named(roles: list[str], told: str) -> None:
    with pytest.raises(Refused, match=told):
        replica_types(roles, worker=0)


def test_the_name_is_the_applications_in_lower_case_with_a_random_end() -> None:
    assert app_id("My_App-1", "kx3p", {"Worker": 0}) == "myapp-1-kx3p"


@pytest.mark.parametrize("name", ["x" * 200, "a" * 30 + "-" * 30, "train", "7seven", "", "---", "ÄÖÜ"])
@pytest.mark.parametrize("last", [{"Worker": 0}, {"Worker": 4999, "r" * 40: 99}])
def test_the_names_of_all_pods_fit_and_the_service_can_have_it(name: str, last: dict[str, int]) -> None:
    own = app_id(name, UNIQUE, last)
    assert own.endswith(f"-{UNIQUE}")
    assert re.fullmatch("[a-z]([-a-z0-9]*[a-z0-9])?", own)
    assert all(len(names.pod_name(own, type, index)) <= names.LONGEST_NAME for type, index in last.items())


def test_only_what_does_not_fit_is_cut_off() -> None:
    own = app_id("a" * 63, UNIQUE, {"Worker": 9})
    assert len(names.pod_name(own, "Worker", 9)) == names.LONGEST_NAME


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("train.py", "train.py"),
        ("a/b c", "a.b.c"),
        ("/x/", "x"),
        ("v" * 70, "v" * 63),
        ("0.7.0+fb", "0.7.0.fb"),
        ("", ""),
    ],
)
def test_a_label_has_what_it_may_have(text: str, value: str) -> None:
    assert label_value(text) == value
