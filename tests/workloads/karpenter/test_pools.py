"""Pools: further nodes of Karpenter's, for jobs that ask for them, made like those of the stack's own workers."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests import facts, graph
from tidewater.contract import labels
from workloads.devices import efa
from workloads.manifests import WORKER_NODES, gpu_nodes

NODE_POOL = "kubernetes:karpenter.sh/v1:NodePool"
NODE_CLASS = "kubernetes:karpenter.k8s.aws/v1:EC2NodeClass"
JOB = "kubernetes:elastic.pytorch.org/v1alpha1:ElasticJob"
DAEMON_SET = "kubernetes:apps/v1:DaemonSet"
RESERVATION = "cr-0123456789abcdef0"

BIG: dict[str, Any] = {"name": "big", "instanceTypes": ["p5.48xlarge"], "maxNodes": 4}
CPU: dict[str, Any] = {"name": "cpu", "instanceTypes": ["c7i.8xlarge"], "maxNodes": 20, "capacityType": "SPOT"}
LOCAL, AWS = "Pulumi.local.yaml", "Pulumi.aws.yaml.example"


def deployed(file: str, *pools: Any, **changes: Any) -> graph.Graph:
    """Return an example stack with these pools."""
    return graph.deploy({**graph.stack_config(file), "pools": list(pools), **changes})


@pytest.fixture(scope="module")
def made() -> graph.Graph:
    """The production example, which has GPUs and a maintenance window, with two pools."""
    reserved = {**BIG, "capacityReservationIds": [RESERVATION]}
    return deployed(AWS, reserved, {**CPU, "spotFallback": True}, monitoring="prometheus", efa=False)


def spec(made: graph.Graph, type_: str, name: str) -> dict[str, Any]:
    """Return the spec of one of Karpenter's objects."""
    (found,) = (each for each in made.all(type_) if each.inputs["metadata"]["name"] == name)
    wanted: dict[str, Any] = found.inputs["spec"]
    return wanted


def requirement(pool: dict[str, Any], key: str) -> list[str]:
    (found,) = (each for each in pool["template"]["spec"]["requirements"] if each["key"].endswith(key))
    values: list[str] = found["values"]
    return values


def test_a_pool_is_a_node_pool_with_a_node_class_of_its_own(made: graph.Graph) -> None:
    for type_ in (NODE_POOL, NODE_CLASS):
        assert {each.inputs["metadata"]["name"] for each in made.all(type_)} == {"workers", "big", "cpu"}
    big, cpu = spec(made, NODE_POOL, "big"), spec(made, NODE_POOL, "cpu")
    assert (big["limits"], cpu["limits"]) == ({"nodes": 4}, {"nodes": 20})
    assert big["template"]["spec"]["nodeClassRef"]["name"] == "big"
    assert requirement(big, "/instance-type") == ["p5.48xlarge"]
    assert requirement(big, "/capacity-type") == ["reserved", "on-demand"]
    assert requirement(cpu, "/capacity-type") == ["spot", "on-demand"]
    reservations = "capacityReservationSelectorTerms"
    assert spec(made, NODE_CLASS, "big")[reservations] == [{"id": RESERVATION}]
    assert not any(reservations in spec(made, NODE_CLASS, name) for name in ("workers", "cpu"))


def test_all_else_is_as_for_the_stacks_own_nodes(made: graph.Graph) -> None:
    own, pool = spec(made, NODE_CLASS, "workers"), spec(made, NODE_CLASS, "cpu")
    assert {key for key in own | pool if own.get(key) != pool.get(key)} == {"tags"}
    assert (own["tags"]["Name"], pool["tags"]["Name"]) == ("tidewater-local-surge", "tidewater-local-cpu")
    own, pool = spec(made, NODE_POOL, "workers"), spec(made, NODE_POOL, "cpu")
    assert own["disruption"] == pool["disruption"]
    for key in ("taints", "expireAfter", "terminationGracePeriod"):
        assert own["template"]["spec"][key] == pool["template"]["spec"][key]


def test_a_pool_has_its_label_and_not_that_of_the_stacks_own_worker_nodes(made: graph.Graph) -> None:
    found = spec(made, NODE_POOL, "big")["template"]["metadata"]["labels"]
    assert found == {labels.NODE_ROLE: "pool", "tidewater.dev/pool": "big"}
    selector = made.one(JOB).inputs["spec"]["replicaSpecs"]["Worker"]["template"]["spec"]["nodeSelector"]
    assert not selector.items() <= found.items()
    assert selector.items() <= spec(made, NODE_POOL, "workers")["template"]["metadata"]["labels"].items()


def test_pools_change_nothing_of_a_stacks_other_resources() -> None:
    def others(*pools: Any) -> dict[str, Any]:
        found = deployed(LOCAL, *pools)
        return {f"{each.type} {each.name}": each.inputs for each in found.resources}

    without, with_pool = others(), others(CPU)
    assert {key.split(" ")[1] for key in with_pool.keys() - without.keys()} == {"ec2nodeclass-cpu", "nodepool-cpu"}
    differing = [key for key in without if without[key] != with_pool[key]]
    assert [key.split(" ")[0] for key in differing] == ["aws:iam/rolePolicy:RolePolicy"], "the right to Spot alone"


def test_gpus_of_a_pool_are_shown_and_measured_on_its_nodes_only() -> None:
    both = deployed(LOCAL, BIG, CPU, monitoring="prometheus")
    for name in ("nvidia-device-plugin", "dcgm-exporter"):
        pod = both.one(DAEMON_SET, name).inputs["spec"]["template"]["spec"]
        assert "nodeSelector" not in pod
        assert json.dumps(pod["affinity"]).count('"key"') == 1
        assert pod["affinity"] == labels.either(workers=False, pools=["big"])
    agent = both.one("aws:eks/addon:Addon", "node-monitoring-agent")
    assert json.loads(agent.inputs["configurationValues"])["dcgmAgent"]["affinity"] == pod["affinity"]
    assert not deployed(LOCAL, CPU).all(DAEMON_SET)


def test_gpus_of_workers_and_of_a_pool_are_shown_on_both(made: graph.Graph) -> None:
    pod = made.one(DAEMON_SET, "nvidia-device-plugin").inputs["spec"]["template"]["spec"]
    terms = pod["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    keys = [(term["matchExpressions"][0]["key"], term["matchExpressions"][0]["values"]) for term in terms]
    assert keys == [(labels.NODE_ROLE, ["worker"]), (labels.POOL, ["big"])]
    stack = facts.parsed({**graph.defaults(), "pools": [CPU]})
    assert gpu_nodes(stack) == {"nodeSelector": WORKER_NODES}, "a pool without GPUs changes nothing"


def test_adapters_are_shown_on_the_nodes_of_pools_that_can_have_some() -> None:
    stack = facts.parsed({**graph.defaults(), "efa": True, "instanceTypes": ["p4d.24xlarge"], "pools": [BIG, CPU]})
    plugin = efa.plugin_manifest("efa", efa.efa_nodes(stack))["spec"]["template"]["spec"]
    assert plugin["affinity"] == labels.either(workers=True, pools=["big"])


def test_adapters_are_shown_in_a_pool_with_types_that_can_have_none() -> None:
    some = {**BIG, "name": "some", "instanceTypes": ["g5.xlarge", "g5.8xlarge"]}
    stack = facts.parsed({**graph.defaults(), "efa": True, "instanceTypes": ["p4d.24xlarge"], "pools": [some]})
    assert efa.efa_nodes(stack) == {"affinity": labels.either(workers=True, pools=["some"])}


def test_a_pool_of_karpenters_goes_as_the_stacks_own_does(made: graph.Graph) -> None:
    job = made.one(JOB)
    for name in ("big", "cpu"):
        pool, node_class = made.one(NODE_POOL, f"-{name}"), made.one(NODE_CLASS, f"-{name}")
        assert made.needs(job, pool)
        assert made.needs(pool, node_class)
        assert pool.inputs["metadata"]["annotations"] == {"pulumi.com/waitFor": "condition=Ready"}
