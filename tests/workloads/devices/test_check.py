"""Training starts after a check that the worker nodes have GPUs, and the check runs again when its subject changes."""

from __future__ import annotations

from typing import Any

import pytest

from tests import graph
from workloads.devices import check
from workloads.devices.in_pod import gpus

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
    job, looked = made.one("kubernetes:elastic.pytorch.org/v1alpha1:ElasticJob"), made.one(JOB, "job-gpu-check")
    assert made.needs(job, looked)
    assert made.needs(looked, made.one("aws:eks/nodeGroup:NodeGroup", "workers"))
    assert made.needs(looked, made.one("kubernetes:apps/v1:DaemonSet", "nvidia-device-plugin"))
    assert made.needs(looked, made.one("tidewater:workloads:SurgeNodes"))
    assert not [each for each in made.all(JOB) if "gpu-check-node" in each.name]


@pytest.mark.parametrize("changes", [{"coreNodes": 0}, {"minWorkers": 0}], ids=lambda each: next(iter(each)))
def test_where_karpenter_brings_all_nodes_the_job_starts_after_the_check_of_a_first_one(
    changes: dict[str, int],
) -> None:
    made = graph.deploy({**graph.defaults(), **changes})
    jobs = {each.name: each for each in made.all(JOB)}
    looked, first = jobs["job-gpu-check"], jobs["job-gpu-check-node"]
    assert made.needs(made.one("kubernetes:elastic.pytorch.org/v1alpha1:ElasticJob"), looked)
    # Pulumi makes an object when what it needs is ready: the check would not be before there is a node.
    assert not made.needs(first, looked)
    assert first.inputs["metadata"]["annotations"]["pulumi.com/skipAwait"] == "true"
    assert made.needs(first, made.one("tidewater:workloads:SurgeNodes"))


@pytest.mark.parametrize(
    ("changes", "wanted"),
    [
        pytest.param({}, True, id="a-core"),
        pytest.param({"gpusPerWorker": 0}, False, id="no-gpus"),
        pytest.param({"minWorkers": 0, "workers": 2}, True, id="karpenter-brings-all-nodes"),
        pytest.param({"minWorkers": 0, "workers": 0}, False, id="no-node-is-wanted"),
        pytest.param({"coreNodes": 0}, True, id="there-may-be-no-capacity"),
        pytest.param({"coreNodes": 1, "minWorkers": 2}, True, id="a-part-of-the-core"),
        pytest.param({"surgeNodes": "nodegroup"}, True, id="without-karpenter"),
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


def test_the_check_runs_on_a_system_node_and_so_says_why_no_worker_node_comes() -> None:
    assert template()["spec"]["nodeSelector"] == {"tidewater.dev/node-role": "system"}
    assert "tolerations" not in template()["spec"]
    assert argument("node-labels") == "tidewater.dev/node-role=worker"
    assert argument("instance-types") == "g5.xlarge"
    assert argument("job") == "gpu-check"


def test_the_uid_of_the_job_is_from_the_label_that_kubernetes_gives_its_pods() -> None:
    (container,) = template()["spec"]["containers"]
    assert argument("job-uid") == "$(JOB_UID)"
    path = "metadata.labels['batch.kubernetes.io/controller-uid']"
    assert container["env"] == [{"name": "JOB_UID", "valueFrom": {"fieldRef": {"fieldPath": path}}}]


def test_the_first_node_is_one_that_should_have_gpus_and_is_kept_until_the_check_ends() -> None:
    stack = graph.parsed(coreNodes=0)
    first, looked = (each["spec"] for each in (check.node_manifest(stack), check.job_manifest(stack)))
    spec = first["template"]["spec"]
    assert spec["nodeSelector"] == {"tidewater.dev/node-role": "worker"}
    required = spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    terms = [each["matchExpressions"][0] for each in required["nodeSelectorTerms"]]
    assert terms == [
        {"key": "karpenter.k8s.aws/instance-gpu-count", "operator": "Exists"},
        {"key": "node.kubernetes.io/instance-type", "operator": "In", "values": ["g5.xlarge"]},
    ]
    assert {each["key"] for each in spec["tolerations"]} == {"tidewater.dev/worker", "nvidia.com/gpu"}
    # The same program with the same arguments ends when the check does.
    commands = [each["template"]["spec"]["containers"][0]["command"] for each in (first, looked)]
    assert set(commands[0]) ^ set(commands[1]) == {"--job=gpu-check-node", "--job=gpu-check"}
    assert first["activeDeadlineSeconds"] == looked["activeDeadlineSeconds"]


def test_the_program_ends_with_a_sentence_before_kubernetes_ends_the_job_without_one() -> None:
    seconds = check.job_manifest(graph.parsed())["spec"]["activeDeadlineSeconds"]
    assert seconds > check.START_SECONDS + gpus.NODE_SECONDS + gpus.PATIENCE_SECONDS
    made = graph.deploy(graph.defaults()).one(JOB, "job-gpu-check")
    assert int(made.create_timeout.removesuffix("m")) * 60 > seconds


def test_a_failed_check_ends_at_once_with_its_sentence_and_is_made_again_by_the_next_up() -> None:
    for job in (check.job_manifest(graph.parsed()), check.node_manifest(graph.parsed())):
        assert job["metadata"]["annotations"]["pulumi.com/replaceUnready"] == "true"
        # The official awaiter ends at BackoffLimitExceeded and DeadlineExceeded only, so no rule may fail the job.
        assert job["spec"]["backoffLimit"] == 0
        assert {rule["action"] for rule in job["spec"]["podFailurePolicy"]["rules"]} == {"Ignore"}
        (container,) = job["spec"]["template"]["spec"]["containers"]
        assert container["terminationMessagePolicy"] == "FallbackToLogsOnError"
    assert check.job_manifest(graph.parsed())["metadata"]["annotations"].keys() == {"pulumi.com/replaceUnready"}
    for key in ("nodeImageVersion", "instanceTypes", "gpusPerWorker"):
        assert key in check.REMEDY
        assert key in graph.defaults()


def rights(*, karpenter: bool) -> set[tuple[str, str, str, str]]:
    """Namespace, group, resource and verb of each right; the namespace is empty for all of them."""
    return {
        (each["metadata"].get("namespace", ""), group, resource, verb)
        for each in check.access_manifests(karpenter=karpenter)
        for rule in each.get("rules", [])
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def test_the_check_may_look_at_what_karpenter_says_and_say_it_itself_and_nothing_else() -> None:
    least = {("", "", "nodes", "list"), ("tidewater-devices", "", "events", "create")}
    assert rights(karpenter=False) == least
    assert rights(karpenter=True) == least | {
        ("", "karpenter.sh", "nodeclaims", "list"),
        ("tidewater-devices", "", "events", "list"),
        ("default", "", "events", "list"),
    }


def test_each_role_is_given_to_the_check_alone() -> None:
    made = check.access_manifests(karpenter=True)
    roles = {(each["kind"], each["metadata"]["name"]) for each in made if "rules" in each}
    bindings = [each for each in made if "subjects" in each]
    assert roles == {(each["roleRef"]["kind"], each["roleRef"]["name"]) for each in bindings}
    account = {"kind": "ServiceAccount", "name": "gpu-check", "namespace": "tidewater-devices"}
    assert all(each["subjects"] == [account] for each in bindings)
