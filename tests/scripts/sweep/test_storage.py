"""The vault's policy is opened for the deletion of recovery points, and for nothing else."""

from __future__ import annotations

from typing import Any

from scripts.sweep.storage import without_denial

ACTION = "backup:DeleteRecoveryPoint"


def policy(*statements: dict[str, Any]) -> dict[str, Any]:
    return {"Version": "2012-10-17", "Statement": list(statements)}


def test_other_denials_stay() -> None:
    denied = {"Effect": "Deny", "Principal": "*", "Action": [ACTION, "backup:StartCopyJob"], "Resource": "*"}
    opened = without_denial(policy(denied), ACTION)
    assert opened == policy({**denied, "Action": ["backup:StartCopyJob"]})


def test_a_denial_of_nothing_else_goes() -> None:
    assert without_denial(policy({"Effect": "Deny", "Action": ACTION}), ACTION) == policy()


def test_what_is_allowed_stays() -> None:
    allowed = policy({"Effect": "Allow", "Action": [ACTION]}, {"Effect": "Deny", "NotAction": ["backup:Get*"]})
    assert without_denial(allowed, ACTION) == allowed
