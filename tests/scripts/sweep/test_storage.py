"""The vault's policy is opened for the deletion of recovery points, and for nothing else. What ECR caches is known."""

from __future__ import annotations

from typing import Any

import settings
from infra import image_cache
from scripts.sweep.storage import CACHED, without_denial

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


def test_the_folders_of_the_cache_are_those_of_the_stacks_rules() -> None:
    assert tuple(each.folder for each in image_cache.upstreams(settings.ImageCache("a secret"))) == CACHED
