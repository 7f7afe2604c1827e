"""Nodes follow the workers: Karpenter brings them, loses them to EC2, and takes away the right ones.

The controller and the charts are Karpenter's own. Each test uses the stack as the one before left it, so a single
test needs those above it.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest

from tests.e2e.checkout import LONG_TRAINING, SHORT_TRAINING, UP, Checkout, wait_until
from tests.e2e.cluster_faults import restart_api_server
from tests.e2e.elasticjob import PYTORCH, SLEEP, Job
from tests.e2e.nodes import (
    WORKERS,
    claims,
    draining,
    drifted,
    instance_of,
    instances,
    interrupt,
    no_capacity,
    nodes,
    surge_instances,
    surge_nodes,
    wait_for_surge_count,
    wait_for_surge_nodes,
)
from tests.e2e.training import (
    assert_committed_once,
    assert_steps_only_grow,
    count,
    identities,
    is_running,
    latest_generation,
    latest_step,
    node_of,
    running_workers,
    steps,
    wait_for_world,
)

pytestmark = [pytest.mark.e2e, pytest.mark.incremental, pytest.mark.timeout(1800)]

SETTINGS = {
    "surgeNodes": "karpenter",
    "capacityType": "SPOT",
    "minWorkers": "1",
    "workers": "2",
    "maxWorkers": "8",
    "jobName": "nodes",
    "trainerArgs": LONG_TRAINING,
}
NEW_NODE_SECONDS = 300
"""A node that has to be started, a worker on it, and its first step. Karpenter doesn't try an offering again for three
minutes after EC2 had none of it, or has interrupted an instance of it."""

RELEASES = ("v20260903", "v20260512")
"""The images that the one-machine cloud knows: that of the default version of Kubernetes, and an older one."""

POOL = "tidewater.dev/pool=extra"

KARPENTER = "-n kube-system -l app.kubernetes.io/name=karpenter"


@pytest.fixture(scope="module")
def stack(checkout: Checkout) -> Checkout:
    """Return the checkout with a worker on the core, and one on a node that Karpenter has brought."""
    if checkout.has_stack():
        wait_for_surge_count(checkout, 0)  # those of another capacity type would be replaced during the tests
    checkout.bring_up(SETTINGS)
    wait_for_world(checkout, 2, seconds=NEW_NODE_SECONDS)
    wait_for_surge_count(checkout, 1)
    return checkout


@pytest.fixture(scope="module")
def job(stack: Checkout) -> Job:
    """Return the stack's job, for what `pulumi up` would wait for in vain."""
    return Job(stack.path, stack.outputs["jobName"], stack.namespace)


def resize(checkout: Checkout, size: int) -> None:
    """Set the number of workers as a person does."""
    checkout.run(f"pulumi config set workers {size} && {UP}")


def on_surge_nodes(checkout: Checkout) -> list[str]:
    """Return the running workers on Karpenter's nodes."""
    brought = surge_nodes(checkout)
    return [pod for pod in running_workers(checkout) if node_of(checkout, pod) in brought]


def rank_of(checkout: Checkout, pod: str) -> int:
    """Return the rank in a worker's newest report."""
    return int(steps(checkout, pod)[-1]["rank"])


def billed(checkout: Checkout) -> list[str]:
    """Return the node group of each instance that EC2 bills, without the digits that Pulumi adds to its name.

    An instance of no group, such as Karpenter's, is an empty text.
    """
    tags = [{tag["Key"]: tag["Value"] for tag in instance["Tags"]} for instance in instances(checkout).values()]
    return sorted(each.get("eks:nodegroup-name", "").rpartition("-")[0] for each in tags)


def assert_notice_survived(checkout: Checkout, victims: list[str]) -> None:
    """Give the instances of workers their notice, and assert that the workers leave in time and come back elsewhere."""
    size = len(running_workers(checkout))
    survivors = {name: who for name, who in identities(checkout).items() if name not in victims}
    discarded = {name: count(checkout.logs(name), "step_discarded") for name in survivors}
    ids = {pod: instance_of(checkout, pod) for pod in victims}
    generation, step = latest_generation(checkout), latest_step(checkout)
    with checkout.followed(victims) as printed:
        interrupt(checkout, *ids.values())
        # If the instance ended first, the log of its worker would stop without that line.
        wait_until("the workers to leave", lambda: all(count(printed(pod), "left") == 1 for pod in victims))
        wait_for_world(checkout, size, of=survivors, after=generation, seconds=NEW_NODE_SECONDS)
        assert {name: count(checkout.logs(name), "step_discarded") for name in survivors} == discarded
        assert survivors.items() <= identities(checkout).items()
        assert latest_step(checkout) > step
        wait_for_world(checkout, size, seconds=NEW_NODE_SECONDS)
        assert_committed_once([*map(printed, victims), *map(checkout.logs, running_workers(checkout))])
    wait_until("the interrupted instances to end", lambda: not set(ids.values()) & surge_instances(checkout).keys())
    wait_for_surge_count(checkout, size - 1)


def test_the_stack_has_one_worker_on_the_core_and_one_on_a_node_of_karpenters(stack: Checkout) -> None:
    assert len(surge_nodes(stack)) == 1
    assert len(nodes(stack, WORKERS)) == 2
    assert len(on_surge_nodes(stack)) == 1


def test_two_more_workers_bring_two_nodes_and_the_first_ones_stay(stack: Checkout) -> None:
    before, brought = identities(stack), surge_nodes(stack)
    resize(stack, 4)
    wait_for_world(stack, 4, seconds=NEW_NODE_SECONDS)
    assert before.items() <= identities(stack).items()
    assert brought.items() <= surge_nodes(stack).items()
    wait_for_surge_count(stack, 3)
    assert len({node_of(stack, pod) for pod in running_workers(stack)}) == 4
    assert_steps_only_grow(stack)


def test_two_fewer_free_their_two_nodes_and_no_other(stack: Checkout) -> None:
    before = identities(stack)
    places = {pod: node_of(stack, pod) for pod in before}
    resize(stack, 2)
    wait_for_world(stack, 2)
    wait_until("two worker pods", lambda: len(stack.worker_pods()) == 2)
    stayed = identities(stack)
    assert stayed.items() <= before.items()
    kept = {places[pod] for pod in stayed}
    wait_for_surge_nodes(stack, {name for name in surge_nodes(stack) if name in kept})
    wait_for_surge_count(stack, 1)
    assert set(nodes(stack, WORKERS)) == kept
    assert identities(stack) == stayed
    assert_steps_only_grow(stack)


@pytest.mark.soak
def test_a_worker_leaves_an_instance_with_a_spot_notice_before_its_end(stack: Checkout) -> None:
    resize(stack, 3)
    wait_for_world(stack, 3, seconds=NEW_NODE_SECONDS)
    assert_notice_survived(stack, on_surge_nodes(stack)[:1])


@pytest.mark.soak
def test_two_notices_at_once_are_two_workers_that_leave(stack: Checkout) -> None:
    resize(stack, 3)
    wait_for_world(stack, 3, seconds=NEW_NODE_SECONDS)
    assert_notice_survived(stack, on_surge_nodes(stack))


def test_rank_0_leaves_an_instance_with_a_spot_notice_before_its_end(stack: Checkout) -> None:
    resize(stack, 3)
    wait_for_world(stack, 3, seconds=NEW_NODE_SECONDS)
    first = next(pod for pod in running_workers(stack) if rank_of(stack, pod) == 0)
    if first not in on_surge_nodes(stack):  # it comes back as the last one, and another worker is the first
        generation = latest_generation(stack)
        stack.run(f"kubectl delete pod -n {stack.namespace} {first}")
        wait_for_world(stack, 3, after=generation)
    (leader,) = (pod for pod in on_surge_nodes(stack) if rank_of(stack, pod) == 0)
    assert_notice_survived(stack, [leader])


def test_a_type_without_capacity_is_replaced_by_another_one(stack: Checkout, job: Job) -> None:
    before = surge_instances(stack)
    with no_capacity(stack, *sorted({instance["InstanceType"] for instance in before.values()})):
        job.scale(4)
        wait_for_world(stack, 4, seconds=NEW_NODE_SECONDS)
    wait_for_surge_count(stack, 3)
    (new,) = (instance for id, instance in surge_instances(stack).items() if id not in before)
    assert new["InstanceType"] not in {instance["InstanceType"] for instance in before.values()}


def test_a_lost_karpenter_and_a_lost_api_server_are_made_up_for_while_it_scales(stack: Checkout, job: Job) -> None:
    before = identities(stack)
    job.scale(5)
    stack.run(f"kubectl delete pods {KARPENTER} --grace-period=0 --force")
    restart_api_server(stack)
    wait_for_world(stack, 5, seconds=2 * NEW_NODE_SECONDS)
    wait_for_surge_count(stack, 4)
    grown = identities(stack)
    assert before.items() <= grown.items()
    job.scale(3)
    stack.run(f"kubectl delete pods {KARPENTER} --grace-period=0 --force")
    restart_api_server(stack)
    wait_for_world(stack, 3)
    wait_for_surge_count(stack, 2)
    assert identities(stack).items() <= grown.items()
    assert_steps_only_grow(stack)


@pytest.mark.soak
def test_a_job_gets_its_nodes_when_ec2_has_capacity_again(stack: Checkout, job: Job) -> None:
    before = identities(stack)
    with no_capacity(stack, "*"):
        job.scale(5)
        reason = "InsufficientInstanceCapacity"
        wait_until("the condition to say it", lambda: reason in job.condition("Running")["message"])
    wait_for_world(stack, 5, seconds=2 * NEW_NODE_SECONDS)
    assert before.items() <= identities(stack).items()
    wait_for_surge_count(stack, 4)


@pytest.mark.soak
def test_drifted_nodes_keep_their_workers_outside_the_maintenance_window(stack: Checkout) -> None:
    resize(stack, 3)
    wait_for_world(stack, 3, seconds=NEW_NODE_SECONDS)
    brought = surge_nodes(stack)
    before = {pod: who for pod, who in identities(stack).items() if node_of(stack, pod) in brought}
    closed = datetime.now(UTC) + timedelta(days=3)
    stack.run(
        f"pulumi config set nodeImageVersion {RELEASES[1]} && "
        f"pulumi config set maintenanceWindow '{closed:%a} 00:00 1h' && {UP}"
    )
    wait_until("all nodes to have drifted", lambda: all(map(drifted, claims(stack))), seconds=NEW_NODE_SECONDS)
    blocked = "kubectl get events -A --field-selector involvedObject.kind=NodePool -o json"
    wait_until("Karpenter to say that it may not replace them", lambda: "Drifted" in json.dumps(stack.json(blocked)))
    assert surge_nodes(stack) == brought
    assert before.items() <= identities(stack).items()
    wait_for_world(stack, 3, seconds=NEW_NODE_SECONDS)  # EKS has replaced the node of the core


@pytest.mark.soak
def test_in_the_maintenance_window_they_are_replaced_one_at_a_time(stack: Checkout) -> None:
    brought, most = surge_nodes(stack), 0
    (settled,) = (pod for pod in running_workers(stack) if node_of(stack, pod) not in brought)
    before = identities(stack)[settled]
    stack.run(f"pulumi config set maintenanceWindow '{datetime.now(UTC):%a %H}:00 2h' && {UP}")

    def replaced() -> bool:
        nonlocal most
        most = max(most, sum(map(draining, claims(stack))))
        found = surge_nodes(stack)
        return len(found) == len(brought) and not found.keys() & brought.keys()

    wait_until("other nodes", replaced, seconds=2 * NEW_NODE_SECONDS)
    wait_for_world(stack, 3, seconds=NEW_NODE_SECONDS)
    assert identities(stack)[settled] == before
    assert_steps_only_grow(stack)
    # Of nodes, not of workers: a new node is Ready before its worker has joined.
    assert most <= 1, "two nodes were taken away at a time"
    stack.run(f"pulumi config set nodeImageVersion {RELEASES[0]} && pulumi config set maintenanceWindow '' && {UP}")


def test_a_finished_job_of_several_processes_per_pod_leaves_nothing_to_pay_but_the_core_and_stays_finished(
    stack: Checkout,
) -> None:
    assert surge_instances(stack)
    (core,) = nodes(stack, WORKERS).keys() - surge_nodes(stack).keys()
    with (
        stack.config("jobName", "short"),
        stack.config("workers", "2"),
        stack.config("trainerArgs", f"{SHORT_TRAINING} --processes 2"),
    ):
        stack.run(UP)
        stack.forget_outputs()
        job = f"elasticjob/{stack.outputs['jobName']}"
        stack.run(f"kubectl wait -n {stack.namespace} --for=condition=Succeeded {job} --timeout=300s")
        # The pods on Karpenter's nodes, and their logs, go with the nodes.
        (stays,) = (pod["metadata"] for pod in stack.worker_pods() if pod["spec"]["nodeName"] == core)
        finished = [line for line in stack.logs(stays["name"]) if line.get("event") == "finished"]
        assert len(finished) == 2
        assert all(float(line["accuracy"]) >= 0.97 for line in finished)
        wait_until("no surge instance", lambda: not surge_instances(stack))
        wait_for_surge_nodes(stack, set())
        stack.run(f"{UP} --expect-no-changes")
        assert billed(stack) == ["tidewater-local-system", "tidewater-local-workers"]
        assert stays["uid"] in {pod["metadata"]["uid"] for pod in stack.worker_pods()}
        assert not running_workers(stack)


def test_without_workers_the_core_is_empty_too_and_the_job_waits_suspended(stack: Checkout) -> None:
    stack.run(f"pulumi config set minWorkers 0 && pulumi config set workers 1 && {UP}")
    stack.forget_outputs()
    wait_for_world(stack, 1, seconds=NEW_NODE_SECONDS)
    resize(stack, 0)
    wait_until("no worker node", lambda: not nodes(stack, WORKERS))
    own = Job(stack.path, stack.outputs["jobName"], stack.namespace)
    assert own.condition("Suspended")["status"] == "True"
    assert not stack.worker_pods()
    assert billed(stack) == ["tidewater-local-system"]


def test_a_resumed_job_continues_on_a_node_that_karpenter_brings(stack: Checkout) -> None:
    resize(stack, 1)
    wait_for_world(stack, 1, seconds=NEW_NODE_SECONDS)
    wait_for_surge_count(stack, 1)
    events = [line.get("event") for pod in running_workers(stack) for line in stack.logs(pod)]
    assert "checkpoint_loaded" in events


def test_a_job_runs_on_the_pool_that_it_names_and_a_removed_pool_takes_its_own_nodes_alone(stack: Checkout) -> None:
    before, brought = identities(stack), surge_nodes(stack)
    pooled = Job(stack.path, "pooled", stack.namespace)
    flags = f"--image {PYTORCH} --launcher none --cpu 50m --memory 256Mi --pool extra"
    with (
        stack.config("pools[0].name", "extra"),
        stack.config("pools[0].instanceTypes[0]", "m5.large"),
        stack.config("pools[0].maxNodes", "1"),
    ):
        stack.run(UP)
        stack.run(f"tidewater job submit {pooled.name} -n {stack.namespace} {flags} -- {SLEEP}")
        wait_until("its worker", lambda: [*map(is_running, pooled.pods())] == [True], seconds=NEW_NODE_SECONDS)
        (pod,) = pooled.pods()
        assert [*nodes(stack, POOL)] == [pod["spec"]["nodeName"]]
    stack.run(UP)
    wait_until("no node of the pool", lambda: not nodes(stack, POOL))
    wait_until("its worker to wait for a pool", lambda: [*map(is_running, pooled.pods())] == [False])
    stack.run(f"tidewater job delete {pooled.name} -n {stack.namespace}")
    wait_for_surge_count(stack, 1)
    assert (identities(stack), surge_nodes(stack)) == (before, brought)
