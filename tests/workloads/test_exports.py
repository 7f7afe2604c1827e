"""What the stack tells people, and the tools that submit jobs to it."""

from __future__ import annotations

from typing import Any

import pytest

from tests import facts, graph
from tidewater.contract.stack import CONFIG_MAP, Facts
from workloads import exports
from workloads.etcd import manifests as etcd
from workloads.storage import CLAIM

DIVIDED = {
    "workersPerReplica": 2,
    "gpusPerWorker": 0,
    "instanceTypes": ["m6i.xlarge"],
    "trainingScript": "tests/e2e/nodegroup/divided.py",
}


def test_the_config_map_has_what_tools_need_to_submit_jobs() -> None:
    training = facts.parsed(graph.stack_config("Pulumi.aws.yaml.example")).training
    manifest = exports.facts_manifest(training, "bucket-1")
    assert manifest["metadata"]["name"] == CONFIG_MAP
    assert manifest["metadata"]["namespace"] == training.namespace
    found = Facts.of(manifest["data"])
    assert found.bucket == "bucket-1"
    assert found.etcd == etcd.endpoint(training.namespace)
    assert found.image == training.images.trainer
    assert found.fetch_image == training.images.fetch
    assert found.data_claim == CLAIM
    assert all(isinstance(value, str) for value in manifest["data"].values())


@pytest.mark.parametrize(
    ("changes", "size"),
    [({}, 3), ({"maxWorkers": 2, "minWorkers": 1}, 2), (DIVIDED, 6), ({**DIVIDED, "maxWorkers": 4}, 4)],
)
def test_the_size_of_the_next_steps_is_one_that_the_stack_accepts(changes: dict[str, Any], size: int) -> None:
    config = {**graph.stack_config("Pulumi.aws.yaml.example"), "workers": 2, "minWorkers": 2, **changes}
    stack = facts.parsed(config)
    steps = exports.next_steps("training", "digits", stack.workers)
    assert f"pulumi config set workers {size} && pulumi up --yes" in steps
    facts.parsed({**config, "workers": size})
