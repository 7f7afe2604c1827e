"""A model that two pods divide: replicas of two pods each on the stack, and one of their nodes loses power.

This module uses the stack of the modules before it. Without them, it makes the stack.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.e2e.checkout import Checkout, wait_until
from tests.e2e.elasticjob import NODE_GROUP, scale_nodes
from tests.e2e.nodes import instance_of, terminate
from tests.e2e.training import (
    assert_committed_once,
    assert_steps_only_grow,
    identities,
    latest_generation,
    latest_step,
    running_workers,
    wait_for_world,
)

pytestmark = [pytest.mark.e2e, pytest.mark.incremental, pytest.mark.timeout(900)]

SETTINGS = {
    **NODE_GROUP,
    "minWorkers": "2",
    "workers": "4",
    "workersPerReplica": "2",
    "trainingScript": "divided.py",
    "trainerArgs": "--epochs 100000 --min-step-seconds 0.5 --report-every 1",
    "jobName": "divided",
}
PODS = [f"divided-worker-{index}" for index in range(4)]


@pytest.fixture(scope="module")
def stack(checkout: Checkout) -> Checkout:
    """Return the checkout with two replicas of two pods, each pod on a node of its own."""
    shutil.copy(Path(__file__).with_name("divided.py"), checkout.path)
    if checkout.has_stack():
        scale_nodes(checkout, len(PODS))  # Pulumi doesn't see that modules before this one have changed it
    checkout.bring_up(SETTINGS)
    wait_for_world(checkout, 2)
    return checkout


def listed(checkout: Checkout) -> dict[str, str]:
    """Return what `kubectl get ej` prints of the job, by column."""
    head, line = checkout.run(f"kubectl get ej -n {checkout.namespace} divided").text.splitlines()[:2]
    return dict(zip(head.split(), line.split(), strict=False))


def test_kubectl_counts_replicas(stack: Checkout) -> None:
    assert sorted(running_workers(stack)) == PODS
    shown = listed(stack)
    assert (shown["DESIRED"], shown["ACTIVE"]) == ("2", "2"), shown


def test_a_replica_goes_with_the_node_of_one_of_its_pods_and_comes_back_whole(stack: Checkout) -> None:
    before, generation, step = identities(stack), latest_generation(stack), latest_step(stack)
    terminate(stack, instance_of(stack, PODS[3]))
    wait_for_world(stack, 1, of={PODS[0]: before}, after=generation)
    alone = latest_generation(stack)
    wait_for_world(stack, 2, after=alone, seconds=300)
    wait_until("all four pods", lambda: len(identities(stack)) == len(PODS))
    after = identities(stack)
    assert {name for name in PODS if after[name] == before[name]} == set(PODS[:2])
    assert latest_step(stack) > step
    assert_steps_only_grow(stack)
    assert_committed_once([stack.logs(PODS[0]), stack.logs(PODS[2])])


def test_a_resize_counts_replicas_and_takes_a_whole_one(stack: Checkout) -> None:
    before = identities(stack)
    stack.run(f"tidewater job scale -n {stack.namespace} divided 1")
    wait_for_world(stack, 1)
    assert identities(stack) == {name: before[name] for name in PODS[:2]}
    assert listed(stack)["ACTIVE"] == "1"
