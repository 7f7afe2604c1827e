"""Walk-throughs on the stack's worker nodes: who sets the size, a job that shrinks and grows with its nodes, torchrun.

The second is the one of the TorchElastic controller, with its manifest and with the commands of docs/elasticjob.md; the
third is ElasticDL's elastic scheduling. The modules of this folder use one stack, with one node group for all workers,
in the order of their names.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.checkout import UP, Checkout, wait_until
from tests.e2e.elasticjob import (
    NAMESPACE,
    NODE_GROUP,
    Job,
    adapt,
    apply,
    example,
    make_stack,
    scale_nodes,
    store_code,
    with_code,
)
from tests.e2e.training import (
    assert_steps_only_grow,
    identities,
    latest_generation,
    latest_step,
    running_workers,
    wait_for_world,
)
from tests.pages import commands

pytestmark = [pytest.mark.e2e, pytest.mark.incremental, pytest.mark.timeout(1800)]

GUIDE = "docs/elasticjob.md"
(CREATE_SPACE, APPLY, LIST), NAMES, (ONE_NODE, THREE_NODES, GROW, DESCRIBE) = commands(GUIDE, "A first job")
((FOLLOW, PODS),) = commands(GUIDE, "Pods")

TRAIN = ["python3", "-m", "examples.elasticjob.train"]
ARGUMENTS = ["--checkpoints=/tmp/checkpoints", "--epochs=100000", "--min-step-seconds=0.5", "--report-every=1"]

RANKS = """
import os, time
print(f"event=started world_size={os.environ['WORLD_SIZE']} rank={os.environ['RANK']}", flush=True)
while True:
    time.sleep(1)
"""
"""A script for torchrun that only says how many it is one of."""


@pytest.fixture(scope="module")
def stack(checkout: Checkout) -> Job:
    """Return the stack's own job; the walk-throughs scale the stack's node group."""
    make_stack(checkout, NODE_GROUP)
    return Job(checkout.path, checkout.outputs["jobName"], checkout.namespace)


@pytest.fixture(scope="module")
def imagenet(checkout: Checkout) -> Job:
    """Return the job of the old controller's sample."""
    return Job(checkout.path, "imagenet")


@pytest.fixture(scope="module")
def mnist(checkout: Checkout) -> Job:
    """Return the job of elastic scheduling."""
    return Job(checkout.path, "mnist")


def size_owners(job: Job) -> set[str]:
    """Return the field managers that own the number of workers."""
    shown = job.json(f"kubectl get {job.named} -o json --show-managed-fields")
    return {each["manager"] for each in shown["metadata"]["managedFields"] if _owns_size(each.get("fieldsV1", {}))}


def _owns_size(fields: dict[str, Any]) -> bool:
    for name in ("spec", "replicaSpecs", "Worker"):
        fields = fields.get(f"f:{name}", {})
    return "f:replicas" in fields


def without_size(job: dict[str, Any]) -> dict[str, Any]:
    """Return what a job asks for, without the number of workers."""
    worker = job["spec"]["replicaSpecs"]["Worker"]
    return {**job["spec"], "replicaSpecs": {"Worker": {**worker, "replicas": None}}}


def comes_to(job: Job, command: str) -> None:
    """Run a command of the guide; assert that `kubectl describe` comes to print the conditions as the guide shows them.

    The command's comment says how many workers are active then.
    """
    job.run("\n".join([*NAMES, command]))
    (active,) = map(int, re.findall(r"# Active: (\d)", command))
    assert_described_as_running(job, active=active)


def assert_described_as_running(job: Job, *, active: int) -> None:
    """Assert that `kubectl describe` comes to print the conditions as the guide shows them."""
    wait_until(f"the description of {active} active workers", lambda: is_described_as_running(job, active=active))


def is_described_as_running(job: Job, *, active: int) -> bool:
    """Return whether `kubectl describe` prints the conditions of a job with this number of active workers."""
    text = job.run(DESCRIBE).text
    lines = [" ".join(line.split()) for line in text.splitlines()]
    said = f"Message: ElasticJob {job.name} is running."
    sentence = next((number for number, line in enumerate(lines) if line.startswith(said)), None)
    if sentence is None or "Replica Statuses:" not in lines:
        return False
    statuses = lines[lines.index("Replica Statuses:") + 1 :]
    waits = any(line.startswith("Pending:") and line != "Pending: 0" for line in statuses)
    about = [line for line in lines[sentence:] if line.startswith(("Reason:", "Status:", "Type:"))]
    return (
        (lines[sentence] == said) != waits  # another sentence says that a worker waits for room
        and about[:3] == ["Reason: ElasticJobRunning", "Status: True", "Type: Running"]
        and statuses[:2] == ["Worker:", f"Active: {active}"]
    )


def test_pulumi_up_changes_the_size_of_the_job_and_nothing_else(stack: Job) -> None:
    wait_for_world(stack, 1)
    before, first = stack.read(), identities(stack)
    stack.scale(2)  # there is no room for the second worker, and another field manager has the size now
    stack.run(f"pulumi config set workers 3 && {UP}")
    after = stack.read()
    assert after["spec"]["replicaSpecs"]["Worker"]["replicas"] == 3
    assert without_size(after) == without_size(before)
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    assert after["status"]["settledReplicas"] == 3  # pulumi has waited for it
    assert len(size_owners(stack)) == 1
    wait_for_world(stack, 3)
    assert first.items() <= identities(stack).items()


def test_a_suspended_job_gives_back_its_room(stack: Job) -> None:
    stack.change(suspend=True)
    stack.await_condition("Suspended")
    wait_until("no worker pods", lambda: not stack.worker_pods())
    assert stack.condition("Running")["status"] == "False"


def test_an_old_manifest_gets_its_two_workers(imagenet: Job, tmp_path: Path) -> None:
    ranks = tmp_path / "ranks.py"
    ranks.write_text(RANKS)
    scale_nodes(imagenet, 2)
    (job,) = example("imagenet.yaml")
    # The sample's image is not here. In its place is this project's trainer, which takes environment variables.
    job["metadata"]["annotations"] = {"tidewater.dev/launcher": "tidewater"}
    (container,) = job["spec"]["replicaSpecs"]["Worker"]["template"]["spec"]["containers"]
    container["resources"] = {"requests": {"cpu": "1500m"}}  # as with one GPU: one worker fits on a node
    adapt(imagenet, "etcd.yaml", *example("etcd.yaml"))
    adapt(imagenet, "imagenet.yaml", with_code(job, TRAIN, ARGUMENTS))
    imagenet.run(f"kubectl delete namespace {NAMESPACE}")
    imagenet.run(CREATE_SPACE)
    store_code(imagenet, ranks)
    imagenet.run(APPLY)
    wait_for_world(imagenet, 2)
    assert set(running_workers(imagenet)) == {"imagenet-worker-0", "imagenet-worker-1"}
    found = imagenet.run(f"kubectl exec -n {NAMESPACE} imagenet-worker-0 -- getent hosts imagenet-worker-1").text
    assert imagenet.pods("replica-index=1")[0]["status"]["podIP"] in found
    assert_described_as_running(imagenet, active=2)
    header, row = imagenet.run(LIST).text.splitlines()
    assert header.split() == ["NAME", "STATE", "DESIRED", "ACTIVE", "MIN", "MAX", "WAITING", "AGE"]
    assert row.split()[:6] == ["imagenet", "Running", "2", "2", "1", "3"]
    assert len(imagenet.run(PODS).text.splitlines()) == 3
    with (tmp_path / "log").open("w") as log:
        following = imagenet.start(FOLLOW, stdout=log)
    prefixes = [f"[pod/imagenet-worker-{index}/elasticjob-worker] " for index in (0, 1)]
    wait_until("the logs of both", lambda: all(each in (tmp_path / "log").read_text() for each in prefixes))
    following.kill()
    following.wait()


def test_the_job_survives_the_removal_of_a_node_in_the_same_process(imagenet: Job) -> None:
    before, generation, step = identities(imagenet), latest_generation(imagenet), latest_step(imagenet)
    comes_to(imagenet, ONE_NODE)
    wait_until("one running worker", lambda: len(running_workers(imagenet)) == 1)
    (survivor,) = identities(imagenet).items()
    wait_for_world(imagenet, 1, of=dict([survivor]), after=generation)
    assert survivor in before.items()
    assert latest_step(imagenet) > step
    assert imagenet.status().get("restarts", 0) == 0


def test_kubectl_edit_makes_three_workers_of_one_while_training_goes_on(imagenet: Job) -> None:
    before = identities(imagenet)
    comes_to(imagenet, THREE_NODES)
    wait_for_world(imagenet, 2)  # the worker that had lost its node is back
    # Six spaces: the line of spec.replicaSpecs.Worker, and not the one of the status.
    editor = "sed -i 's/^      replicas: 2$/      replicas: 3/'"
    imagenet.run(f'KUBE_EDITOR="{editor}" kubectl edit elasticjob {imagenet.name} -n {NAMESPACE}')
    wait_for_world(imagenet, 3)
    assert before.items() <= identities(imagenet).items()
    assert_described_as_running(imagenet, active=3)
    assert_steps_only_grow(imagenet)


def test_kubectl_scale_resizes_the_job_within_its_bounds(imagenet: Job) -> None:
    before = identities(imagenet)
    refused = imagenet.fails(f"kubectl scale {imagenet.named} --replicas=4")
    assert "maxReplicas" in refused.text
    imagenet.scale(2)
    wait_for_world(imagenet, 2, of=dict.fromkeys(["imagenet-worker-0", "imagenet-worker-1"]))
    wait_until("the third worker to go", lambda: "imagenet-worker-2" not in identities(imagenet))
    assert identities(imagenet).items() <= before.items()
    comes_to(imagenet, GROW)
    wait_for_world(imagenet, 3)


def test_a_deleted_job_leaves_no_pod_and_no_service(imagenet: Job) -> None:
    imagenet.run(f"kubectl delete {imagenet.named} --timeout=300s")
    wait_until("no pods", lambda: not imagenet.pods())
    wait_until("no service", lambda: imagenet.run(f"kubectl get svc -n {NAMESPACE} imagenet", expect=None).status != 0)


def test_torchrun_trains_on_with_fewer_in_the_same_pod(checkout: Checkout) -> None:
    ddp = Job(checkout.path, "ddp")
    (job,) = example("torchrun.yaml")
    apply(ddp, with_code(job, ["python3", "-m", "torch.distributed.run"], ["--nproc-per-node=1", "/code/ranks.py"]))

    def says(pod: str, size: int) -> bool:
        return [line.get("world_size") for line in ddp.logs(pod)][-1:] == [str(size)]

    wait_until("two ranks", lambda: all(says(f"ddp-worker-{index}", 2) for index in (0, 1)))
    before = identities(ddp)
    ddp.scale(1)
    wait_until("a round of one", lambda: says("ddp-worker-0", 1))
    assert identities(ddp)["ddp-worker-0"] == before["ddp-worker-0"]
    ddp.run(f"kubectl delete {ddp.named} --timeout=300s")


def test_a_deployment_of_higher_priority_takes_the_room_of_workers_above_the_minimum(mnist: Job) -> None:
    # A worker node has room for six pods of the examples: 1.93 CPUs, and 0.3 for each.
    scale_nodes(mnist, 1)
    *classes, job = example("mnist.yaml")
    apply(mnist, *classes, with_code(job, TRAIN, ARGUMENTS))
    wait_for_world(mnist, 4)
    before, step = identities(mnist), latest_step(mnist)
    core = {"mnist-worker-0": before["mnist-worker-0"]}
    (nginx,) = example("nginx.yaml")
    pod = nginx["spec"]["template"]["spec"]
    pod |= {"terminationGracePeriodSeconds": 1, "containers": [{**pod["containers"][0], "command": ["sleep", "1h"]}]}
    apply(mnist, nginx)
    mnist.run(f"kubectl rollout status deployment/test-nginx -n {NAMESPACE} --timeout=300s")
    wait_for_world(mnist, 1, of=core)
    assert identities(mnist) == core
    assert latest_step(mnist) > step
    status = mnist.status()
    assert (status["state"], status.get("restarts", 0)) == ("Running", 0)


def test_workers_come_back_when_the_deployment_gives_room_back(mnist: Job) -> None:
    core, step = identities(mnist), latest_step(mnist)
    mnist.run(f"kubectl scale deployment/test-nginx -n {NAMESPACE} --replicas=1")
    wait_for_world(mnist, 4)
    assert core.items() <= identities(mnist).items()
    assert latest_step(mnist) > step
    assert_steps_only_grow(mnist)


def test_autoscale_uses_the_room_that_is_left(mnist: Job) -> None:
    four = identities(mnist)
    mnist.change(autoscale=True)
    wait_for_world(mnist, 5)
    assert four.items() <= identities(mnist).items()
    mnist.run(f"kubectl delete {mnist.named} deployment/test-nginx --timeout=300s")


def test_a_resumed_job_continues_from_its_checkpoint(stack: Job) -> None:
    stack.change(suspend=False)
    wait_until("a worker", lambda: running_workers(stack))
    wait_until("a step", lambda: latest_step(stack) > 0)
    events = [line for pod in running_workers(stack) for line in stack.logs(pod) if "event" in line]
    assert [line for line in events if line["event"] == "checkpoint_loaded"]
