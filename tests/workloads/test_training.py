"""The training job's manifests: elastic, confined, and forgiving of lost nodes only."""

from __future__ import annotations

from typing import Any

import pytest

import settings
from contract import env, exit_codes, labels
from tests import graph
from workloads import training

JOB = "kubernetes:batch/v1:Job"
CODE = "s3://bucket/code/abc.zip"


def spec(**changes: Any) -> training.JobSpec:
    """The job of the production example, with some keys changed."""
    config = {**graph.stack_config("Pulumi.aws.yaml.example"), **changes}
    return training.job_spec(settings.parse(config, stack="dev"), CODE, "core")


def pod(**changes: Any) -> dict[str, Any]:
    """A worker's pod."""
    template: dict[str, Any] = training.job_manifest(spec(**changes))["spec"]["template"]
    return template


def environment(**changes: Any) -> dict[str, Any]:
    """The worker's environment, by name."""
    (container,) = pod(**changes)["spec"]["containers"]
    return {each["name"]: each.get("value") or each["valueFrom"]["fieldRef"]["fieldPath"] for each in container["env"]}


def test_completions_equal_parallelism_or_the_job_would_not_be_elastic() -> None:
    job = training.job_manifest(spec(workers=5))["spec"]
    assert (job["completionMode"], job["completions"], job["parallelism"]) == ("Indexed", 5, 5)


def test_the_pods_do_not_change_with_the_number_of_workers() -> None:
    assert pod(workers=2) == pod(workers=5)


def test_a_finished_job_is_kept_so_that_nothing_starts_it_again() -> None:
    assert "ttlSecondsAfterFinished" not in training.job_manifest(spec())["spec"]


def test_lost_nodes_and_orderly_leaving_are_not_held_against_the_code() -> None:
    rules = training.failure_policy()["rules"]
    ignored = [
        code for rule in rules if rule["action"] == "Ignore" for code in rule.get("onExitCodes", {}).get("values", [])
    ]
    assert ignored == [exit_codes.KILLED, exit_codes.LEFT]
    assert rules[0] == {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}
    assert rules[-1]["action"] == "FailJob"
    assert rules[-1]["onExitCodes"]["values"] == [exit_codes.USAGE]


def test_the_worker_is_told_who_it_is_and_where_the_others_meet() -> None:
    found = environment(jobName="mine", namespace="lab", minWorkers=2, maxWorkers=9)
    assert found[env.JOB] == "mine"
    assert found[env.ETCD] == "http://etcd.lab.svc:2379"
    assert found[env.WORKER] == "metadata.name"
    assert found[env.HOST] == "status.podIP"
    assert (found[env.MIN_WORKERS], found[env.MAX_WORKERS]) == ("2", "9")
    assert found[env.DATA] == "/data/digits"
    assert found[env.CHECKPOINTS] == "/data/checkpoints/mine"


def test_prometheus_finds_the_workers_metrics_by_annotation_and_by_port_name() -> None:
    template = pod()
    (container,) = template["spec"]["containers"]
    (port,) = container["ports"]
    assert port["name"] == "metrics"
    assert environment()[env.METRICS_PORT] == str(port["containerPort"])
    assert template["metadata"]["annotations"]["prometheus.io/port"] == str(port["containerPort"])
    assert template["metadata"]["annotations"]["prometheus.io/scrape"] == "true"


def test_no_credentials_are_in_the_manifest() -> None:
    assert not [name for name in environment() if name.startswith("AWS_")]
    assert pod()["spec"]["serviceAccountName"] == "trainer"
    assert pod()["spec"]["automountServiceAccountToken"] is False


def test_trainer_arguments_reach_the_command_line() -> None:
    (container,) = pod(trainerArgs="--epochs 3")["spec"]["containers"]
    assert container["command"] == ["python3", "/code/bundle.zip", "train", "--epochs", "3"]


def test_gpus_are_asked_for_where_there_are_any() -> None:
    (container,) = pod(gpusPerWorker=1)["spec"]["containers"]
    assert container["resources"]["limits"]["nvidia.com/gpu"] == "1"
    assert container["resources"]["requests"]["nvidia.com/gpu"] == "1"
    (container,) = pod(gpusPerWorker=0)["spec"]["containers"]
    assert "nvidia.com/gpu" not in container["resources"]["limits"]


@pytest.mark.parametrize(
    ("instance_type", "per_node"), [("m5.large", 1), ("m5.large", 2), ("g5.12xlarge", 4), ("g5.48xlarge", 8)]
)
def test_as_many_workers_fit_on_a_node_as_the_settings_say_and_no_more(instance_type: str, per_node: int) -> None:
    workers = spec(instanceTypes=[instance_type], workersPerNode=per_node, gpusPerWorker=0).workers
    asked = int(training.resources(workers)["requests"]["cpu"].removesuffix("m"))
    allocatable = workers.nodes.smallest.vcpus * 1000 - 70
    daemons = 330
    assert asked * per_node <= allocatable - daemons
    assert asked * (per_node + 1) > allocatable - daemons


def test_workers_go_to_their_own_nodes_and_give_up_lost_ones_soon() -> None:
    found = pod()["spec"]
    assert found["nodeSelector"] == {labels.NODE_ROLE: labels.NODE_ROLE_WORKER}
    by_key = {each["key"]: each for each in found["tolerations"]}
    assert labels.TAINT_WORKER in by_key
    assert by_key["node.kubernetes.io/unreachable"]["tolerationSeconds"] < 60


def test_pulumi_leaves_the_size_of_the_job_to_the_scaler() -> None:
    config = graph.stack_config("Pulumi.local.yaml")
    two, three = (graph.deploy({**config, "workers": count}) for count in (2, 3))
    command = two.one("kubernetes:apps/v1:Deployment", "scaler").inputs["spec"]["template"]["spec"]["containers"][0]
    assert "--workers=2" in command["command"]
    differing = [
        one.name
        for one, other in zip(
            sorted(two.resources, key=lambda each: each.urn),
            sorted(three.resources, key=lambda each: each.urn),
            strict=True,
        )
        if one.inputs != other.inputs
    ]
    assert differing == ["tidewater-local-workers", "deployment-digits-scaler", "job-digits"]


def test_pulumi_does_not_wait_for_the_training_to_end() -> None:
    assert training.job_manifest(spec())["metadata"]["annotations"] == {"pulumi.com/skipAwait": "true"}


def test_the_selector_finds_the_pods() -> None:
    deployed = graph.deploy(graph.stack_config("Pulumi.local.yaml"))
    selector = dict(each.split("=") for each in deployed.outputs["workerSelector"].split(","))
    template = deployed.one(JOB, "job-digits").inputs["spec"]["template"]
    assert selector.items() <= template["metadata"]["labels"].items()
