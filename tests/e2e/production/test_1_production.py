"""The production example as it is: three zones, three members of etcd, Spot above an On-Demand core, GPUs, protection.

Only what one machine hasn't is changed: images, the address of the person, four workers to three small ones. The nodes'
GPUs have nothing behind them, so the workers train on CPUs. Each test uses the stack as the one before left it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
import yaml

from tests.e2e.checkout import DESTROY, LONG_TRAINING, UP, Checkout, wait_until
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
    terminate,
    wait_for_surge_count,
)
from tests.e2e.production import example
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
from tests.security.real import Real, read
from tidewater.contract import labels
from workloads.devices.in_pod import gpus

pytestmark = [pytest.mark.e2e, pytest.mark.incremental, pytest.mark.timeout(1800)]

PRODUCTION = "aws"
"""As in the waivers of the security rules."""

FILE = "Pulumi.aws.yaml.example"
SMALL = {
    "tidewater:workers": 3,
    "tidewater:trainerArgs": LONG_TRAINING,
}
NEW_NODE_SECONDS = 300
"""A node that has to be started, a worker on it, and its first step. Karpenter doesn't try an offering again for three
minutes after EC2 has interrupted an instance of it."""

ZONE = "topology.kubernetes.io/zone"
PLUGIN = "localcloud/k8s-device-plugin:0.20.0"
SENTENCE = "1 worker node is Ready but shows no nvidia.com/gpu (of 1: "
GPUS = r"{.items[*].status.allocatable.nvidia\.com/gpu}"


@pytest.fixture(scope="module")
def account(checkout: Checkout) -> Inventory:
    """Return the inventory of an account without a stack."""
    checkout.run("localcloud start")
    return aws_inventory(checkout.cloud())


@pytest.fixture(scope="module")
def configured(checkout: Checkout, account: Inventory) -> Checkout:
    """Return the checkout with the stack of the example, which isn't deployed."""
    assert account
    settings = {"config": {**example.config(FILE), **SMALL}}
    (checkout.path / f"Pulumi.{PRODUCTION}.yaml").write_text(yaml.safe_dump(settings))
    checkout.run(f"pulumi stack select --create {PRODUCTION}")
    return checkout


@pytest.fixture(scope="module")
def production(configured: Checkout) -> Checkout:
    """Return the checkout with the stack, which trains."""
    configured.run(f"pulumi config set devicePluginImage {PLUGIN} && {UP}")
    configured.forget_outputs()
    wait_for_world(configured, 3, seconds=NEW_NODE_SECONDS)
    return configured


@pytest.fixture(scope="module")
def real(production: Checkout) -> Real:
    """Return what the security rules look at."""
    return read(production, PRODUCTION)


def devices_of(checkout: Checkout, pod: str) -> list[str]:
    """Return the GPUs that a worker sees."""
    listed = checkout.run(f"kubectl exec -n {checkout.namespace} {pod} -- ls /dev").text
    return [name for name in listed.split() if name.startswith("nvidia")]


def zones(found: list[Object]) -> set[str]:
    """Return the zones of nodes."""
    return {node["metadata"]["labels"][ZONE] for node in found}


def lasting(production: Checkout) -> Inventory:
    """Return the inventory without launch templates: Karpenter deletes its own some time after their last use."""
    found = aws_inventory(production.cloud())
    return {kind: ids for kind, ids in found.items() if kind != "launch templates"}


@pytest.fixture
def impatient(configured: Checkout) -> Iterator[None]:
    """Have the check of the GPUs wait for seconds instead of minutes."""
    file = configured.path / "workloads/devices/in_pod/gpus.py"
    before = file.read_text()
    file.write_text(before.replace(f"PATIENCE_SECONDS = {gpus.PATIENCE_SECONDS}", "PATIENCE_SECONDS = 10.0"))
    assert file.read_text() != before
    yield
    file.write_text(before)


@pytest.mark.usefixtures("impatient")
def test_nodes_that_show_no_gpus_end_up_with_a_sentence_before_a_worker_is_made(configured: Checkout) -> None:
    # Any image without the plug-in's program stands for a plug-in that doesn't run on the nodes.
    configured.run("pulumi config set devicePluginImage localcloud/pause:1")
    output = configured.fails(UP)
    assert SENTENCE in output.text
    assert "nodeImageVersion" in output.text
    assert configured.run("kubectl get elasticjobs -A -oname").text.strip() in ("", "No resources found")


def test_with_the_right_plugin_the_next_up_succeeds_and_each_worker_gets_a_gpu(production: Checkout) -> None:
    workers = running_workers(production)
    assert len(workers) == 3
    assert production.run(f"kubectl get nodes -l {WORKERS} -ojsonpath='{GPUS}'").text.split() == ["1", "1", "1"]
    assert {tuple(devices_of(production, pod)) for pod in workers} == {("nvidia0",)}
    assert len({node_of(production, pod) for pod in workers}) == 3
    assert len(zones(production.json(f"kubectl get nodes -l {WORKERS} -o json")["items"])) == 1


def test_after_a_refresh_an_unchanged_stack_changes_and_checks_nothing(production: Checkout) -> None:
    production.run("pulumi refresh --yes --skip-preview")
    assert "gpu-check" not in production.run(f"{UP} --expect-no-changes").text


def test_every_security_rule_holds_and_reports_each_setting_that_is_turned_off(real: Real) -> None:
    assert real.broken_rules() == []


def test_the_engine_registers_what_the_quick_tests_of_the_rules_look_at(real: Real) -> None:
    assert real.unlike_registered() == {}


def test_the_network_policies_are_stored_as_registered_and_apply_to_every_pod(real: Real) -> None:
    assert real.changed_policies() == []
    assert real.pods_out_of_reach() == []


def test_three_members_of_etcd_reach_each_other(real: Real) -> None:
    members = real.running(labels.COMPONENT_ETCD)
    assert len(members) == 3
    assert all(real.network.lets(one, other, 2380) for one in members for other in members)


def test_each_zone_has_a_system_node_with_a_member_of_etcd(production: Checkout) -> None:
    listed = production.json("kubectl get nodes -o json")["items"]
    workers = nodes(production, WORKERS)
    system = [each for each in listed if each["metadata"]["name"] not in workers]
    assert len(system) == len(zones(system)) == 3
    members = production.json(
        f"kubectl get pods -n {production.namespace} -l {labels.COMPONENT}={labels.COMPONENT_ETCD} -o json"
    )["items"]
    assert {pod["spec"]["nodeName"] for pod in members} == {each["metadata"]["name"] for each in system}


def test_a_member_of_etcd_that_loses_its_disk_and_then_its_node_comes_back_by_itself(production: Checkout) -> None:
    pod, before = "etcd-1", identities(production)
    steps, ids = latest_step(production), member_ids(production)
    for lose in (lose_disk, lose_node):
        lost = etcd_pod(production, pod)
        lose(production, lost)
        await_back(production, lost)
        now = member_ids(production)
        assert {name for name in now if now[name] != ids[name]} == {pod}
        ids = now
    assert identities(production) == before
    wait_until("more steps", lambda: latest_step(production) > steps)
    assert_steps_only_grow(production)


def etcd_pod(production: Checkout, name: str) -> Object:
    """Return a member's pod, or {} if there is none."""
    listed = production.json(f"kubectl get pods -n {production.namespace} -l {labels.COMPONENT}=etcd -o json")["items"]
    return next((each for each in listed if each["metadata"]["name"] == name), {})


def await_back(production: Checkout, lost: Object) -> None:
    """Wait until a member has another pod, which is ready."""

    def back() -> bool:
        pod = etcd_pod(production, lost["metadata"]["name"])
        return bool(pod) and pod["metadata"]["uid"] != lost["metadata"]["uid"] and ready(pod)

    wait_until("the member", back, seconds=NEW_NODE_SECONDS)


def ready(pod: Object) -> bool:
    return any(each["type"] == "Ready" and each["status"] == "True" for each in pod["status"].get("conditions", []))


def lose_disk(production: Checkout, pod: Object) -> None:
    """Its directory is on the node's disk, and goes with the pod."""
    production.run(f"kubectl delete pod -n {production.namespace} {pod['metadata']['name']} --force --grace-period=0")


def lose_node(production: Checkout, pod: Object) -> None:
    instance = production.run(f"kubectl get node {pod['spec']['nodeName']} -ojsonpath={{.spec.providerID}}").text
    terminate(production, instance.strip().rsplit("/", 1)[1])


def member_ids(production: Checkout) -> dict[str, str]:
    """Return the ids of etcd's members, as the first one has them."""
    command = "etcdctl member list --endpoints=http://127.0.0.1:2379 --write-out=json"
    listed = json.loads(production.run(f"kubectl exec -n {production.namespace} etcd-0 -c etcd -- {command}").text)
    return {each["name"]: str(each["ID"]) for each in listed["members"]}


def test_the_core_is_on_demand_and_what_karpenter_brings_is_spot(production: Checkout) -> None:
    workers, brought = set(nodes(production, WORKERS).values()), set(surge_nodes(production).values())
    assert (len(workers), len(brought)) == (3, 2)
    assert instances(production, ("instance-lifecycle", "spot")).keys() == brought < workers
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


def test_while_it_is_protected_a_destroy_is_refused_and_nothing_is_lost(production: Checkout) -> None:
    before, processes, step = lasting(production), identities(production), latest_step(production)
    refused = production.fails("pulumi destroy --yes")
    # The plug-ins aren't asked: https://www.pulumi.com/docs/iac/concepts/resources/options/protect/
    assert "is protected" in refused.text
    assert lasting(production) == before
    assert identities(production) == processes
    wait_until("more steps", lambda: latest_step(production) > step)


def test_the_cluster_is_protected_by_eks_itself_too(production: Checkout) -> None:
    cluster = production.outputs["clusterName"]
    refused = production.fails(f"aws eks delete-cluster --name {cluster}")
    assert "deletion protection" in refused.text.lower()
    described = production.aws(f"eks describe-cluster --name {cluster}")["cluster"]
    assert (described["status"], described["deletionProtection"]) == ("ACTIVE", True)


def test_unprotected_and_smaller_it_trains_on_in_the_same_processes_without_the_node_that_is_too_many(
    production: Checkout,
) -> None:
    before = identities(production)
    production.run(f"pulumi config set protect false && pulumi config set workers 2 && {UP}")
    wait_for_world(production, 2)
    wait_until("two worker pods", lambda: len(production.worker_pods()) == 2)
    wait_for_surge_count(production, 1)
    assert identities(production).items() <= before.items()
    assert_steps_only_grow(production)


def test_the_destroyed_stack_leaves_nothing(production: Checkout, account: Inventory) -> None:
    production.run(DESTROY)
    assert added(account, aws_inventory(production.cloud())) == {}
    assert not instances(production)
