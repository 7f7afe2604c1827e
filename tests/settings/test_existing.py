"""The cluster and the file system that are there already, and every mistake about it that needs no AWS."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

import settings
from settings import existing
from tests import graph
from tests.settings.test_every_key import LUSTRE
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


def test_a_lustre_file_system_has_an_id_and_a_mount_name_and_takes_dataset_and_checkpoints() -> None:
    stack = graph.parsed(**VPC, lustre=LUSTRE, dataset="/lustre/images/v2", checkpoints="/lustre/runs")
    assert stack.lustre == settings.Lustre("fs-0123456789abcdef0", "abcdefgh")
    assert stack.training.dataset.path == "/lustre/images/v2"
    assert stack.training.dataset.uri is None
    assert stack.training.checkpoints == settings.Checkpoints(efs=False, s3=False, keep=3, folder="/lustre/runs")
    assert graph.parsed().lustre is None


BAD_LUSTRE: dict[str, tuple[dict[str, Any], list[str]]] = {
    "an id of another service": (
        {"lustre": LUSTRE | {"fileSystemId": "vol-1"}},
        ["lustre.fileSystemId = vol-1: must be the id of an FSx file system such as fs-0123456789abcdef0"],
    ),
    "a mount name that is an address": (
        {"lustre": LUSTRE | {"mountName": "fs@tcp:/fsx"}},
        ["lustre.mountName = fs@tcp:/fsx: must be the mount name of the file system"],
    ),
    "both": (
        {"lustre": {"fileSystemId": "x", "mountName": "too-long-a-name"}},
        ["lustre.fileSystemId = x: must be", "lustre.mountName = too-long-a-name: must be"],
    ),
    "an unknown key": (
        {"lustre": {**LUSTRE, "subpath": "runs"}},
        ["lustre = fileSystemId, mountName, subpath: must have the keys fileSystemId and mountName, and no others"],
    ),
    "a way out": ({"lustre": LUSTRE, "checkpoints": "/lustre/../data"}, ["checkpoints = /lustre/../data: must be efs"]),
    "teams": (
        {"lustre": LUSTRE, "fileAccess": "iam", "teams": [{"name": "vision", "maxWorkers": 2}]},
        ["lustre = fs-0123456789abcdef0: can't be divided, so with teams the pods of each would see the files of all"],
    ),
    "an S3 driver": (
        {"lustre": LUSTRE, "dataset": "/lustre/images", "datasetStorage": "s3"},
        ["datasetStorage = s3: needs a folder in S3 as dataset"],
    ),
}


@pytest.mark.parametrize(("changes", "messages"), BAD_LUSTRE.values(), ids=BAD_LUSTRE.keys())
def test_what_is_wrong_about_lustre_is_named_with_its_key(changes: dict[str, Any], messages: list[str]) -> None:
    with pytest.raises(settings.ConfigurationError) as refused:
        graph.parsed(**VPC, **changes)
    assert len(refused.value.mistakes) == len(messages), refused.value.mistakes
    assert all(part in each for part, each in zip(messages, refused.value.mistakes, strict=True))


def test_a_throughput_is_not_for_a_file_system_that_is_there() -> None:
    files = {**VPC, "fileSystemId": "fs-01234567"}
    assert graph.parsed(**files).file_system == "fs-01234567"
    with pytest.raises(settings.ConfigurationError) as refused:
        graph.parsed(**files, fileThroughput=100)
    (mistake,) = refused.value.mistakes
    assert mistake.startswith("fileThroughput = 100: is for a file system that the stack makes; remove it, or remove")
