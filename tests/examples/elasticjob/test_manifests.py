"""The manifests of the examples are jobs that the controller reads, and name only classes that they bring along."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from tidewater.elasticjob import codec, names

FOLDER = Path(__file__).resolve().parents[3] / "examples" / "elasticjob"


def objects(kind: str) -> list[Any]:
    """Return what has this kind in all examples, as parameters with its name."""
    found = [each for file in sorted(FOLDER.glob("*.yaml")) for each in yaml.safe_load_all(file.read_text())]
    return [pytest.param(each, id=each["metadata"]["name"]) for each in found if each.get("kind") == kind]


@pytest.mark.parametrize("job", objects(names.KIND))
def test_the_controller_reads_every_job(job: dict[str, Any]) -> None:
    read = codec.job_of(job)
    least, most = read.bounds(names.WORKER)
    assert least <= read.spec.worker.replicas <= most


@pytest.mark.parametrize("job", objects(names.KIND))
def test_every_priority_class_of_a_job_is_in_the_examples(job: dict[str, Any]) -> None:
    policy = codec.job_of(job).spec.scheduling_policy
    classes = {each.id for each in objects("PriorityClass")}
    assert {policy.core_priority_class_name, policy.surge_priority_class_name} - {None} <= classes


def test_the_sample_of_the_old_controller_uses_only_fields_that_it_knew() -> None:
    (imagenet,) = (each.values[0] for each in objects(names.KIND) if each.id == "imagenet")
    assert set(imagenet["spec"]) == {"rdzvEndpoint", "minReplicas", "maxReplicas", "replicaSpecs"}
    assert "annotations" not in imagenet["metadata"]
