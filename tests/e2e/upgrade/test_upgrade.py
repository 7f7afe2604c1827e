"""A stack goes from one version of Kubernetes to the next while it trains: docs/upgrades.md, step by step.

It begins with a stack of the version before. The programs of that version must be built:
`python3 -m scripts.toolchain previous`, which `make soak` runs.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime

import pytest
from localcloud.aws.eks.model import VERSIONS

from settings import versions
from tests.e2e.checkout import LONG_TRAINING, Checkout, CommandFailedError, wait_until
from tests.e2e.inventory import Inventory, added, aws_inventory, host_leftovers
from tests.e2e.nodes import nodes, surge_nodes
from tests.e2e.training import (
    assert_committed_once,
    assert_steps_only_grow,
    identities,
    latest_step,
    wait_for_world,
)

pytestmark = [pytest.mark.e2e, pytest.mark.soak, pytest.mark.incremental, pytest.mark.timeout(2400)]

OLD, NEW = VERSIONS[-2:]
WORKERS = 3
SETTINGS = {
    "kubernetesVersion": OLD,
    "surgeNodes": "karpenter",
    "minWorkers": "1",
    "workers": str(WORKERS),
    "jobName": "upgrade",
    "trainerArgs": LONG_TRAINING,
}
NODES_SECONDS = 600
"""Two nodes of Karpenter, one after the other; each has to start, and a worker on it to join."""


@pytest.fixture(scope="module")
def account(checkout: Checkout) -> Inventory:
    """Return the inventory of an account without a stack."""
    checkout.run("localcloud start")
    return aws_inventory(checkout.cloud())


@pytest.fixture(scope="module")
def stack(checkout: Checkout, account: Inventory) -> Checkout:
    """Return the checkout with a stack of the old version that trains."""
    assert account
    checkout.bring_up(SETTINGS)
    wait_for_world(checkout, WORKERS, seconds=NODES_SECONDS)
    return checkout


@contextmanager
def every_worker_followed(checkout: Checkout) -> Iterator[dict[str, list[dict[str, str]]]]:
    """Keep what every worker prints, those that are replaced included, by the uid of its pod."""
    kept: dict[str, list[dict[str, str]]] = {}
    done = threading.Event()

    def keep() -> None:
        for pod in checkout.worker_pods():
            printed = checkout.logs(pod["metadata"]["name"])
            if len(printed) > len(kept.get(pod["metadata"]["uid"], [])):
                kept[pod["metadata"]["uid"]] = printed

    def follow() -> None:
        while not done.wait(1):
            with suppress(CommandFailedError):  # the API server doesn't answer while it is replaced
                keep()

    thread = threading.Thread(target=follow, daemon=True)
    thread.start()
    try:
        yield kept
    finally:
        done.set()
        thread.join()
    keep()


def kubelets(checkout: Checkout) -> dict[str, str]:
    """Map the names of the nodes to the minor versions of their kubelets."""
    found = checkout.json("kubectl get nodes -o json")["items"]
    versions = {node["metadata"]["name"]: node["status"]["nodeInfo"]["kubeletVersion"] for node in found}
    return {name: version.removeprefix("v").rpartition(".")[0] for name, version in versions.items()}


def addons(checkout: Checkout) -> dict[str, str]:
    """Map the names of the cluster's addons to their versions."""
    cluster = checkout.outputs["clusterName"]
    return {
        name: checkout.aws(f"eks describe-addon --cluster-name {cluster} --addon-name {name}")["addon"]["addonVersion"]
        for name in checkout.aws(f"eks list-addons --cluster-name {cluster}")["addons"]
    }


def test_the_stack_begins_with_the_version_before(stack: Checkout) -> None:
    assert set(kubelets(stack).values()) == {OLD}
    assert addons(stack) == versions.KUBERNETES[OLD].addons
    assert json.loads(stack.run("kubectl get --raw /version").text)["minor"] == OLD.partition(".")[2]


def test_control_plane_addons_and_node_groups_follow_while_it_trains(stack: Checkout) -> None:
    step, surge = latest_step(stack), surge_nodes(stack)
    with every_worker_followed(stack) as kept:
        stack.run(f"pulumi config set kubernetesVersion {NEW} && pulumi up --yes", timeout=1800)
        wait_for_world(stack, WORKERS, seconds=NODES_SECONDS)
    assert json.loads(stack.run("kubectl get --raw /version").text)["minor"] == NEW.partition(".")[2]
    assert addons(stack) == versions.KUBERNETES[NEW].addons
    groups = {name: version for name, version in kubelets(stack).items() if name not in surge}
    assert set(groups.values()) == {NEW}
    assert {name: kubelets(stack)[name] for name in surge} == dict.fromkeys(surge, OLD), "they wait for the window"
    assert latest_step(stack) > step
    assert_steps_only_grow(stack)
    assert_committed_once(list(kept.values()))


def test_in_the_maintenance_window_karpenters_nodes_follow_and_no_step_is_lost(stack: Checkout) -> None:
    core = set(nodes(stack, "tidewater.dev/nodes=core"))
    (settled,) = (pod["metadata"]["name"] for pod in stack.worker_pods() if pod["spec"].get("nodeName") in core)
    before = identities(stack)[settled]
    window = f"{datetime.now(UTC):%a %H}:00 2h"
    with every_worker_followed(stack) as kept:
        stack.run(f"pulumi config set maintenanceWindow '{window}' && pulumi up --yes")
        wait_until("nodes of the new version", lambda: set(kubelets(stack).values()) == {NEW}, seconds=NODES_SECONDS)
        wait_for_world(stack, WORKERS, seconds=NODES_SECONDS)
    assert identities(stack)[settled] == before
    assert_committed_once(list(kept.values()))


def test_another_update_changes_nothing(stack: Checkout) -> None:
    shown = stack.run("pulumi preview --diff")
    assert "to update" not in shown.text
    assert "to replace" not in shown.text


def test_the_upgraded_stack_is_destroyed_and_leaves_nothing(stack: Checkout, account: Inventory) -> None:
    stack.run("pulumi destroy --yes")
    assert added(account, aws_inventory(stack.cloud())) == {}
    instance = json.loads((stack.state / "instance.json").read_text())["id"]
    stack.run("localcloud stop")
    assert host_leftovers(instance, stack.state) == []
