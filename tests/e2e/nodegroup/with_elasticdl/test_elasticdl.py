"""ElasticDL's tutorial with its command: a worker is deleted, a Deployment displaces workers, and gives the room back.

The job runs in the stack's namespace. Its workers run on the one worker node, which the stack's own job has left; its
master and servers run where etcd runs. Each test uses the job as the previous test left it.
"""

from __future__ import annotations

import math
import re

import pytest

from tests.e2e.checkout import Checkout, wait_until
from tests.e2e.elasticjob import Job, make_room
from tests.e2e.nodegroup.with_elasticdl.tutorial import (
    ALL_LOGS,
    ALLREDUCE,
    DELETE_WORKER,
    DEPLOY,
    END,
    EVALUATE,
    GIVE_BACK,
    LOGS,
    MASTER,
    NAME,
    PODS,
    SCRIPT,
    SERVERS,
    SPACE,
    TRAIN,
    Tutorial,
)

pytestmark = [pytest.mark.e2e, pytest.mark.incremental, pytest.mark.timeout(1800)]

(EPOCHS,) = map(int, re.findall(r"--num_epochs=(\d+)", TRAIN))
RECORDS = 1448
"""Of `digits`' part for training. Each record counts once per epoch, whichever pod is killed."""

IMAGES = 1442
"""Of the stack's dataset for training, which is divided in another way."""

WORKER = f"{NAME}-worker"
ACCURACY = 0.95
"""Of one process with the same model, data and optimizer after 3 epochs; the job has more."""


@pytest.fixture(scope="module")
def tutorial(checkout: Checkout) -> Tutorial:
    """Return the tutorial on a stack with one worker node, from which its own job has gone, with the data."""
    make_room(checkout, workers=1)
    made = Tutorial(checkout.path)
    made.begin()
    return made


def test_mistakes_are_reported_before_anything_is_made(tutorial: Tutorial) -> None:
    failed = tutorial.run(
        f"{TRAIN} --model_def=mnist.mnist_functional_api.no_model --ps_pod_priority=urgent"
        " --volume=mount_path=/data,claim_name=no",
        expect=2,
    )
    for said in ("has no no_model", "there is no priority class urgent", "there is no claim no in namespace training"):
        assert said in failed.text
    tutorial.run(f"kubectl get elasticjob {NAME}", expect=1)


def test_the_tutorials_command_brings_up_its_pods(tutorial: Tutorial) -> None:
    tutorial.run(TRAIN)
    names = {MASTER, *SERVERS, *(f"{WORKER}-{number}" for number in range(4))}
    wait_until("seven pods that run", lambda: tutorial.phases() == dict.fromkeys(names, "Running"))
    shown = tutorial.run(PODS).text.splitlines()[1:]
    assert {(line.split()[0], line.split()[2]) for line in shown} == {(name, "Running") for name in names}


def test_losses_and_metrics_are_in_the_logs(tutorial: Tutorial) -> None:
    tutorial.await_training_by(*(f"{WORKER}-{number}" for number in range(4)))
    losses, evaluations = LOGS
    assert "Loss: " in tutorial.run(losses).text
    wait_until("metrics", lambda: "Evaluation metrics" in tutorial.run(evaluations, expect=None).text)
    step, _ = tutorial.evaluations()[0]
    assert step >= 200


def test_a_deleted_worker_is_replaced_by_the_next_number(tutorial: Tutorial) -> None:
    before = tutorial.uids()
    tutorial.run(DELETE_WORKER)
    tutorial.await_workers(1, 2, 3, 4)
    tutorial.await_training_by(*(f"{WORKER}-{number}" for number in (1, 2, 3, 4)))
    after = tutorial.uids()
    assert {name: uid for name, uid in after.items() if name in before} == {
        name: uid for name, uid in before.items() if name != f"{WORKER}-0"
    }


def test_a_killed_master_goes_on_with_the_job(tutorial: Tutorial) -> None:
    before, measured = tutorial.uids(), tutorial.evaluations()
    tutorial.run(f"kubectl delete pod {MASTER} --force --grace-period=0")
    wait_until("another master", lambda: tutorial.uids().get(MASTER) not in (None, before[MASTER]))
    wait_until("a master that runs", lambda: tutorial.running("master"))
    tutorial.await_training_by(*tutorial.running())
    (step, _), *_ = wait_until("an evaluation by the new master", tutorial.evaluations)
    assert step > measured[-1][0]
    after = tutorial.uids()
    assert {name: uid for name, uid in after.items() if name != MASTER} == {
        name: uid for name, uid in before.items() if name != MASTER
    }


def test_a_killed_server_comes_back_with_the_model_of_a_worker(tutorial: Tutorial) -> None:
    before = tutorial.uids()
    tutorial.run(f"kubectl delete pod {SERVERS[1]} --force --grace-period=0")
    wait_until("another server", lambda: tutorial.uids().get(SERVERS[1]) not in (None, before[SERVERS[1]]))
    wait_until("a server that runs", lambda: SERVERS[1] in tutorial.running("ps"))
    tutorial.await_training_by(*tutorial.running())
    assert {name: uid for name, uid in tutorial.uids().items() if "worker" in name} == {
        name: uid for name, uid in before.items() if "worker" in name
    }


def test_a_deployment_of_high_priority_takes_the_room_of_workers(tutorial: Tutorial) -> None:
    before = tutorial.uids()
    tutorial.run(DEPLOY)
    tutorial.run("kubectl rollout status deployment/test-nginx --timeout=300s")
    wait_until("one worker", lambda: len(tutorial.running()) == 1)
    (left,) = tutorial.running()
    tutorial.await_training_by(left)
    wait_until("three workers that wait", lambda: list(tutorial.phases().values()).count("Pending") == 3)
    waiting = {name for name, phase in tutorial.phases().items() if phase == "Pending"}
    assert waiting == {f"{WORKER}-{number}" for number in (5, 6, 7)}
    kept = {MASTER, *SERVERS, left}
    assert {name: uid for name, uid in tutorial.uids().items() if name in kept} == {
        name: uid for name, uid in before.items() if name in kept
    }


def test_workers_take_the_room_back(tutorial: Tutorial) -> None:
    (left,) = tutorial.running()
    tutorial.run(GIVE_BACK)
    workers = {left, *(f"{WORKER}-{number}" for number in (5, 6, 7))}
    wait_until("four workers", lambda: tutorial.running() == workers)
    tutorial.await_training_by(*workers)
    assert tutorial.status().get("restarts", 0) == 0


def test_the_job_ends_with_the_accuracy_of_one_process(tutorial: Tutorial) -> None:
    tutorial.run(f"kubectl exec {WORKER}-7 -- touch /data/elasticdl/hurry")
    tutorial.await_condition("Succeeded", seconds=600)
    _, accuracy = tutorial.evaluations()[-1]
    assert accuracy >= ACCURACY
    assert tutorial.phases()[MASTER] == "Succeeded"
    assert not tutorial.grep(MASTER, "ERROR")
    assert tutorial.grep(MASTER, f"Job done: .* {EPOCHS * RECORDS} records"), tutorial.run(f"kubectl logs {MASTER}")
    wait_until("servers and workers to have left", lambda: not tutorial.running("worker") | tutorial.running("ps"))
    left = [name.removeprefix(f"{NAME}-") for name in tutorial.phases() if WORKER in name]
    said = tutorial.run(ALL_LOGS).text
    assert [name for name in left if name not in said] == [], "the logs of workers stay"
    tutorial.run(END)


def test_all_reduce_trains_with_half_of_the_workers_at_high_priority(tutorial: Tutorial) -> None:
    tutorial.run(ALLREDUCE)
    job = Job(tutorial.path, "elasticdl-all", SPACE)
    wait_until("two workers", lambda: len(job.pods()) == 2)
    classes = {pod["metadata"]["name"]: pod["spec"]["priorityClassName"] for pod in job.pods()}
    assert classes == {"elasticdl-all-worker-0": "high", "elasticdl-all-worker-1": "low"}
    job.await_condition("Succeeded")
    assert [accuracy for pod in classes for _, accuracy in tutorial.evaluations(pod) if accuracy >= ACCURACY]
    tutorial.run(f"kubectl delete {job.named}")


def test_its_model_is_evaluated_by_parameter_servers_each_time_that_a_file_of_the_job_is_created(
    tutorial: Tutorial,
) -> None:
    tutorial.run(f"{EVALUATE} --yaml=evaluate.yaml")
    job = Job(tutorial.path, "elasticdl-evaluate", SPACE)
    for _ in range(2):
        tutorial.run("kubectl create -f evaluate.yaml")
        job.await_condition("Succeeded")
        ((step, accuracy),) = tutorial.evaluations("elasticdl-evaluate-master")
        assert step > 0
        assert accuracy >= ACCURACY
        tutorial.run(f"kubectl delete {job.named}")


def test_a_script_of_ones_own_goes_on_without_a_deleted_worker_and_with_its_successor(tutorial: Tutorial) -> None:
    tutorial.run(SCRIPT)
    job = Job(tutorial.path, "elasticdl-script", SPACE)
    deleted, other, successor = (f"{job.name}-worker-{number}" for number in range(3))
    both = "update=.* workers=2"
    wait_until("updates by both", lambda: tutorial.grep(deleted, both) and tutorial.grep(other, both))
    tutorial.run(f"kubectl delete pod {deleted} --wait=false")
    wait_until("updates with the successor", lambda: tutorial.grep(successor, both))
    job.await_condition("Succeeded")
    (told,) = wait_until("the end of its script", lambda: tutorial.grep(other, "accuracy="))
    wait_until("the same parameters in both, to the bit", lambda: tutorial.grep(successor, told))
    (accuracy,) = re.findall(r"accuracy=([0-9.]+) updates=\d+ model=\w+", told)
    assert float(accuracy) >= 0.85
    (done,) = tutorial.grep(f"{job.name}-master", "Job done: ")
    tasks = 3 * math.ceil(IMAGES / 64)
    assert f"Job done: {tasks} tasks, {3 * IMAGES} records" in done
    tutorial.run(f"kubectl delete {job.named}")
