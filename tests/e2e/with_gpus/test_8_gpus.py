"""GPUs on one machine: `pulumi up` fails if nodes show none; with them, each worker gets those of its limit.

The nodes' GPUs have nothing behind them, so the workers train on CPUs. Each test uses the stack as the previous one
left it. The module begins with a new stack, in the cloud of the session if that still runs.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.e2e.checkout import DESTROY, LONG_TRAINING, STACK, UP, Checkout, wait_until
from tests.e2e.inventory import Inventory, added, aws_inventory
from tests.e2e.nodes import surge_nodes
from tests.e2e.training import node_of, running_workers, wait_for_world

pytestmark = [pytest.mark.e2e, pytest.mark.incremental, pytest.mark.timeout(1800)]

SETTINGS = {
    "surgeNodes": "karpenter",
    "capacityType": "SPOT",
    "gpusPerWorker": "1",
    "minWorkers": "1",
    "workers": "1",
    "jobName": "gpus",
    "trainerArgs": LONG_TRAINING,
}
SENTENCE = "1 worker node is Ready but shows no nvidia.com/gpu (of 1: "
NEW_NODE_SECONDS = 300


@pytest.fixture(scope="module")
def account(checkout: Checkout) -> Inventory:
    """Return the inventory of an account without a stack."""
    checkout.empty_cloud()
    return aws_inventory(checkout.cloud())


@pytest.fixture(scope="module")
def configured(checkout: Checkout, account: Inventory) -> Iterator[Checkout]:
    """Yield the checkout with a stack that is configured for GPUs, and not deployed; later modules have none."""
    assert account
    file = checkout.path / f"Pulumi.{STACK}.yaml"
    before = file.read_text()
    checkout.run(f"pulumi stack select --create {STACK}", expect=None)
    for key, value in SETTINGS.items():
        checkout.run(f"pulumi config set {key} -- '{value}'")
    checkout.run("pulumi config set --path 'tidewater:instanceTypes[0]' g4dn.xlarge")
    yield checkout
    file.write_text(before)


def gpus_of(checkout: Checkout, node: str) -> str:
    return checkout.run(f"kubectl get node {node} -ojsonpath='{{.status.allocatable.nvidia\\.com/gpu}}'").text


def devices_of(checkout: Checkout, pod: str) -> list[str]:
    listed = checkout.run(f"kubectl exec -n {checkout.namespace} {pod} -- ls /dev").text
    return [name for name in listed.split() if name.startswith("nvidia")]


def test_nodes_that_show_no_gpus_end_up_with_a_sentence_before_a_worker_is_made(configured: Checkout) -> None:
    # Any image without the plug-in's program stands for a plug-in that doesn't run on the nodes.
    configured.run("pulumi config set devicePluginImage localcloud/pause:1")
    output = configured.fails(UP)
    assert SENTENCE in output.text
    assert "nodeImageVersion" in output.text
    assert configured.run("kubectl get elasticjobs -A -oname").text.strip() in ("", "No resources found")


def test_with_the_right_plugin_the_next_up_succeeds_and_the_worker_gets_a_gpu(configured: Checkout) -> None:
    configured.run(f"pulumi config set devicePluginImage localcloud/k8s-device-plugin:0.20.0 && {UP}")
    configured.forget_outputs()
    wait_for_world(configured, 1, seconds=NEW_NODE_SECONDS)
    (pod,) = running_workers(configured)
    assert gpus_of(configured, node_of(configured, pod)) == "1"
    assert devices_of(configured, pod) == ["nvidia0"]


def test_karpenter_brings_a_node_with_a_gpu_for_another_worker(configured: Checkout) -> None:
    configured.run(f"pulumi config set workers 2 && {UP}")
    wait_for_world(configured, 2, seconds=NEW_NODE_SECONDS)
    (brought,) = wait_until("a node of Karpenter", lambda: surge_nodes(configured))
    assert gpus_of(configured, brought) == "1"
    assert {tuple(devices_of(configured, pod)) for pod in running_workers(configured)} == {("nvidia0",)}


def test_an_unchanged_stack_checks_nothing_again(configured: Checkout) -> None:
    assert "gpu-check" not in configured.run(UP).text


def test_a_destroyed_stack_leaves_nothing(configured: Checkout, account: Inventory) -> None:
    configured.run(DESTROY)
    assert added(account, aws_inventory(configured.cloud())) == {}
