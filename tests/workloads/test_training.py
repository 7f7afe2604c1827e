"""The training job's manifests: an elastic Job whose pods are confined, in which lost nodes are not failures."""

from __future__ import annotations

from typing import Any

import pytest

import settings
from contract import env, exit_codes, labels, leaving
from tests import graph
from workloads import training

JOB = "kubernetes:batch/v1:Job"
CODE = "s3://bucket/code/abc.zip"


def spec(**changes: Any) -> training.JobSpec:
    """The job of the production example, with some keys changed."""
    config = {**graph.stack_config("Pulumi.aws.yaml.example"), **changes}
    stack = settings.parse(config, stack="dev")
    return training.job_spec(stack, CODE, training.checkpoint_places(stack.training, "bucket"), "core")


def pod(**changes: Any) -> dict[str, Any]:
    """A worker's pod."""
    template: dict[str, Any] = training.job_manifest(spec(**changes))["spec"]["template"]
    return template


def environment(**changes: Any) -> dict[str, Any]:
    """The worker's environment, by name."""
    (container,) = pod(**changes)["spec"]["containers"]
    return {each["name"]: each.get("value") or each["valueFrom"]["fieldRef"]["fieldPath"] for each in container["env"]}


def test_completions_equal_parallelism() -> None:
    job = training.job_manifest(spec(workers=5))["spec"]
    assert (job["completionMode"], job["completions"], job["parallelism"]) == ("Indexed", 5, 5)


def test_the_pods_do_not_change_with_the_number_of_workers() -> None:
    assert pod(workers=2) == pod(workers=5)


def test_a_finished_job_is_kept() -> None:
    assert "ttlSecondsAfterFinished" not in training.job_manifest(spec())["spec"]


def test_lost_nodes_and_leaving_are_not_failures_of_the_code() -> None:
    rules = training.failure_policy()["rules"]
    ignored = [
        code for rule in rules if rule["action"] == "Ignore" for code in rule.get("onExitCodes", {}).get("values", [])
    ]
    assert ignored == [exit_codes.KILLED, exit_codes.LEFT]
    assert rules[0] == {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}
    assert rules[-1]["action"] == "FailJob"
    assert rules[-1]["onExitCodes"]["values"] == [exit_codes.USAGE]


def test_the_loss_of_one_worker_does_not_delay_the_replacement_of_another() -> None:
    job = training.job_manifest(spec())["spec"]
    assert (
        job["backoffLimitPerIndex"] >= job["backoffLimit"]
    )  # else Kubernetes counts over all workers, or gives up one


def test_the_worker_gets_its_name_its_address_and_etcd() -> None:
    found = environment(jobName="mine", namespace="lab", minWorkers=2, maxWorkers=9)
    assert found[env.JOB] == "mine"
    assert found[env.ETCD] == "http://etcd.lab.svc:2379"
    assert found[env.WORKER] == "metadata.name"
    assert found[env.HOST] == "status.podIP"
    assert (found[env.MIN_WORKERS], found[env.MAX_WORKERS]) == ("2", "9")
    assert found[env.DATA] == "/data/digits"


@pytest.mark.parametrize(
    ("where", "places"),
    [
        pytest.param("efs", "/data/checkpoints/mine", id="efs"),
        pytest.param("s3", "s3://bucket/checkpoints/mine", id="s3"),
        pytest.param("both", "/data/checkpoints/mine,s3://bucket/checkpoints/mine", id="both"),
    ],
)
def test_the_worker_gets_the_places_of_its_checkpoints(where: str, places: str) -> None:
    assert environment(jobName="mine", checkpoints=where)[env.CHECKPOINTS] == places


def test_the_users_arguments_override_the_number_of_checkpoints() -> None:
    (container,) = pod(keepCheckpoints=7, trainerArgs="--keep-checkpoints 2")["spec"]["containers"]
    assert container["command"][3:] == ["--keep-checkpoints=7", "--keep-checkpoints", "2"]


def test_the_workers_get_the_name_of_the_stacks_bucket() -> None:
    deployed = graph.deploy({**graph.stack_config("Pulumi.local.yaml"), "checkpoints": "s3"})
    (container,) = deployed.one(JOB, "job-digits").inputs["spec"]["template"]["spec"]["containers"]
    (places,) = [each["value"] for each in container["env"] if each["name"] == env.CHECKPOINTS]
    assert places == f"s3://{deployed.outputs['bucket']}/checkpoints/digits"


def test_a_worker_with_several_gpus_runs_a_process_for_each() -> None:
    assert environment(instanceTypes=["g5.12xlarge"], gpusPerWorker=4)[env.PROCESSES] == "4"
    assert environment(gpusPerWorker=1)[env.PROCESSES] == "1"
    assert environment(gpusPerWorker=0)[env.PROCESSES] == "1"


def test_the_processes_of_a_worker_share_its_cpus() -> None:
    one = environment(instanceTypes=["g5.12xlarge"], gpusPerWorker=1, workersPerNode=4)
    four = environment(instanceTypes=["g5.12xlarge"], gpusPerWorker=4, workersPerNode=1)
    assert one["OMP_NUM_THREADS"] == four["OMP_NUM_THREADS"] == "11"


def test_prometheus_finds_the_metrics_of_every_process_of_a_worker() -> None:
    template = pod(instanceTypes=["g5.12xlarge"], gpusPerWorker=4)
    (container,) = template["spec"]["containers"]
    first = int(environment()[env.METRICS_PORT])
    assert [port["containerPort"] for port in container["ports"]] == [first, first + 1, first + 2, first + 3]
    assert [port["name"] for port in container["ports"]] == ["metrics", "metrics-1", "metrics-2", "metrics-3"]
    # With a port in the annotations it would scrape that one alone.
    assert "prometheus.io/port" not in template["metadata"]["annotations"]
    assert template["metadata"]["annotations"]["prometheus.io/scrape"] == "true"


def test_the_trainer_gets_sigterm_and_time_for_a_step_and_a_checkpoint() -> None:
    found = pod()["spec"]
    (container,) = found["containers"]
    assert container["command"][0] == "python3"  # process 1: no shell that would keep the signal to itself
    assert "lifecycle" not in container
    assert found["terminationGracePeriodSeconds"] > leaving.STEP_SECONDS + leaving.FLUSH_SECONDS


def test_shared_memory_is_in_proportion_to_the_node() -> None:
    for kind, most in (("m5.large", 8), ("g5.12xlarge", 192)):
        found = pod(instanceTypes=[kind], gpusPerWorker=0)["spec"]
        (volume,) = [each for each in found["volumes"] if each["name"] == "shared-memory"]
        assert volume["emptyDir"]["medium"] == "Memory"
        limit = int(volume["emptyDir"]["sizeLimit"].removesuffix("Mi"))
        assert most * 1024 / 8 < limit < most * 1024 / 4
        (mount,) = [each for each in found["containers"][0]["volumeMounts"] if each["name"] == "shared-memory"]
        assert mount["mountPath"] == "/dev/shm"


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
    assert container["command"][:3] == ["python3", "/code/bundle.zip", "train"]
    assert container["command"][-2:] == ["--epochs", "3"]


def test_gpus_are_requested_if_the_worker_has_any() -> None:
    (container,) = pod(gpusPerWorker=1)["spec"]["containers"]
    assert container["resources"]["limits"]["nvidia.com/gpu"] == "1"
    assert container["resources"]["requests"]["nvidia.com/gpu"] == "1"
    (container,) = pod(gpusPerWorker=0)["spec"]["containers"]
    assert "nvidia.com/gpu" not in container["resources"]["limits"]


@pytest.mark.parametrize(
    ("instance_type", "per_node"), [("m5.large", 1), ("m5.large", 2), ("g5.12xlarge", 4), ("g5.48xlarge", 8)]
)
def test_exactly_the_set_number_of_workers_fits_on_a_node(instance_type: str, per_node: int) -> None:
    workers = spec(instanceTypes=[instance_type], workersPerNode=per_node, gpusPerWorker=0).workers
    asked = int(training.resources(workers)["requests"]["cpu"].removesuffix("m"))
    allocatable = workers.nodes.smallest.vcpus * 1000 - 70
    daemons = 330
    assert asked * per_node <= allocatable - daemons
    assert asked * (per_node + 1) > allocatable - daemons


def test_workers_run_on_worker_nodes_and_are_evicted_soon_from_lost_ones() -> None:
    found = pod()["spec"]
    assert found["nodeSelector"] == {labels.NODE_ROLE: labels.NODE_ROLE_WORKER}
    by_key = {each["key"]: each for each in found["tolerations"]}
    assert labels.TAINT_WORKER in by_key
    assert by_key["node.kubernetes.io/unreachable"]["tolerationSeconds"] < 60


def test_pulumi_ignores_the_size_of_the_job() -> None:
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
