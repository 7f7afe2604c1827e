"""Karpenter's objects: which nodes it may start, when it may end them, and in which order all of it goes."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pulumi
import pytest
from moto.ec2.models.instance_types import INSTANCE_TYPES

import settings
from tests import facts, graph
from tidewater.contract import labels, leaving
from workloads import karpenter, training

CHART = "kubernetes:helm.sh/v4:Chart"
NODE_POOL = "kubernetes:karpenter.sh/v1:NodePool"
NODE_CLASS = "kubernetes:karpenter.k8s.aws/v1:EC2NodeClass"
JOB = "kubernetes:elastic.pytorch.org/v1alpha1:ElasticJob"
MONDAY = datetime(2026, 11, 23)
OPTIONS = pulumi.ResourceOptions()
SITE = karpenter.Site("node-role", ["subnet-a", "subnet-b"], "sg-1", "/dev/xvda")


def parsed(**changes: Any) -> tuple[settings.Settings, settings.Surge]:
    """The production example with some keys changed, and its surge nodes."""
    config = {**graph.stack_config("Pulumi.aws.yaml.example"), "surgeNodes": "karpenter", **changes}
    stack = facts.parsed(config)
    assert stack.surge is not None
    return stack, stack.surge


def pool(**changes: Any) -> dict[str, Any]:
    """The NodePool's spec."""
    stack, surge = parsed(**changes)
    spec: dict[str, Any] = karpenter.node_pool_manifest(stack, surge)["spec"]
    return spec


def requirements(**changes: Any) -> list[tuple[str, str, list[str]]]:
    """The NodePool's requirements: key without its domain, operator, values."""
    found = pool(**changes)["template"]["spec"]["requirements"]
    return [(each["key"].rpartition("/")[2], each["operator"], each["values"]) for each in found]


def node_class(**changes: Any) -> dict[str, Any]:
    """The EC2NodeClass's spec."""
    stack, surge = parsed(**changes)
    spec: dict[str, Any] = karpenter.node_class_manifest(stack, surge, SITE)["spec"]
    return spec


def allowed(budgets: list[dict[str, Any]], reason: str, now: datetime, nodes: int) -> int:
    """How many nodes Karpenter may take at once (`GetAllowedDisruptionsByReason` in its pkg/apis/v1/nodepool.go)."""
    counts = [
        nodes * int(each["nodes"][:-1]) // 100 if each["nodes"].endswith("%") else int(each["nodes"])
        for each in budgets
        if reason in each["reasons"] and active(each, now)
    ]
    return min(counts, default=nodes)


def active(budget: dict[str, Any], now: datetime) -> bool:
    """Whether a budget counts: its schedule, which hits once a week, has hit within its duration."""
    if "schedule" not in budget:
        return True
    minute, hour, day = (int(each) for each in budget["schedule"].replace("* * ", "").split())
    cron_day = (now.weekday() + 1) % 7
    hit = now.replace(hour=hour, minute=minute) - timedelta(days=(cron_day - day) % 7)
    latest = hit if hit <= now else hit - timedelta(days=7)
    return now - latest < timedelta(hours=int(budget["duration"].removesuffix("h")))


@pytest.mark.parametrize(
    ("window", "opens", "closes"),
    [
        pytest.param(settings.Window("wed", 3, 0, 4), "Wed 03:00", "Wed 07:00", id="within-a-day"),
        pytest.param(settings.Window("mon", 0, 0, 1), "Mon 00:00", "Mon 01:00", id="from-midnight"),
        pytest.param(settings.Window("tue", 22, 30, 4), "Tue 22:30", "Wed 02:30", id="over-midnight"),
        pytest.param(settings.Window("tue", 20, 0, 4), "Tue 20:00", "Wed 00:00", id="until-midnight"),
        pytest.param(settings.Window("sat", 23, 15, 2), "Sat 23:15", "Sun 01:15", id="over-the-end-of-crons-week"),
        pytest.param(settings.Window("sun", 12, 0, 24), "Sun 12:00", "Mon 12:00", id="a-whole-day"),
        pytest.param(settings.Window("sat", 0, 0, 24), "Sat 00:00", "Sun 00:00", id="the-last-day-of-crons-week"),
    ],
)
def test_drifted_nodes_go_one_at_a_time_within_the_window_and_not_at_all_outside(
    window: settings.Window, opens: str, closes: str
) -> None:
    budgets = karpenter.budgets(window)
    minutes = [MONDAY + timedelta(minutes=each) for each in range(7 * 24 * 60)]
    count = {now: allowed(budgets, "Drifted", now, nodes=5) for now in minutes}
    assert {count[now] for now in minutes} == {0, 1}
    assert sum(count.values()) == window.hours * 60
    before = [*minutes[-1:], *minutes]
    changes = {
        count[now]: now.strftime("%a %H:%M")
        for last, now in zip(before, minutes, strict=False)
        if count[last] != count[now]
    }
    assert changes == {1: opens, 0: closes}


@pytest.mark.parametrize("window", [None, settings.Window("sun", 3, 0, 4)], ids=["never", "weekly"])
def test_all_empty_nodes_may_go_at_any_time(window: settings.Window | None) -> None:
    budgets = karpenter.budgets(window)
    for hours in range(7 * 24):
        assert allowed(budgets, "Empty", MONDAY + timedelta(hours=hours), nodes=7) == 7


def test_without_a_window_no_drifted_node_is_ever_replaced() -> None:
    budgets = pool(maintenanceWindow="")["disruption"]["budgets"]
    assert not any(allowed(budgets, "Drifted", MONDAY + timedelta(hours=each), nodes=9) for each in range(7 * 24))


def test_a_node_with_a_worker_is_never_taken_to_save_money_or_for_its_age() -> None:
    found = pool()
    assert found["disruption"]["consolidationPolicy"] == "WhenEmpty"
    assert found["template"]["spec"]["expireAfter"] == "Never"


def test_a_draining_node_gives_its_worker_the_whole_grace_period() -> None:
    grace = pool()["template"]["spec"]["terminationGracePeriod"]
    assert int(grace.removesuffix("s")) > leaving.GRACE_SECONDS


def test_there_are_no_more_nodes_than_the_workers_above_the_core_need() -> None:
    assert pool(minWorkers=2, workers=2, maxWorkers=16, workersPerNode=1)["limits"] == {"nodes": 14}


def test_only_workers_run_on_the_nodes() -> None:
    template = pool()["template"]
    assert template["spec"]["taints"] == [{"key": labels.TAINT_WORKER, "value": "true", "effect": "NoSchedule"}]
    assert template["metadata"]["labels"] == {labels.NODE_ROLE: labels.NODE_ROLE_WORKER, labels.NODES: "surge"}


@pytest.mark.parametrize(("setting", "value"), [("SPOT", "spot"), ("ON_DEMAND", "on-demand")])
def test_the_capacity_type_is_the_one_that_was_set_and_no_other_unless_asked(setting: str, value: str) -> None:
    assert ("capacity-type", "In", [value]) in requirements(capacityType=setting)
    assert ("capacity-type", "In", ["spot", "on-demand"]) in requirements(capacityType="SPOT", spotFallback=True)


def test_nodes_are_started_in_the_reservations_that_are_named_first_and_in_no_others() -> None:
    ids = ["cr-0123456789abcdef0", "cr-0123456789abcdef1"]
    assert node_class(capacityReservationIds=ids)["capacityReservationSelectorTerms"] == [{"id": each} for each in ids]
    assert ("capacity-type", "In", ["reserved", "spot"]) in requirements(
        capacityType="SPOT", capacityReservationIds=ids
    )
    assert "capacityReservationSelectorTerms" not in node_class()


def test_a_list_of_instance_types_is_taken_as_it_is() -> None:
    found = requirements(surgeInstanceTypes=["g5.2xlarge", "g5.xlarge"])
    assert ("instance-type", "In", ["g5.2xlarge", "g5.xlarge"]) in found
    assert not [key for key, _, _ in found if key.startswith("instance-") and key != "instance-type"]


def test_without_a_list_nodes_have_the_gpus_of_the_core_and_at_least_its_size() -> None:
    found = requirements(instanceTypes=["g4dn.2xlarge", "g5.xlarge"])
    assert ("instance-gpu-name", "In", ["a10g", "t4"]) in found
    assert ("instance-gpu-count", "In", ["1"]) in found
    assert ("instance-cpu", "Gte", ["4"]) in found
    assert ("instance-memory", "Gte", ["16384"]) in found
    assert ("instance-cpu", "Lte", ["8"]) in found
    assert "instance-category" not in {key for key, _, _ in found}


def test_without_gpus_nodes_are_of_the_general_families_and_at_least_of_the_cores_size() -> None:
    found = requirements(instanceTypes=["m5.xlarge"], gpusPerWorker=0)
    assert ("instance-category", "In", ["c", "m", "r"]) in found
    assert ("instance-generation", "Gte", ["5"]) in found
    assert ("instance-cpu", "Gte", ["4"]) in found
    assert ("instance-memory", "Gte", ["16384"]) in found
    assert not [key for key, _, _ in found if "gpu" in key or "nvme" in key]
    with_disks = requirements(instanceTypes=["m5d.xlarge"], gpusPerWorker=0, instanceStore=True)
    assert ("instance-local-nvme", "Gt", ["0"]) in with_disks


def node_labels(size: dict[str, Any]) -> dict[str, str | int]:
    """What Karpenter says of a type of EC2's (`computeRequirements` in its pkg/providers/instancetype/types.go)."""
    (gpu,) = size.get("GpuInfo", {}).get("Gpus") or [{"Name": "", "Count": 0}]
    family = re.fullmatch(r"([a-z]+)([0-9]+).*", size["InstanceType"].partition(".")[0])
    return {
        "arch": "amd64" if "x86_64" in size["ProcessorInfo"]["SupportedArchitectures"] else "arm64",
        "os": "linux",
        "capacity-type": "spot",
        "instance-category": family[1] if family else "",
        "instance-generation": int(family[2]) if family else 0,
        "instance-cpu": size["VCpuInfo"]["DefaultVCpus"],
        "instance-memory": size["MemoryInfo"]["SizeInMiB"],
        "instance-gpu-name": gpu["Name"].lower(),
        "instance-gpu-count": str(gpu["Count"]),
    }


def choice(**changes: Any) -> list[dict[str, str | int]]:
    """Those of EC2's instance types that meet the NodePool's requirements."""
    operators: dict[str, Callable[[Any, list[str]], bool]] = {
        "In": lambda value, values: value in values,
        "Gte": lambda value, values: value >= int(values[0]),
        "Lte": lambda value, values: value <= int(values[0]),
    }
    wanted = requirements(**changes)
    every = [node_labels({**size, "InstanceType": name}) for name, size in INSTANCE_TYPES.items()]
    return [one for one in every if all(operators[how](one[key], values) for key, how, values in wanted)]


@pytest.mark.parametrize(
    ("type_", "gpus", "per_node", "fewest"),
    [
        pytest.param("m5.large", 0, 1, 20, id="a-worker-on-each-small-node"),
        pytest.param("m5.large", 0, 2, 20, id="two-on-each-small-node"),
        pytest.param("r6i.xlarge", 0, 1, 20, id="much-memory"),
        pytest.param("c6i.8xlarge", 0, 1, 20, id="sizes-between-this-and-twice-as-much"),
        pytest.param("c6i.8xlarge", 0, 5, 20, id="a-larger-size-has-room-for-a-sixth"),
        pytest.param("g5.xlarge", 1, 1, 2, id="the-gpu-is-the-limit"),
        pytest.param("g5.12xlarge", 1, 4, 2, id="all-gpus-are-used"),
        pytest.param("g5.xlarge", 0, 1, 1, id="a-gpu-that-nobody-uses"),
        pytest.param("g5.12xlarge", 1, 2, 1, id="gpus-are-left-over"),
    ],
)
def test_without_a_list_a_node_has_room_for_its_workers_and_for_no_other(
    type_: str, gpus: int, per_node: int, fewest: int
) -> None:
    changes = {"instanceTypes": [type_], "gpusPerWorker": gpus, "workersPerNode": per_node}
    stack, _ = parsed(**changes)
    request = int(training.resources(stack.workers)["requests"]["cpu"].removesuffix("m"))
    found = choice(**changes)
    assert len(found) >= fewest, "too few to choose from"
    for one in found:
        room = [1000 * int(one["instance-cpu"]) // request]
        if gpus:
            room.append(int(one["instance-gpu-count"]) // gpus)
        assert min(room) == per_node, one


def test_the_type_that_a_worker_is_made_for_is_always_among_the_choice() -> None:
    for kind in map(facts.instance_type, ("t3.large", "c7i.8xlarge", "g5.xlarge", "p5.48xlarge")):
        for per_node in {1, 2, kind.vcpus // 2, min(kind.vcpus, 96)}:
            changes = {"instanceTypes": [kind.name], "gpusPerWorker": 0, "workersPerNode": per_node, "maxWorkers": 1000}
            sizes = [(how, int(values[0])) for key, how, values in requirements(**changes) if key == "instance-cpu"]
            assert [how for how, _ in sizes] == ["Gte", "Lte"]
            assert sizes[0][1] == kind.vcpus <= sizes[1][1] < 2 * kind.vcpus, (kind.name, per_node)


def test_the_image_of_the_nodes_is_pinned() -> None:
    assert node_class(nodeImageVersion="v20260107")["amiSelectorTerms"] == [{"alias": "al2023@v20260107"}]


def test_nodes_are_where_the_stack_says_and_nowhere_else() -> None:
    found = node_class()
    assert found["subnetSelectorTerms"] == [{"id": "subnet-a"}, {"id": "subnet-b"}]
    assert found["securityGroupSelectorTerms"] == [{"id": "sg-1"}]
    assert found["role"] == "node-role"


def test_pods_cannot_read_the_credentials_of_their_node() -> None:
    options = node_class()["metadataOptions"]
    assert (options["httpTokens"], options["httpPutResponseHopLimit"]) == ("required", 1)


def test_disks_are_encrypted_and_end_with_their_instance() -> None:
    (mapping,) = node_class()["blockDeviceMappings"]
    assert mapping["deviceName"] == "/dev/xvda"
    assert mapping["ebs"]["volumeType"] == "gp3"
    assert mapping["ebs"]["encrypted"] is True
    assert mapping["ebs"]["deleteOnTermination"] is True


def test_what_karpenter_makes_carries_the_stacks_tags() -> None:
    tags = node_class()["tags"]
    assert {"Stack": "dev", "ManagedBy": "pulumi", "CostCentre": "research"}.items() <= tags.items()


def controller(**changes: Any) -> dict[str, Any]:
    """The values for the controller's chart."""
    return karpenter.controller_values(karpenter.KarpenterArgs(*parsed(**changes), "queue", "kube-system", "karpenter"))


def test_the_controller_runs_twice_where_there_are_two_nodes_for_it() -> None:
    assert [controller(systemNodes=nodes, etcdMembers=1)["replicas"] for nodes in (1, 2, 3)] == [1, 2, 2]
    assert controller()["nodeSelector"] == {labels.NODE_ROLE: labels.NODE_ROLE_SYSTEM}


def test_the_controller_need_not_ask_its_node_for_the_region() -> None:
    assert {"name": "AWS_REGION", "value": "eu-west-1"} in controller(region="eu-west-1")["controller"]["env"]


def test_a_registry_is_asked_for_a_version_and_a_folder_has_its_own() -> None:
    assert karpenter.chart_version("oci://public.ecr.aws/karpenter") == karpenter.VERSION
    assert karpenter.chart_version("charts") is None


@pytest.fixture(scope="module", params=["Pulumi.local.yaml", "Pulumi.aws.yaml.example"])
def deployed(request: pytest.FixtureRequest) -> graph.Graph:
    """Both example stacks."""
    return graph.deploy({**graph.stack_config(request.param), "surgeNodes": "karpenter"})


def test_the_charts_come_from_where_the_settings_say() -> None:
    config = {**graph.stack_config("Pulumi.local.yaml"), "karpenterCharts": "some/folder/"}
    made = graph.deploy(config)
    assert {each.name: each.inputs["chart"] for each in made.all(CHART)} == {
        "karpenter": "some/folder/karpenter",
        "karpenter-crd": "some/folder/karpenter-crd",
    }
    public = graph.deploy({**config, "karpenterCharts": "oci://public.ecr.aws/karpenter"})
    assert {each.inputs["version"] for each in public.all(CHART)} == {karpenter.VERSION}


def test_only_the_chart_of_definitions_brings_definitions(deployed: graph.Graph) -> None:
    brings = {each.name: not each.inputs["skipCrds"] for each in deployed.all(CHART)}
    assert brings == {"karpenter": False, "karpenter-crd": True}


def test_karpenter_gets_the_stacks_role_and_reads_the_stacks_queue(deployed: graph.Graph) -> None:
    queue = deployed.one("aws:sqs/queue:Queue")
    association = deployed.one("aws:eks/podIdentityAssociation:PodIdentityAssociation", "karpenter").inputs
    (chart,) = (each for each in deployed.all(CHART) if each.name == "karpenter")
    assert chart.inputs["namespace"] == association["namespace"]
    assert chart.inputs["values"]["serviceAccount"]["name"] == association["serviceAccount"]
    assert chart.inputs["values"]["settings"] == {
        "clusterName": deployed.outputs["clusterName"],
        "interruptionQueue": queue.inputs["name"],
    }


def test_the_kubelet_sees_within_a_second_that_the_controller_is_ready() -> None:
    spec = {"template": {"spec": {"containers": [{"readinessProbe": {"initialDelaySeconds": 5}}]}}}
    args = pulumi.ResourceTransformArgs(True, "kubernetes:apps/v1:Deployment", "", {"spec": spec}, OPTIONS)
    changed: Any = karpenter.look_every_second(args)
    probe = {"initialDelaySeconds": 0, "periodSeconds": 1}
    assert changed.props["spec"]["template"]["spec"]["containers"] == [{"readinessProbe": probe}]


def test_pulumi_waits_until_karpenter_accepts_its_objects(deployed: graph.Graph) -> None:
    for type_ in (NODE_CLASS, NODE_POOL):
        annotations = deployed.one(type_).inputs["metadata"]["annotations"]
        assert annotations == {"pulumi.com/waitFor": "condition=Ready"}


def test_a_removed_stack_lets_karpenter_end_its_nodes_first(deployed: graph.Graph) -> None:
    charts = {each.name: each for each in deployed.all(CHART)}
    order = [
        deployed.one(JOB),
        deployed.one(NODE_POOL),
        deployed.one(NODE_CLASS),
        charts["karpenter"],
        charts["karpenter-crd"],
    ]
    for first, then in itertools.pairwise(order):
        assert deployed.needs(first, then), f"{first.name} must be deleted before {then.name}"
        assert not deployed.needs(then, first)


@pytest.mark.parametrize(
    ("type_", "part"),
    [
        pytest.param("aws:sqs/queue:Queue", "", id="queue"),
        pytest.param("aws:eks/podIdentityAssociation:PodIdentityAssociation", "karpenter", id="the-controllers-role"),
        pytest.param("aws:eks/accessEntry:AccessEntry", "surge-node", id="the-nodes-access"),
    ],
)
def test_what_karpenter_and_its_nodes_use_on_aws_outlives_them(deployed: graph.Graph, type_: str, part: str) -> None:
    used = deployed.one(type_, part)
    for later in (deployed.one(NODE_POOL), deployed.one(NODE_CLASS), *deployed.all(CHART)):
        assert deployed.needs(later, used), f"{later.name} needs {used.name}"


def test_what_a_node_needs_stays_until_karpenters_nodes_are_gone(deployed: graph.Graph) -> None:
    nodes = deployed.one(NODE_POOL)
    for type_ in (
        "eks:index:Cluster",
        "aws:ec2/route:Route",
        "aws:ec2/routeTableAssociation:RouteTableAssociation",
        "aws:ec2/natGateway:NatGateway",
        "aws:iam/rolePolicyAttachment:RolePolicyAttachment",
        "aws:eks/addon:Addon",
    ):
        needed = deployed.all(type_)
        assert needed
        assert [each.name for each in needed if not deployed.needs(nodes, each)] == []


def test_with_the_node_group_alone_there_is_nothing_of_karpenter() -> None:
    config = {**graph.stack_config("Pulumi.local.yaml"), "surgeNodes": "nodegroup"}
    made = graph.deploy(config)
    assert [each.name for each in made.resources if "karpenter" in f"{each.type} {each.name}".lower()] == []
    assert not made.all(CHART)
    group = made.one("aws:eks/nodeGroup:NodeGroup", "-workers").inputs
    assert group["scalingConfig"] == {"desiredSize": 2, "minSize": 1, "maxSize": 8}
    worker = made.one(JOB).inputs["spec"]["replicaSpecs"]["Worker"]["template"]["spec"]
    assert "nodeAffinity" not in worker["affinity"]
