"""The real Karpenter, with only its documented policy: it brings nodes for pods, and takes the empty ones away.

The tests run in their order: each begins with a cloud without nodes and leaves one. What EC2 may do to Karpenter's
nodes is in tests/e2e, where workers run on them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from packages.localcloud.tests.kube.karpenter_cloud import Cloud, karpenter_cloud, pod

pytestmark = pytest.mark.e2e


@pytest.fixture(scope="module")
def cloud(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    with karpenter_cloud(tmp_path_factory.mktemp("cloud")) as made:
        made.wait("a node class that is ready", lambda: condition(made.items("ec2nodeclasses")[0], "Ready") == "True")
        yield made


def condition(found: dict[str, Any], kind: str) -> str:
    """Return the status of an object's condition."""
    conditions = found.get("status", {}).get("conditions", [])
    return next((each["status"] for each in conditions if each["type"] == kind), "")


def node_of(cloud: Cloud) -> str:
    """Return the node of the one pod that is Ready, or nothing."""
    found = json.loads(cloud.kubectl("get", "pods", "-ojson"))["items"]
    ready = [each["spec"]["nodeName"] for each in found if condition(each, "Ready") == "True"]
    return str(ready[0]) if len(ready) == 1 else ""


def gone(cloud: Cloud) -> bool:
    return not cloud.items("nodes") and not cloud.items("nodeclaims") and not cloud.instances()


def test_a_pending_pod_gets_a_node_and_the_node_goes_with_its_last_pod(cloud: Cloud) -> None:
    cloud.apply(pod("one"))
    cloud.wait("a pod that runs", lambda: node_of(cloud))
    (instance,) = cloud.instances()
    tags = {tag["Key"]: tag["Value"] for tag in instance["Tags"]}
    assert (instance["InstanceLifecycle"], instance["PrivateDnsName"]) == ("spot", node_of(cloud))
    assert (tags["karpenter.sh/nodepool"], tags["stack"]) == ("surge", "test")
    cloud.wait("an initialized claim", lambda: condition(cloud.items("nodeclaims")[0], "Initialized") == "True")
    cloud.kubectl("delete", "pod", "one")
    cloud.wait("no node, claim or instance", lambda: gone(cloud))


def test_a_deleted_pool_leaves_nothing_behind(cloud: Cloud) -> None:
    ec2, iam = cloud.client("ec2"), cloud.client("iam")
    cloud.apply(pod("last"))
    cloud.wait("a pod that runs", lambda: node_of(cloud))
    path = "/karpenter/"
    assert ec2.describe_launch_templates()["LaunchTemplates"]
    assert iam.list_instance_profiles(PathPrefix=path)["InstanceProfiles"]
    cloud.kubectl("delete", "nodepool", "surge", "--cascade=foreground", "--timeout=120s")
    cloud.wait("no node, claim or instance", lambda: gone(cloud))
    cloud.kubectl("delete", "ec2nodeclass", "surge", "--timeout=120s")
    cloud.wait("no launch template", lambda: not ec2.describe_launch_templates()["LaunchTemplates"])
    assert iam.list_instance_profiles(PathPrefix=path)["InstanceProfiles"] == []
    interfaces = ec2.describe_network_interfaces()["NetworkInterfaces"]
    assert [each["Description"] for each in interfaces if "EKS" not in each["Description"]] == []
    assert ec2.describe_volumes()["Volumes"] == []
