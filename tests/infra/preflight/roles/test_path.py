"""The roles of a stack that exists stay in their path."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

import settings
from infra.preflight.roles import path
from tests import graph
from tests.infra.preflight.roles.given_roles import arns_for
from tests.infra.preflight.world import stack

ARN = f"arn:aws:iam::{graph.ACCOUNT}:role"


@pytest.mark.parametrize(
    ("arn", "expected"),
    [(f"{ARN}/name", "/"), (f"{ARN}/ml/name", "/ml/"), (f"{ARN}/a/role/name", "/a/role/"), (f"{ARN}/role-1", "/")],
)
def test_the_path_of_a_role_is_in_its_arn(arn: str, expected: str) -> None:
    assert path.path_of(arn) == expected


def test_another_path_would_replace_the_cluster() -> None:
    there = f"{ARN}/ml/tidewater-dev-eksRole-role-1234567"
    (mistake,) = path.mistakes(stack(), there)
    assert mistake.startswith("rolePath = /: the stack's roles are in /ml/, and roles in another path would replace")
    assert path.mistakes(stack(rolePath="/ml/"), there) == []
    assert path.mistakes(stack(rolePath="/ml/"), None) == []
    assert path.mistakes(stack(roleArns=arns_for()), there) == []  # `preflight.place` has the role itself


def test_a_cluster_with_its_role_in_another_path_is_refused_before_anything_is_registered() -> None:
    def ask(token: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        if token == "aws:eks/getCluster:getCluster":
            return {"name": arguments["name"], "roleArn": f"{ARN}/eksRole-1"}
        return graph.answer(token, arguments)

    made = graph.Graph()
    config = {**graph.stack_config("Pulumi.local.yaml"), "rolePath": "/ml/"}
    with pytest.raises(settings.ConfigurationError, match="rolePath = /ml/: the stack's roles are in /, and"):
        graph.run(graph.program, config, ask=ask, graph=made)
    assert not made.all("aws:iam/role:Role")
    assert graph.run(graph.program, {**config, "rolePath": "/"}, ask=ask).all("aws:iam/role:Role")
