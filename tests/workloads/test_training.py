"""The training job's manifest: an ElasticJob with confined pods. Pulumi owns one number of it."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from tests import facts, graph
from tests.security.stack import SIGNATURE
from tidewater.contract import env, exit_codes, labels, leaving, metrics
from tidewater.elasticjob import codec, names
from tidewater.elasticjob.model import Launcher, RestartPolicy, SuccessPolicy
from workloads import storage, training
from workloads.namespace import PriorityClasses, priority_class_manifest

JOB = f"kubernetes:{names.API_VERSION}:{names.KIND}"
CODE = "s3://bucket/code/abc.zip"
DIVIDED = {
    "workersPerReplica": 2,
    "gpusPerWorker": 0,
    "instanceTypes": ["m6i.xlarge"],
    "trainingScript": "tests/e2e/nodegroup/divided.py",
}


def spec(**changes: Any) -> training.JobSpec:
    """The job of the production example, with some keys changed."""
    config = {**graph.stack_config("Pulumi.aws.yaml.example"), **changes}
    stack = facts.parsed(config)
    places = storage.checkpoint_places(stack.training, "bucket")
    return training.job_spec(stack, CODE, places, PriorityClasses(stack.training.namespace))


def manifest(**changes: Any) -> dict[str, Any]:
    """The ElasticJob."""
    return training.job_manifest(spec(**changes))


def pod(**changes: Any) -> dict[str, Any]:
    """A worker's template."""
    return template_of(manifest(**changes))


def template_of(job: Any) -> dict[str, Any]:
    """The workers' template of an ElasticJob."""
    template: dict[str, Any] = job["spec"]["replicaSpecs"]["Worker"]["template"]
    return template


def environment(**changes: Any) -> dict[str, Any]:
    """The worker's environment in its template, by name."""
    (container,) = pod(**changes)["spec"]["containers"]
    return {each["name"]: each["value"] for each in container["env"]}


def test_it_is_a_job_that_the_controller_accepts() -> None:
    job = codec.job_of(manifest(workers=5, minWorkers=2, maxWorkers=9))
    assert job.name == "digits"
    assert job.spec.worker.replicas == 5
    assert job.bounds(names.WORKER) == (2, 9)
    assert job.launcher is Launcher.TIDEWATER


def test_surge_workers_have_a_lower_priority_than_core_workers() -> None:
    policy = codec.job_of(manifest()).spec.scheduling_policy
    values = PriorityClasses("training").values()
    assert policy.core_priority_class_name is not None
    assert policy.surge_priority_class_name is not None
    assert values[policy.core_priority_class_name].value > values[policy.surge_priority_class_name].value


def test_a_core_worker_that_is_made_again_displaces_no_worker_of_its_own_job() -> None:
    classes = PriorityClasses("training")
    core = priority_class_manifest(classes.core, classes.values()[classes.core])
    assert core["preemptionPolicy"] == "Never"


def test_a_corrected_template_makes_another_job_of_it_unless_the_size_would_be_lost() -> None:
    template = "spec.replicaSpecs.Worker.template"
    assert template in training.replaced_on(spec().workers)
    assert template not in training.replaced_on(spec(sizeOwner="cluster").workers)


def test_the_pods_do_not_change_with_the_number_of_workers() -> None:
    assert pod(workers=2) == pod(workers=5)


def test_a_job_of_replicas_of_several_workers_counts_replicas_in_one_zone() -> None:
    changes = {**DIVIDED, "workers": 6, "minWorkers": 2, "maxWorkers": 8}
    found = manifest(**changes)
    job = codec.job_of(found)
    assert (job.spec.worker.replicas, job.spec.min_replicas, job.spec.max_replicas) == (3, 1, 4)
    assert (job.spec.workers_per_replica, job.spec.topology_key) == (2, "topology.kubernetes.io/zone")
    assert found["metadata"]["annotations"]["pulumi.com/waitFor"] == "jsonpath={.status.settledReplicas}=3"
    bounds = environment(**changes)
    assert (bounds[env.MIN_WORKERS], bounds[env.MAX_WORKERS]) == ("1", "4")


def test_a_job_of_whole_models_has_no_field_of_replicas_of_several_workers() -> None:
    assert not {"workersPerReplica", "topologyKey"} & manifest()["spec"].keys()


def test_a_suspended_job_of_replicas_of_several_workers_goes_on_with_at_least_one() -> None:
    found = manifest(**DIVIDED, workers=0, minWorkers=0)
    assert found["spec"]["suspend"]
    assert found["spec"]["replicaSpecs"]["Worker"]["replicas"] == 1


def test_a_finished_job_is_kept() -> None:
    assert codec.job_of(manifest()).spec.ttl_seconds_after_finished is None


def test_a_crash_is_retried_and_a_wrong_command_line_is_not() -> None:
    worker = codec.job_of(manifest()).spec.worker
    assert worker.restart_policy is RestartPolicy.EXIT_CODE
    assert exit_codes.FAILED in worker.retryable_exit_codes
    assert exit_codes.USAGE not in worker.retryable_exit_codes


def test_the_job_is_done_as_soon_as_one_worker_says_so() -> None:
    assert codec.job_of(manifest()).spec.success_policy is SuccessPolicy.ANY_WORKER


def test_the_launcher_tells_the_worker_where_etcd_is() -> None:
    assert manifest(namespace="lab")["spec"]["rdzvEndpoint"] == "http://etcd.lab.svc:2379"
    assert environment()[env.DATA] == "/data/digits"
    assert {env.JOB, env.ETCD, env.WORKER, env.HOST} & environment().keys() == set()


def test_workers_never_train_together_with_different_bounds() -> None:
    # A change of the template replaces all workers; the launcher's own variables would not.
    found = environment(minWorkers=2, maxWorkers=9)
    assert (found[env.MIN_WORKERS], found[env.MAX_WORKERS]) == ("2", "9")


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
    (container,) = template_of(deployed.one(JOB).inputs)["spec"]["containers"]
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


def test_a_worker_is_ready_when_it_says_that_it_has_joined_the_others() -> None:
    (container,) = pod(trainerArgs="--epochs 3 --min-step-seconds 1")["spec"]["containers"]
    asked = container["readinessProbe"]["httpGet"]
    assert asked == {"path": metrics.READY_PATH, "port": int(environment()[env.METRICS_PORT])}


@pytest.mark.parametrize("arguments", ["--metrics-port 0", "--metrics-port=9000", "--metrics 0"])
def test_a_worker_that_serves_its_metrics_elsewhere_or_nowhere_is_not_asked(arguments: str) -> None:
    (container,) = pod(trainerArgs=arguments)["spec"]["containers"]
    assert "readinessProbe" not in container


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


def readable(value: Any) -> str:
    """Return what a state shows of a resource's inputs."""
    if isinstance(value, dict):
        return "" if SIGNATURE in value else " ".join(readable(each) for each in value.values())
    return " ".join(readable(each) for each in value) if isinstance(value, list) else str(value)


@pytest.mark.parametrize(("secrets", "shown"), [((), True), (("trainerArgs",), False)], ids=["plain", "secret"])
def test_trainer_arguments_that_are_a_secret_are_not_shown_in_the_state(secrets: tuple[str, ...], shown: bool) -> None:
    config = {**graph.stack_config("Pulumi.local.yaml"), "trainerArgs": "--token 12-hidden-34"}
    made = graph.run(graph.program, config, secrets=secrets)
    assert any("12-hidden-34" in readable(dict(each.inputs)) for each in made.resources) == shown
    assert "12-hidden-34" in str(made.one(JOB).inputs), "the job has them all the same"
    assert "12-hidden-34" not in str(made.outputs)


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


@pytest.mark.parametrize(
    ("surge_nodes", "changed"),
    [
        pytest.param("karpenter", [training.RESOURCE], id="karpenter"),
        pytest.param("nodegroup", ["tidewater-local-workers", training.RESOURCE], id="nodegroup"),
    ],
)
def test_a_resize_changes_the_size_of_the_job_and_of_a_node_group_for_all_workers(
    surge_nodes: str, changed: list[str]
) -> None:
    config = {**graph.stack_config("Pulumi.local.yaml"), "surgeNodes": surge_nodes}
    two, three = (graph.deploy({**config, "workers": count}) for count in (2, 3))
    differing = [
        one.name
        for one, other in zip(
            sorted(two.resources, key=lambda each: each.urn),
            sorted(three.resources, key=lambda each: each.urn),
            strict=True,
        )
        if one.inputs != other.inputs
    ]
    assert differing == changed
    before, after = (copy.deepcopy(each.one(JOB).inputs["spec"]) for each in (two, three))
    assert (before["replicaSpecs"]["Worker"].pop("replicas"), after["replicaSpecs"]["Worker"].pop("replicas")) == (2, 3)
    assert before == after


def test_pulumi_waits_until_the_job_has_the_size_that_it_set() -> None:
    assert manifest(workers=3)["metadata"]["annotations"] == {
        "pulumi.com/waitFor": "jsonpath={.status.settledReplicas}=3"
    }


def test_no_workers_are_a_suspended_job_of_the_smallest_size() -> None:
    job = codec.job_of(manifest(workers=0, minWorkers=0, maxWorkers=4))
    assert job.spec.suspend
    assert job.bounds(names.WORKER) == (1, 4)
    assert job.spec.worker.replicas == 1
    assert "suspend" not in manifest(workers=1, minWorkers=0)["spec"]  # it may be suspended with kubectl


def test_workers_are_the_same_pods_with_and_without_a_core() -> None:
    assert pod(workers=0, minWorkers=0) == pod(workers=2, minWorkers=0) == pod(workers=2, minWorkers=1)


def test_pulumi_waits_until_a_suspended_job_has_no_worker_left() -> None:
    assert manifest(workers=0, minWorkers=0)["metadata"]["annotations"] == {
        "pulumi.com/waitFor": "jsonpath={.status.replicas}=0"
    }


def test_a_job_that_the_cluster_sizes_may_be_resumed_in_the_cluster() -> None:
    config = {**graph.stack_config("Pulumi.local.yaml"), "sizeOwner": "cluster", "minWorkers": 0, "workers": 0}
    job = graph.deploy(config).one(JOB)
    assert job.ignored == ("spec.replicaSpecs.Worker.replicas", "spec.suspend")
    assert job.inputs["metadata"]["annotations"] == {"pulumi.com/waitFor": "jsonpath={.status.settledReplicas}"}


def test_workers_prefer_the_nodes_that_are_always_there_but_do_not_insist() -> None:
    (preferred,) = pod()["spec"]["affinity"]["nodeAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
    (expression,) = preferred["preference"]["matchExpressions"]
    assert (preferred["weight"], expression["key"], expression["values"]) == (100, labels.NODES, ["core"])
    assert "requiredDuringSchedulingIgnoredDuringExecution" not in pod()["spec"]["affinity"]["nodeAffinity"]
    assert "nodeAffinity" not in pod(surgeNodes="nodegroup", maintenanceWindow="")["spec"]["affinity"]


def test_pulumi_neither_sets_nor_awaits_a_size_that_the_cluster_owns() -> None:
    annotations = manifest(workers=3, sizeOwner="cluster")["metadata"]["annotations"]
    assert annotations == {"pulumi.com/waitFor": "jsonpath={.status.settledReplicas}"}
    config = graph.stack_config("Pulumi.local.yaml")
    assert graph.deploy(config).one(JOB).ignored == ()
    path = graph.deploy({**config, "sizeOwner": "cluster"}).one(JOB).ignored
    assert path == ("spec.replicaSpecs.Worker.replicas",)


def test_the_job_of_an_older_stack_is_replaced_not_joined_by_another() -> None:
    job = graph.deploy(graph.stack_config("Pulumi.local.yaml")).one(JOB)
    assert ("kubernetes:batch/v1:Job", "job-digits") in job.aliases
    assert {"apiVersion", "kind"} <= set(job.replaced_on)
    assert job.deleted_first
    (term,) = pod()["spec"]["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert term["labelSelector"]["matchLabels"].items() <= pod()["metadata"]["labels"].items()


def test_a_job_of_another_name_replaces_the_first() -> None:
    config = graph.stack_config("Pulumi.local.yaml")
    one, other = (graph.deploy({**config, "jobName": name}).one(JOB) for name in ("digits", "letters"))
    assert one.urn == other.urn
    assert other.deleted_first


def test_the_selector_finds_the_pods() -> None:
    deployed = graph.deploy(graph.stack_config("Pulumi.local.yaml"))
    selector = dict(each.split("=") for each in deployed.outputs["workerSelector"].split(","))
    template = template_of(deployed.one(JOB).inputs)
    assert selector.items() <= template["metadata"]["labels"].items()
