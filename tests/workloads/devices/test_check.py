"""Training starts after a check that the worker nodes have GPUs, and the check runs again when its subject changes."""

from __future__ import annotations

from typing import Any

import pytest

from tests import graph
from workloads.devices import check

JOB = "kubernetes:batch/v1:Job"


def template(**changes: Any) -> dict[str, Any]:
    found: dict[str, Any] = check.job_manifest(graph.parsed(**changes))["spec"]["template"]
    return found


def argument(name: str, **changes: Any) -> str:
    (container,) = template(**changes)["spec"]["containers"]
    (found,) = [text for text in container["command"] if text.startswith(f"--{name}=")]
    return str(found.partition("=")[2])


def test_the_job_starts_after_the_check_and_the_check_after_the_nodes_and_the_plugin() -> None:
    made = graph.deploy(graph.defaults())
    job, looked = made.one("kubernetes:elastic.pytorch.org/v1alpha1:ElasticJob"), made.one(JOB, "gpu-check")
    assert made.needs(job, looked)
    assert made.needs(looked, made.one("aws:eks/nodeGroup:NodeGroup", "workers"))
    assert made.needs(looked, made.one("kubernetes:apps/v1:DaemonSet", "nvidia-device-plugin"))
    assert made.needs(looked, made.one("tidewater:workloads:SurgeNodes"))
    no_capacity = graph.deploy({**graph.defaults(), "coreNodes": 0})
    assert not [each for each in no_capacity.all(JOB) if "gpu-check" in each.name]


@pytest.mark.parametrize(
    ("changes", "wanted"),
    [
        pytest.param({}, True, id="a-core"),
        pytest.param({"gpusPerWorker": 0}, False, id="no-gpus"),
        # The job's own pods wait for them, with Karpenter's words, and not `pulumi up` for ten minutes without any.
        pytest.param({"minWorkers": 0, "workers": 2}, False, id="karpenter-brings-all-nodes"),
        pytest.param({"minWorkers": 0, "workers": 0}, False, id="no-node-is-wanted"),
        # Training is to start as soon as EC2 has room, and may wait for that longer than a check can.
        pytest.param({"coreNodes": 0}, False, id="there-may-be-no-capacity"),
        pytest.param({"coreNodes": 1, "minWorkers": 2}, True, id="a-part-of-the-core"),
    ],
)
def test_there_is_a_check_if_there_are_to_be_nodes_with_gpus(changes: dict[str, Any], wanted: bool) -> None:
    assert check.needed(graph.parsed(**changes).workers) is wanted


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"nodeImageVersion": "v20260107"}, id="image-of-the-nodes"),
        pytest.param({"devicePluginImage": "hub.example/k8s-device-plugin:v9"}, id="device-plug-in"),
        pytest.param({"instanceTypes": ["g4dn.xlarge"]}, id="instance-types"),
        pytest.param({"surgeInstanceTypes": ["g5.2xlarge"]}, id="surge-types"),
    ],
)
def test_what_decides_about_gpus_makes_another_check(changes: dict[str, Any]) -> None:
    assert template(**changes)["metadata"]["annotations"] != template()["metadata"]["annotations"]


def test_another_size_makes_no_other_check() -> None:
    assert template(workers=5, trainerArgs="--epochs 3") == template()


def test_a_node_must_have_gpus_for_all_of_its_workers() -> None:
    assert argument("count", instanceTypes=["g5.12xlarge"], gpusPerWorker=2, workersPerNode=2) == "4"
    assert argument("count") == "1"


def test_the_pod_runs_on_a_node_that_should_have_gpus() -> None:
    required = template()["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    terms = [each["matchExpressions"][0] for each in required["nodeSelectorTerms"]]
    assert terms == [
        {"key": "karpenter.k8s.aws/instance-gpu-count", "operator": "Exists"},
        {"key": "node.kubernetes.io/instance-type", "operator": "In", "values": ["g5.xlarge"]},
    ]
    assert argument("instance-types") == "g5.xlarge"


def test_a_failed_check_ends_at_once_with_its_sentence_and_is_made_again_by_the_next_up() -> None:
    job = check.job_manifest(graph.parsed())
    assert job["metadata"]["annotations"] == {"pulumi.com/replaceUnready": "true"}
    # The official awaiter ends at BackoffLimitExceeded and DeadlineExceeded only, so no rule may fail the job itself.
    assert job["spec"]["backoffLimit"] == 0
    assert {rule["action"] for rule in job["spec"]["podFailurePolicy"]["rules"]} == {"Ignore"}
    (container,) = job["spec"]["template"]["spec"]["containers"]
    assert container["terminationMessagePolicy"] == "FallbackToLogsOnError"
    for key in ("nodeImageVersion", "instanceTypes", "gpusPerWorker"):
        assert key in check.REMEDY
        assert key in graph.defaults()


def test_the_check_may_only_look_at_nodes() -> None:
    (role,) = [each for each in check.access_manifests() if each["kind"] == "ClusterRole"]
    assert role["rules"] == [{"apiGroups": [""], "resources": ["nodes"], "verbs": ["list"]}]
