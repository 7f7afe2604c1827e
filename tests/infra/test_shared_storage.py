"""The shared file system transfers as much as `fileThroughput` says."""

from __future__ import annotations

import pytest

from tests import graph

FILE_SYSTEM = "aws:efs/fileSystem:FileSystem"


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, {"throughputMode": "elastic"}),
        ({"fileThroughput": "bursting"}, {"throughputMode": "bursting"}),
        ({"fileThroughput": 150}, {"throughputMode": "provisioned", "provisionedThroughputInMibps": 150}),
    ],
    ids=["default", "mode", "number"],
)
def test_the_file_system_has_the_throughput_that_is_set(
    given: dict[str, str | int], expected: dict[str, str | int]
) -> None:
    inputs = graph.deploy({**graph.stack_config("Pulumi.local.yaml"), **given}).one(FILE_SYSTEM).inputs
    assert {name: value for name, value in inputs.items() if "hroughput" in name} == expected
