"""Interruptions: a job fails, and `destroy` is killed and completed.

Each test uses the stack as the one before left it. Without the modules before it, this one makes the stack.
"""

from __future__ import annotations

import json
import signal
from collections import Counter

import pytest

from tests.e2e.checkout import DESTROY, UP, Checkout, wait_until
from tests.e2e.inventory import aws_inventory, host_leftovers
from tests.e2e.nodes import instances, surge_nodes
from tests.e2e.stopping import repeat, stop_once_printed
from tests.e2e.training import latest_step, running_workers, steps, wait_for_world

pytestmark = [pytest.mark.e2e, pytest.mark.incremental, pytest.mark.timeout(1800)]


SETTINGS = {"workers": "2", "minWorkers": "1"}
"""One worker on the core, and one on a node of Karpenter, which drains while the stack is destroyed."""


@pytest.fixture(scope="module", autouse=True)
def stack(checkout: Checkout) -> None:
    """Have a stack that trains. That of the modules before leaves the size to the cluster: an update waits for none."""
    checkout.bring_up(SETTINGS)
    wait_for_world(checkout, 2)


def what_there_is(checkout: Checkout) -> Counter[str]:
    """Return how many resources of each kind the account has. A new account has a few, each time with other ids."""
    return Counter({kind: len(ids) for kind, ids in aws_inventory(checkout.cloud()).items()})


def test_a_failed_job_says_why_and_starts_again_when_its_settings_are_mended(checkout: Checkout) -> None:
    step, workers = wait_until("a step", lambda: latest_step(checkout)), len(running_workers(checkout))
    with checkout.config("trainerArgs", "--no-such-flag"):
        stop_once_printed(checkout, UP, "failed for good", by=signal.SIGINT)
    repeat(checkout, UP)
    wait_for_world(checkout, workers)
    assert min(int(steps(checkout, pod)[0]["step"]) for pod in running_workers(checkout)) > step, "training began again"


def test_a_destroy_that_is_killed_while_nodes_drain_is_completed_by_the_next_and_leaves_nothing(
    checkout: Checkout,
) -> None:
    wait_until("a node of Karpenter", lambda: surge_nodes(checkout))
    stop_once_printed(checkout, DESTROY, "NodePool nodepool-workers deleting")
    checkout.run("pulumi cancel --yes", expect=None)
    stop_once_printed(checkout, DESTROY, " deleted ", times=20)
    repeat(checkout, DESTROY)
    left_on_aws = what_there_is(checkout)
    assert not instances(checkout)
    instance = json.loads((checkout.state / "instance.json").read_text())["id"]
    left = host_leftovers(instance, checkout.state)
    assert [item for item in left if "kubelet" in item or "containerd" in item or "node" in item] == []
    checkout.run("localcloud stop")
    assert host_leftovers(instance, checkout.state) == []
    checkout.run("localcloud start")
    assert left_on_aws - what_there_is(checkout) == Counter(), "compared with a new account"
