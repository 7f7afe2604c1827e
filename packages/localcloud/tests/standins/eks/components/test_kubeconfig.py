"""The kubeconfig of a cluster."""

from __future__ import annotations

import pytest
from localcloud.standins.eks.components.kubeconfig import compact_json, kubeconfig, region_of

ARN = "arn:aws:eks:us-west-2:123456789012:cluster/c"


def test_the_user_asks_the_aws_cli_for_a_token() -> None:
    config = kubeconfig(name="c", endpoint="https://e", certificate_authority="Q0E=", region="us-west-2")
    assert config["users"][0]["user"]["exec"] == {
        "apiVersion": "client.authentication.k8s.io/v1beta1",
        "command": "aws",
        "args": ["--region", "us-west-2", "eks", "get-token", "--cluster-name", "c", "--output", "json"],
        "env": [{"name": "KUBERNETES_EXEC_INFO", "value": '{"apiVersion": "client.authentication.k8s.io/v1beta1"}'}],
    }
    assert config["current-context"] == "aws"


def test_a_role_and_a_profile_are_passed_to_the_cli_in_this_order() -> None:
    config = kubeconfig(
        name="c", endpoint="https://e", certificate_authority="", region="r", role_arn="arn:r", profile="p"
    )
    assert config["users"][0]["user"]["exec"]["args"][-4:] == ["--role", "arn:r", "--profile", "p"]


def test_the_string_form_is_what_javascript_writes() -> None:
    text = compact_json(kubeconfig(name="c", endpoint="https://e", certificate_authority="Q0E=", region="r"))
    assert text.startswith(
        '{"apiVersion":"v1","clusters":[{"cluster":{"server":"https://e","certificate-authority-data":"Q0E="},'
        '"name":"kubernetes"}],"contexts":[{"context":{"cluster":"kubernetes","user":"aws"},"name":"aws"}],'
        '"current-context":"aws","kind":"Config","users":'
    )


def test_the_region_is_that_of_the_clusters_arn() -> None:
    assert region_of(ARN) == "us-west-2"


def test_an_arn_without_a_region_is_named() -> None:
    with pytest.raises(ValueError, match="'cluster/c' names no region"):
        region_of("cluster/c")
