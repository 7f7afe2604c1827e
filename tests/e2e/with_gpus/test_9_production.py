"""The production example as it is: three zones, three members of etcd, Spot above an On-Demand core, GPUs, protection.

Only what one machine hasn't is changed: images, the address of the person, four workers to three small ones. The GPUs
are those of the fake devices, so the workers train on CPUs. Each test uses the stack as the previous one left it. The
stack is in a new cloud, which ends with the module.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import yaml

from tests.e2e.checkout import DESTROY, LONG_TRAINING, STACK, UP, Checkout, wait_until
from tests.e2e.inventory import Inventory, added, aws_inventory
from tests.e2e.nodes import (
    WORKERS,
    Object,
    instance_of,
    instances,
    interrupt,
    nodes,
    surge_instances,
    surge_nodes,
    wait_for_surge_count,
)
from tests.e2e.training import (
    assert_committed_once,
    assert_steps_only_grow,
    count,
    identities,
    latest_generation,
    latest_step,
    node_of,
    running_workers,
    wait_for_world,
)
from tests.e2e.with_gpus import example
from tidewater.contract import labels

pytestmark = [pytest.mark.e2e, pytest.mark.incremental, pytest.mark.timeout(1800)]

PRODUCTION = "production"
FILE = "Pulumi.aws.yaml.example"
SMALL = {
    "tidewater:workers": 3,
    "tidewater:trainerArgs": LONG_TRAINING,
}
NEW_NODE_SECONDS = 300
"""A node that has to be started, a worker on it, and its first step. Karpenter doesn't try an offering again for three
minutes after EC2 has interrupted an instance of it."""

ZONE = "topology.kubernetes.io/zone"
GPUS = r"{.items[*].status.allocatable.nvidia\.com/gpu}"


@pytest.fixture(scope="module")
def account(checkout: Checkout) -> Iterator[Inventory]:
    """Yield the inventory of a new cloud's account; the cloud ends with the module, whatever is in it."""
    checkout.run("python -m localcloud stop", expect=None)
    checkout.run("python -m localcloud start")
    yield aws_inventory(checkout.cloud())
    checkout.forget_outputs()
    checkout.run("python -m localcloud stop")
    checkout.run(f"pulumi stack select --create {STACK}")


@pytest.fixture(scope="module")
def production(checkout: Checkout, account: Inventory) -> Checkout:
    """Return the checkout with the stack of the example, which trains."""
    assert account
    settings = {"config": {**example.config(FILE), **SMALL}}
    (checkout.path / f"Pulumi.{PRODUCTION}.yaml").write_text(yaml.safe_dump(settings))
    checkout.run(f"pulumi stack select --create {PRODUCTION}")
    checkout.run(UP)
    checkout.forget_outputs()
    wait_for_world(checkout, 3, seconds=NEW_NODE_SECONDS)
    return checkout


def zones(found: list[Object]) -> set[str]:
    """Return the zones of nodes."""
    return {node["metadata"]["labels"][ZONE] for node in found}


def lasting(production: Checkout) -> Inventory:
    """Return the inventory without launch templates: Karpenter deletes its own some time after their last use."""
    found = aws_inventory(production.cloud())
    return {kind: ids for kind, ids in found.items() if kind != "launch templates"}


def test_the_example_comes_up_and_trains_on_one_gpu_for_each_worker(production: Checkout) -> None:
    assert len(running_workers(production)) == 3
    assert production.run(f"kubectl get nodes -l {WORKERS} -ojsonpath='{GPUS}'").text.split() == ["1", "1", "1"]
    assert len({node_of(production, pod) for pod in running_workers(production)}) == 3
    assert len(zones(production.json(f"kubectl get nodes -l {WORKERS} -o json")["items"])) == 1
    production.run("pulumi preview --expect-no-changes")


def test_each_zone_has_a_system_node_with_a_member_of_etcd(production: Checkout) -> None:
    listed = production.json("kubectl get nodes -o json")["items"]
    workers = nodes(production, WORKERS)
    system = [each for each in listed if each["metadata"]["name"] not in workers]
    assert len(system) == len(zones(system)) == 3
    members = production.json(
        f"kubectl get pods -n {production.namespace} -l {labels.COMPONENT}={labels.COMPONENT_ETCD} -o json"
    )["items"]
    assert {pod["spec"]["nodeName"] for pod in members} == {each["metadata"]["name"] for each in system}


def test_the_core_is_on_demand_and_what_karpenter_brings_is_spot(production: Checkout) -> None:
    workers, brought = set(nodes(production, WORKERS).values()), set(surge_nodes(production).values())
    assert (len(workers), len(brought)) == (3, 2)
    assert instances(production, "Name=instance-lifecycle,Values=spot").keys() == brought < workers
    found = instances(production)
    assert {found[id]["InstanceType"].partition(".")[0] for id in workers} == {"g5"}


def test_two_spot_nodes_that_are_interrupted_at_once_cost_no_step(production: Checkout) -> None:
    brought = surge_nodes(production)
    victims = [pod for pod in running_workers(production) if node_of(production, pod) in brought]
    assert len(victims) == 2
    survivors = {name: who for name, who in identities(production).items() if name not in victims}
    ids = {pod: instance_of(production, pod) for pod in victims}
    generation, step = latest_generation(production), latest_step(production)
    with production.followed(victims) as printed:
        interrupt(production, *ids.values())
        wait_until("the workers to leave", lambda: all(count(printed(pod), "left") == 1 for pod in victims))
        wait_for_world(production, 3, after=generation, seconds=2 * NEW_NODE_SECONDS)
        assert survivors.items() <= identities(production).items()
        assert latest_step(production) > step
        assert_committed_once([*map(printed, victims), *map(production.logs, running_workers(production))])
    wait_until("the interrupted instances to end", lambda: not set(ids.values()) & surge_instances(production).keys())
    wait_for_surge_count(production, 2)


def test_a_resize_ends_the_worker_and_the_node_that_are_too_many(production: Checkout) -> None:
    before = identities(production)
    production.run(f"pulumi config set workers 2 && {UP}")
    wait_for_world(production, 2)
    wait_until("two worker pods", lambda: len(production.worker_pods()) == 2)
    wait_for_surge_count(production, 1)
    assert identities(production).items() <= before.items()
    assert_steps_only_grow(production)


def test_while_it_is_protected_a_destroy_is_refused_and_nothing_is_lost(production: Checkout) -> None:
    before, processes, step = lasting(production), identities(production), latest_step(production)
    refused = production.fails("pulumi destroy --yes")
    # The plug-ins aren't asked: https://www.pulumi.com/docs/iac/concepts/resources/options/protect/
    assert "is protected" in refused.text
    assert lasting(production) == before
    assert identities(production) == processes
    wait_until("more steps", lambda: latest_step(production) > step)
    production.run("pulumi preview --expect-no-changes")


def test_the_cluster_is_protected_by_eks_itself_too(production: Checkout) -> None:
    cluster = production.outputs["clusterName"]
    refused = production.fails(f"aws eks delete-cluster --name {cluster}")
    assert "deletion protection" in refused.text.lower()
    described = production.aws(f"eks describe-cluster --name {cluster}")["cluster"]
    assert (described["status"], described["deletionProtection"]) == ("ACTIVE", True)


def test_unprotected_it_trains_on_in_the_same_processes(production: Checkout) -> None:
    processes, step = identities(production), latest_step(production)
    production.run(f"pulumi config set protect false && {UP}")
    assert identities(production) == processes
    wait_until("more steps", lambda: latest_step(production) > step)


def test_the_destroyed_stack_leaves_nothing(production: Checkout, account: Inventory) -> None:
    production.run(DESTROY)
    assert added(account, aws_inventory(production.cloud())) == {}
    assert not instances(production)
