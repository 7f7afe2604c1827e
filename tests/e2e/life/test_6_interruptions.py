"""Interruptions: the cloud's daemon is killed, and `up` and `destroy` are killed and completed.

This module uses the stack of the modules before it, and makes another one in a new cloud. Without them, it makes both.
"""

from __future__ import annotations

import json
import os
import signal

import pytest

from tests.e2e.checkout import ADOPT, DESTROY, UP, Checkout, repeat, stop_once_printed, wait_until
from tests.e2e.elasticjob import make_stack
from tests.e2e.inventory import Inventory, added, aws_inventory, host_leftovers, processes_of
from tests.e2e.nodes import instances, surge_nodes
from tests.e2e.training import latest_step, running_workers, steps, wait_for_world

pytestmark = [pytest.mark.e2e, pytest.mark.incremental, pytest.mark.timeout(1800)]


SETTINGS = {"workers": "2", "minWorkers": "1"}
"""One worker on the core, and one on a node of Karpenter, which drains while the stack is destroyed."""


@pytest.fixture(scope="module", autouse=True)
def stack(checkout: Checkout) -> None:
    """Have a stack that trains."""
    make_stack(checkout, SETTINGS)


@pytest.fixture(scope="module")
def account(checkout: Checkout) -> Inventory:
    """Return the account's inventory after the restart of its cloud, before the stack is created again."""
    return aws_inventory(checkout.cloud())


def test_start_after_a_killed_daemon_cleans_up_and_reports_it(checkout: Checkout) -> None:
    status = json.loads((checkout.state / "daemon.json").read_text())
    instance = json.loads((checkout.state / "instance.json").read_text())["id"]
    assert processes_of(instance, checkout.state)
    os.kill(status["pid"], signal.SIGKILL)
    wait_until("everything to end with the daemon", lambda: not processes_of(instance, checkout.state))
    started = checkout.run("localcloud start")
    assert "cleaned" in started.text
    listed = checkout.aws("eks list-clusters")
    assert listed["clusters"] == []


def test_make_up_reports_that_the_old_stack_is_gone_and_creates_it_again(
    checkout: Checkout, account: Inventory
) -> None:
    checkout.configure(SETTINGS)
    said = stop_once_printed(checkout, "make up", "Cluster tidewater-local-eksCluster")
    assert "forgetting the stack's state" in said
    assert account


def test_an_interrupted_up_is_completed_by_the_next_up(checkout: Checkout) -> None:
    checkout.run("pulumi cancel --yes", expect=None)
    checkout.run(ADOPT)  # where the killed one had begun a node group, a second one would be made
    stop_once_printed(checkout, UP, "Job job-dataset-digits creating")
    repeat(checkout, UP)
    checkout.run("pulumi preview --expect-no-changes")


def test_kubectl_finds_the_cluster_of_a_recreated_stack(checkout: Checkout) -> None:
    assert "etcd" in checkout.run("kubectl get pods --all-namespaces").text


def test_a_failed_job_says_why_and_starts_again_when_its_settings_are_mended(checkout: Checkout) -> None:
    step, workers = wait_until("a step", lambda: latest_step(checkout)), len(running_workers(checkout))
    with checkout.config("trainerArgs", "--no-such-flag"):
        stop_once_printed(checkout, UP, "failed for good", by=signal.SIGINT)
    repeat(checkout, UP)
    wait_for_world(checkout, workers)
    assert min(int(steps(checkout, pod)[0]["step"]) for pod in running_workers(checkout)) > step, "training began again"


def test_a_destroy_that_is_killed_while_nodes_drain_and_once_more_is_completed_by_the_next(
    checkout: Checkout, account: Inventory
) -> None:
    wait_until("a node of Karpenter", lambda: surge_nodes(checkout))
    stop_once_printed(checkout, DESTROY, "NodePool nodepool-workers deleting")
    checkout.run("pulumi cancel --yes", expect=None)
    stop_once_printed(checkout, DESTROY, " deleted ", times=20)
    repeat(checkout, DESTROY)
    assert added(account, aws_inventory(checkout.cloud())) == {}
    assert not instances(checkout)
    instance = json.loads((checkout.state / "instance.json").read_text())["id"]
    left = host_leftovers(instance, checkout.state)
    assert [item for item in left if "kubelet" in item or "containerd" in item or "node" in item] == []


def test_stop_leaves_nothing_on_the_host(checkout: Checkout) -> None:
    instance = json.loads((checkout.state / "instance.json").read_text())["id"]
    checkout.run("localcloud stop")
    assert host_leftovers(instance, checkout.state) == []
