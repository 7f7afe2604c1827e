"""The cluster and the file system that are there already, and every mistake about it that needs no AWS."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

import settings
from settings import existing
from tests import graph
from tests.settings.test_networks import THERE as VPC

THERE = {**VPC, "clusterName": "platform"}

BAD: dict[str, tuple[dict[str, Any], str]] = {
    "addresses": (
        {"publicAccessCidrs": [graph.ADDRESS]},
        f'publicAccessCidrs = ["{graph.ADDRESS}"]: is for a cluster that the stack makes, and clusterName names one;',
    ),
    "everyone": ({"publicAccessFromAnywhere": True}, "publicAccessFromAnywhere = true: is for a cluster that the"),
    "administrators": ({"adminArns": ["arn:aws:iam::123456789012:role/a"]}, 'adminArns = ["arn:aws:iam::123456789012'),
    "logs": ({"logRetentionDays": 400}, "logRetentionDays = 400: is for a cluster that the stack makes"),
    "a mounted dataset": (
        {"dataset": "s3://bucket/images/", "datasetStorage": "s3"},
        "datasetStorage = s3: needs the rights of the cluster's S3 driver",
    ),
    "no VPC": ({"vpcId": "", "privateSubnetIds": []}, "clusterName = platform: needs vpcId and privateSubnetIds"),
}


@pytest.mark.parametrize(("changes", "message"), BAD.values(), ids=BAD.keys())
def test_what_is_not_for_a_cluster_that_is_there_is_one_mistake(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(settings.ConfigurationError) as refused:
        graph.parsed(**{**THERE, **changes})
    (mistake,) = refused.value.mistakes
    assert message in mistake


def test_the_cluster_is_the_one_that_is_named_and_other_names_begin_with_the_stacks() -> None:
    stack = graph.parsed(**THERE)
    assert stack.cluster.existing == settings.ExistingCluster("platform")
    assert (stack.cluster_name, stack.name) == ("platform", "tidewater-dev")
    assert graph.parsed().cluster.existing is None
    assert graph.parsed().cluster_name == "tidewater-dev"


def test_values_as_pulumi_stores_them_are_compared_with_the_defaults() -> None:
    texts = {"publicAccessCidrs": "[]", "publicAccessFromAnywhere": "false", "logRetentionDays": "365"}
    assert graph.parsed(**THERE, **texts).cluster.existing


def test_the_defaults_that_the_engine_fills_in_are_those_that_are_no_mistake() -> None:
    keys = yaml.safe_load((graph.ROOT / "Pulumi.yaml").read_text())["config"]
    theirs = {**existing.CLUSTER_KEYS, **existing.FILE_KEYS}
    assert {key: keys[key]["default"] for key in theirs} == theirs


def test_teams_need_a_file_system_of_the_stacks() -> None:
    teams = [{"name": "vision", "maxWorkers": 2}]
    with pytest.raises(settings.ConfigurationError) as refused:
        graph.parsed(**VPC, fileSystemId="fs-01234567", fileAccess="iam", teams=teams)
    (mistake,) = refused.value.mistakes
    assert mistake.startswith("fileSystemId = fs-01234567: with teams the stack needs a file system of its own")


def test_a_throughput_is_not_for_a_file_system_that_is_there() -> None:
    files = {**VPC, "fileSystemId": "fs-01234567"}
    assert graph.parsed(**files).file_system == "fs-01234567"
    with pytest.raises(settings.ConfigurationError) as refused:
        graph.parsed(**files, fileThroughput=100)
    (mistake,) = refused.value.mistakes
    assert mistake.startswith("fileThroughput = 100: is for a file system that the stack makes; remove it, or remove")
