"""The cloud's daemon is killed, and the stack goes with it, while Pulumi keeps its state: `make up` begins anew.

This module is the last one that uses the stack of its folder. Without the others, it makes the stack.
"""

from __future__ import annotations

import json
import os
import signal

import pytest

from tests.e2e.checkout import Checkout, wait_until
from tests.e2e.elasticjob import NODE_GROUP, make_stack
from tests.e2e.inventory import processes_of
from tests.e2e.nodes import node_groups
from tests.e2e.stopping import stop_when

pytestmark = [pytest.mark.e2e, pytest.mark.incremental, pytest.mark.timeout(900)]


@pytest.fixture(scope="module", autouse=True)
def stack(checkout: Checkout) -> None:
    """Have a stack."""
    make_stack(checkout, NODE_GROUP)


def test_start_after_a_killed_daemon_cleans_up_and_reports_it(checkout: Checkout) -> None:
    status = json.loads((checkout.state / "daemon.json").read_text())
    instance = json.loads((checkout.state / "instance.json").read_text())["id"]
    assert processes_of(instance, checkout.state)
    os.kill(status["pid"], signal.SIGKILL)
    wait_until("everything to end with the daemon", lambda: not processes_of(instance, checkout.state))
    started = checkout.run("localcloud start")
    assert "cleaned" in started.text
    assert checkout.client("eks").list_clusters()["clusters"] == []


def test_make_up_reports_that_the_old_stack_is_gone_and_creates_it_again(checkout: Checkout) -> None:
    checkout.configure(NODE_GROUP)
    said = stop_when(checkout, "make up", lambda _: node_groups(checkout))
    assert "forgetting the stack's state" in said


def test_kubectl_finds_the_cluster_of_a_recreated_stack(checkout: Checkout) -> None:
    assert "coredns" in checkout.run("kubectl get deployments --all-namespaces").text
