"""Instances that EKS did not launch become nodes: those of the real Karpenter, and those that a person starts.

Karpenter has only its documented policy. The tests run in their order: each begins with a cloud without nodes and
leaves one. What EC2 may do to Karpenter's nodes is in tests/e2e, where workers run on them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from packages.localcloud.tests.aws.fakes import trust
from packages.localcloud.tests.kube.karpenter_cloud import (
    CLUSTER,
    NODE_ROLE,
    WAIT_SECONDS,
    Cloud,
    deployment,
    karpenter_cloud,
)

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
    """Return the node of the one pod that is Ready, or nothing; there may be pods that a kubelet has refused."""
    found = json.loads(cloud.kubectl("get", "pods", "-ojson"))["items"]
    ready = [each["spec"]["nodeName"] for each in found if condition(each, "Ready") == "True"]
    return str(ready[0]) if len(ready) == 1 else ""


def gone(cloud: Cloud) -> bool:
    return not cloud.items("nodes") and not cloud.items("nodeclaims") and not cloud.instances()


def test_a_pending_pod_gets_a_node_and_the_node_goes_with_its_last_pod(cloud: Cloud) -> None:
    cloud.apply(deployment("one"))
    cloud.wait("a pod that runs", lambda: node_of(cloud))
    (instance,) = cloud.instances()
    tags = {tag["Key"]: tag["Value"] for tag in instance["Tags"]}
    assert (instance["InstanceLifecycle"], instance["PrivateDnsName"]) == ("spot", node_of(cloud))
    assert (tags["karpenter.sh/nodepool"], tags["stack"]) == ("surge", "test")
    cloud.wait("an initialized claim", lambda: condition(cloud.items("nodeclaims")[0], "Initialized") == "True")
    cloud.kubectl("delete", "deployment", "one")
    cloud.wait("no node, claim or instance", lambda: gone(cloud))


def test_a_deleted_pool_leaves_nothing_behind(cloud: Cloud) -> None:
    ec2, iam = cloud.client("ec2"), cloud.client("iam")
    cloud.apply(deployment("last"))
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


IMAGE = "ami-0e15c10ca1c10ad00"
POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "own"},
    "spec": {
        "nodeSelector": {"role": "own"},
        "tolerations": [{"key": "surge", "operator": "Exists"}],
        "terminationGracePeriodSeconds": 0,
        "containers": [{"name": "main", "image": "localcloud/shell:1", "command": ["sleep", "600"]}],
    },
}


@pytest.fixture(scope="module")
def invited(cloud: Cloud) -> str:
    """Return an instance profile with a role that has an access entry; the role of `stranger` has none."""
    iam = cloud.client("iam")
    iam.create_role(RoleName="stranger", AssumeRolePolicyDocument=json.dumps(trust("ec2.amazonaws.com")))
    for role in (NODE_ROLE, "stranger"):
        iam.create_instance_profile(InstanceProfileName=role)
        iam.add_role_to_instance_profile(InstanceProfileName=role, RoleName=role)
    return NODE_ROLE


def nodes(cloud: Cloud) -> dict[str, Any]:
    """Return the Node objects by provider id."""
    return {node["spec"]["providerID"]: node for node in cloud.items("nodes")}


def run(cloud: Cloud, profile: str, label: str) -> Any:
    """Run an instance with the user data of a node."""
    ec2 = cloud.client("ec2")
    (subnet,) = ec2.describe_subnets(Filters=[{"Name": "cidr-block", "Values": ["10.7.1.0/24"]}])["Subnets"]
    launched = ec2.run_instances(
        ImageId=IMAGE,
        InstanceType="m5.large",
        SubnetId=subnet["SubnetId"],
        IamInstanceProfile={"Name": profile},
        UserData=user_data(cloud, label),
        MinCount=1,
        MaxCount=1,
    )
    return launched["Instances"][0]


def user_data(cloud: Cloud, label: str) -> str:
    """Return what nodeadm reads on a node that a person starts."""
    cluster = cloud.client("eks").describe_cluster(name=CLUSTER)["cluster"]
    config = {
        "apiVersion": "node.eks.aws/v1alpha1",
        "kind": "NodeConfig",
        "spec": {
            "cluster": {
                "name": CLUSTER,
                "apiServerEndpoint": cluster["endpoint"],
                "certificateAuthority": cluster["certificateAuthority"]["data"],
                "cidr": cluster["kubernetesNetworkConfig"]["serviceIpv4Cidr"],
            },
            "kubelet": {
                "config": {"maxPods": 29, "registerWithTaints": [{"key": "surge", "effect": "NoSchedule"}]},
                "flags": [f"--node-labels=role={label}"],
            },
        },
    }
    head = 'MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary="//"\n\n--//\n'
    return f"{head}Content-Type: application/node.eks.aws\n\n{json.dumps(config)}\n--//--\n"


def test_an_instance_becomes_a_node_runs_pods_and_takes_its_node_with_it(cloud: Cloud, invited: str) -> None:
    launched = run(cloud, invited, "own")
    provider_id = f"aws:///us-west-2b/{launched['InstanceId']}"
    cloud.wait("a Ready node", lambda: condition(nodes(cloud).get(provider_id, {}), "Ready") == "True")
    node = nodes(cloud)[provider_id]
    assert node["metadata"]["name"] == launched["PrivateDnsName"]
    assert {
        "role": "own",
        "node.kubernetes.io/instance-type": "m5.large",
        "topology.kubernetes.io/region": "us-west-2",
        "topology.kubernetes.io/zone": "us-west-2b",
    }.items() <= node["metadata"]["labels"].items()
    assert {"key": "surge", "effect": "NoSchedule"} in node["spec"]["taints"]
    assert node["status"]["allocatable"]["pods"] == "29"
    assert node["status"]["capacity"]["memory"] == "8Gi"

    cloud.apply(POD)
    cloud.kubectl("wait", "--for=condition=Ready", "pod/own", f"--timeout={WAIT_SECONDS:.0f}s")
    assert cloud.kubectl("get", "pod", "own", "-ojsonpath={.spec.nodeName}") == launched["PrivateDnsName"]

    cloud.client("ec2").terminate_instances(InstanceIds=[launched["InstanceId"]])
    cloud.wait("no node", lambda: provider_id not in nodes(cloud))
    assert not (cloud.instance.state / "nodes" / launched["InstanceId"]).exists()


def test_an_instance_whose_role_has_no_access_entry_stays_an_instance(cloud: Cloud, invited: str) -> None:
    assert invited
    launched = run(cloud, "stranger", "stranger")
    reason = f"instance {launched['InstanceId']} ({launched['PrivateDnsName']}) is not a node: its role "
    log = cloud.instance.state / "logs" / "daemon.log"
    cloud.wait("a line in the log", lambda: reason in log.read_text())
    assert [name for name in nodes(cloud) if name.endswith(launched["InstanceId"])] == []
    found = cloud.client("ec2").describe_instances(InstanceIds=[launched["InstanceId"]])
    assert found["Reservations"][0]["Instances"][0]["State"]["Name"] == "running"
    cloud.client("ec2").terminate_instances(InstanceIds=[launched["InstanceId"]])
