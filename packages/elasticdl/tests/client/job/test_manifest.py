"""The ElasticJob of a command line."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from elasticdl.client.flags import commandline
from elasticdl.client.job.manifest import CRASHES, elastic_job, first_pods
from elasticdl.client.job.pods import Place
from elasticdl.job import JobArgs, JobMode, Strategy

from packages.elasticdl.tests.client.seed import CODE, COMMAND, FACTS, asked
from tidewater.controller import objects
from tidewater.controller.decide.actions import CreatePod
from tidewater.elasticjob import codec
from tidewater.elasticjob.choices import CleanPodPolicy, Launcher, PodNames, RestartPolicy, SuccessPolicy

STACK = Place("training", FACTS, CODE)
ELSEWHERE = Place("default")


def job(place: Place = STACK, without: tuple[str, ...] = (), /, **changed: str) -> dict[str, Any]:
    return elastic_job(asked(without, **changed), place)


def words(manifest: dict[str, Any], type: str) -> list[str]:
    """Return the command of the container of a type, without the shell that sets PYTHONPATH."""
    found: list[str] = manifest["spec"]["replicaSpecs"][type]["template"]["spec"]["containers"][0]["command"]
    return found[4:] if found[0] == "sh" else found


def after(command: list[str], flag: str) -> str:
    return command[command.index(flag) + 1]


def test_the_controller_reads_the_job_as_it_is_meant() -> None:
    found = codec.job_of(job())
    assert (found.name, found.namespace) == ("elasticdl-test-mnist", "training")
    assert {type: replica.replicas for type, replica in found.spec.replica_specs.items()} == {
        "Master": 1,
        "PS": 2,
        "Worker": 4,
    }
    assert {type: replica.pod_names for type, replica in found.spec.replica_specs.items()} == {
        "Master": PodNames.SINGLE,
        "PS": PodNames.INDEXED,
        "Worker": PodNames.SUCCESSIVE,
    }
    assert found.bounds("Worker") == (1, 4)
    assert found.launcher is Launcher.NONE
    assert found.spec.success_policy is SuccessPolicy.RANK0


def test_the_pods_have_elasticdls_names() -> None:
    found = codec.job_of(job())
    assert found.pod_name("Master", 0) == "elasticdl-test-mnist-master"
    assert found.pod_name("PS", 1) == "elasticdl-test-mnist-ps-1"
    assert found.pod_name("Worker", 4) == "elasticdl-test-mnist-worker-4"
    assert first_pods(job()) == ("elasticdl-test-mnist-master", "elasticdl-test-mnist-worker-0")


def test_every_process_finds_the_others_and_gets_the_same_arguments() -> None:
    made = job()
    master, server, worker = (words(made, type) for type in ("Master", "PS", "Worker"))
    servers = "elasticdl-test-mnist-ps-0:2222,elasticdl-test-mnist-ps-1:2222"
    assert master[:3] == ["python3", "-m", "elasticdl.master"]
    assert after(master, "--etcd") == "http://etcd.training.svc:2379"
    assert after(master, "--ps_addrs") == after(worker, "--ps_addrs") == servers
    assert after(server, "--master_addr") == after(worker, "--master_addr") == "elasticdl-test-mnist-master:50001"
    assert (after(server, "--index"), after(server, "--servers")) == ("$(ELASTICDL_REPLICA_INDEX)", "2")
    assert after(worker, "--name") == "$(POD_NAME)"
    args = {JobArgs.from_json(after(command, "--job_args")) for command in (master, server, worker)}
    assert {each.model_zoo for each in args} == {"/elasticdl/zoo"}
    assert len(args) == 1


def test_a_text_that_looks_like_a_variable_reaches_the_process_as_it_is() -> None:
    text = after(words(job(model_params="a='$(POD_NAME)'"), "Worker"), "--job_args")
    assert json.loads(text)["model_params"] == "a='$$(POD_NAME)'"  # Kubernetes makes one dollar sign of two


def test_each_job_that_is_made_of_one_file_is_another_run() -> None:
    for replica in job()["spec"]["replicaSpecs"].values():
        (container,) = replica["template"]["spec"]["containers"]
        args = JobArgs.from_json(after(container["command"], "--job_args"))
        assert args.run_id == "0-$(ELASTICDL_JOB_UID)"  # Kubernetes replaces it
        (variable,) = (each for each in container["env"] if each["name"] == "ELASTICDL_JOB_UID")
        assert variable["valueFrom"]["fieldRef"]["fieldPath"] == "metadata.labels['tidewater.dev/job-uid']"
    first, second = (replace(codec.job_of(job()), uid=uid) for uid in ("uid-1", "uid-2"))
    assert (
        objects.pod(first, CreatePod("Master", 0, core=True))["metadata"]["labels"]["tidewater.dev/job-uid"] == "uid-1"
    )
    assert (
        objects.pod(second, CreatePod("Master", 0, core=True))["metadata"]["labels"]["tidewater.dev/job-uid"] == "uid-2"
    )


def test_in_an_image_the_zoo_stays_where_it_is() -> None:
    made = job(ELSEWHERE, image_name="my:1", etcd="etcd:2379")
    worker = words(made, "Worker")
    assert JobArgs.from_json(after(worker, "--job_args")).model_zoo == "model_zoo"
    assert after(words(made, "Master"), "--etcd") == "http://etcd:2379"


def test_without_etcd_the_master_gets_none() -> None:
    assert "--etcd" not in words(job(ELSEWHERE, image_name="my:1"), "Master")


def test_workers_have_the_class_of_their_template() -> None:
    made = job()
    assert "schedulingPolicy" not in made["spec"]
    specs = made["spec"]["replicaSpecs"]
    classes = {type: specs[type]["template"]["spec"]["priorityClassName"] for type in specs}
    assert classes == {"Master": "high", "PS": "high", "Worker": "low"}


def test_half_of_the_workers_may_be_high() -> None:
    made = job(worker_pod_priority="high=0.5")
    found = codec.job_of(made)
    assert found.bounds("Worker") == (2, 4)
    policy = found.spec.scheduling_policy
    assert (policy.core_priority_class_name, policy.surge_priority_class_name) == ("high", "low")
    assert "priorityClassName" not in made["spec"]["replicaSpecs"]["Worker"]["template"]["spec"]


@pytest.mark.parametrize(
    ("changed", "policy", "codes"),
    [
        ({}, RestartPolicy.EXIT_CODE, (1, *CRASHES)),
        ({"relaunch_on_worker_failure": "0"}, RestartPolicy.NEVER, ()),
        ({"restart_policy": "OnFailure"}, RestartPolicy.ON_FAILURE, ()),
    ],
)
def test_workers_are_restarted_as_asked(changed: dict[str, str], policy: RestartPolicy, codes: tuple[int, ...]) -> None:
    worker = codec.job_of(job(**changed)).spec.worker
    assert (worker.restart_policy, worker.retryable_exit_codes) == (policy, codes)


def test_the_masters_exit_code_is_the_jobs() -> None:
    master = codec.job_of(job(restart_policy="OnFailure")).spec.replica_specs["Master"]
    assert (master.restart_policy, master.retryable_exit_codes) == (RestartPolicy.EXIT_CODE, CRASHES)


def test_the_failure_after_those_that_are_replaced_fails_the_job() -> None:
    assert codec.job_of(job()).spec.backoff_limit == 1 * 4 + 1
    assert codec.job_of(job(relaunch_on_worker_failure="3")).spec.backoff_limit == 3 * 4 + 1
    assert codec.job_of(job(relaunch_on_worker_failure="0")).spec.backoff_limit == 5 * 2, "of the servers alone"


@pytest.mark.parametrize(
    "changed",
    [
        pytest.param({"distribution_strategy": "AllreduceStrategy"}, id="all-reduce"),
        pytest.param({"job_command": "python3 train.py", "evaluation_steps": "0"}, id="script"),
    ],
)
def test_without_servers_the_failure_after_those_that_are_replaced_fails_the_job_too(changed: dict[str, str]) -> None:
    made = {}
    for count in "310":
        manifest = job(STACK, ("num_ps_pods",), relaunch_on_worker_failure=count, **changed)
        made[count] = codec.job_of(manifest).spec
    assert "PS" not in made["1"].replica_specs
    assert {count: spec.backoff_limit for count, spec in made.items()} == {"3": 3 * 4 + 1, "1": 1 * 4 + 1, "0": 0}
    assert made["1"].worker.restart_policy is RestartPolicy.EXIT_CODE
    assert made["0"].worker.restart_policy is RestartPolicy.NEVER


def test_a_job_may_be_allowed_to_grow() -> None:
    assert codec.job_of(job(max_workers="16")).bounds("Worker") == (1, 16)


def test_all_reduce_meets_in_etcd_and_has_no_servers() -> None:
    found = codec.job_of(job(STACK, ("num_ps_pods",), distribution_strategy="AllreduceStrategy"))
    assert set(found.spec.replica_specs) == {"Worker"}
    assert found.launcher is Launcher.TIDEWATER
    assert found.spec.rdzv_endpoint == "http://etcd.training.svc:2379"
    assert found.spec.success_policy is SuccessPolicy.ANY_WORKER


def test_all_reduce_is_done_by_the_elastic_trainer() -> None:
    made = job(STACK, ("num_ps_pods",), distribution_strategy="AllreduceStrategy")
    command = words(made, "Worker")
    assert command[:3] == ["python3", "-m", "elasticdl.allreduce"]
    assert JobArgs.from_json(after(command, "--job_args")).distribution_strategy is Strategy.ALLREDUCE
    assert first_pods(made) == ("elasticdl-test-mnist-worker-0", "elasticdl-test-mnist-worker-0")


def test_a_worker_trains_with_a_process_for_each_of_its_gpus() -> None:
    gpus = {"worker_resource_request": "cpu=2,gpu=2", "worker_resource_limit": "cpu=2,gpu=2"}
    made = job(STACK, ("num_ps_pods",), distribution_strategy="AllreduceStrategy", **gpus)
    (container,) = made["spec"]["replicaSpecs"]["Worker"]["template"]["spec"]["containers"]
    assert {"name": "TIDEWATER_PROCESSES", "value": "2"} in container["env"]


def test_a_script_of_ones_own_by_all_reduce_has_a_master_for_its_shards() -> None:
    more = {"job_command": "python3 train.py", "evaluation_steps": "0", "distribution_strategy": "AllreduceStrategy"}
    found = codec.job_of(job(STACK, ("num_ps_pods",), **more))
    assert set(found.spec.replica_specs) == {"Master", "Worker"}
    assert (found.launcher, found.spec.success_policy) == (Launcher.TIDEWATER, SuccessPolicy.RANK0)


@pytest.mark.parametrize(
    ("more", "policy"),
    [
        pytest.param({}, CleanPodPolicy.RUNNING, id="servers"),
        pytest.param({"job_command": "python3 train.py", "evaluation_steps": "0"}, CleanPodPolicy.NONE, id="script"),
        pytest.param({"distribution_strategy": "AllreduceStrategy"}, CleanPodPolicy.NONE, id="all-reduce"),
    ],
)
def test_only_servers_are_ended_with_the_job(more: dict[str, str], policy: CleanPodPolicy) -> None:
    absent = ("num_ps_pods", "grads_to_wait") if "distribution_strategy" in more else ()
    assert codec.job_of(job(STACK, absent, **more)).spec.clean_pod_policy is policy


def test_a_script_of_ones_own_takes_the_place_of_the_worker() -> None:
    made = job(job_command="python3 train.py --name 'a b'", evaluation_steps="0")
    assert words(made, "Worker") == ["python3", "train.py", "--name", "a b"]
    (container,) = made["spec"]["replicaSpecs"]["Worker"]["template"]["spec"]["containers"]
    env = {each["name"]: each.get("value") for each in container["env"]}
    assert env["ELASTICDL_MASTER_ADDR"] == "elasticdl-test-mnist-master:50001"
    assert env["TIDEWATER_JOB"] == "test-mnist-0-$(ELASTICDL_JOB_UID)"  # another submission meets elsewhere
    assert JobArgs.from_json(str(env["ELASTICDL_JOB_ARGS"])).run_id == "0-$(ELASTICDL_JOB_UID)"
    assert set(made["spec"]["replicaSpecs"]) == {"Master", "Worker"}
    assert (made["spec"]["launcher"], made["spec"]["rdzvEndpoint"]) == ("tidewater", "http://etcd.training.svc:2379")
    assert container["workingDir"] == "/elasticdl/zoo"


@pytest.mark.parametrize("mode", [JobMode.EVALUATE, JobMode.PREDICT])
def test_a_checkpoint_is_evaluated_and_used_by_the_same_processes(mode: JobMode) -> None:
    data = {JobMode.EVALUATE: "validation_data", JobMode.PREDICT: "prediction_data"}[mode]
    kept = {name: COMMAND[name] for name in ("job_name", "model_zoo", "model_def", "num_ps_pods", "num_workers")}
    made = elastic_job(
        commandline.asked(mode, {**kept, data: "/data", "checkpoint_dir_for_init": "/data/c"}, []), STACK
    )
    found = JobArgs.from_json(after(words(made, "Worker"), "--job_args"))
    assert (found.mode, found.checkpoint_dir_for_init) == (mode, "/data/c")


def test_the_same_command_gives_the_same_job() -> None:
    assert job() == job()
