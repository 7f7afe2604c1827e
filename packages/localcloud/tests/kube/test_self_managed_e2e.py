"""On a running cloud, instances that EKS did not launch become nodes of the cluster that their user data names."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import boto3
import pytest
from localcloud import tools
from localcloud.instance import Instance

from packages.localcloud.tests.aws.fakes import trust
from packages.localcloud.tests.kube.harness import READY_SECONDS, wait_for

pytestmark = pytest.mark.e2e

SOURCES = Path(__file__).resolve().parents[2] / "src"
IMAGE = "ami-0e15c10ca1c10ad00"
ADDONS = ("vpc-cni", "kube-proxy")
POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "surge"},
    "spec": {
        "nodeSelector": {"role": "surge"},
        "tolerations": [{"key": "surge", "operator": "Exists"}],
        "terminationGracePeriodSeconds": 0,
        "containers": [{"name": "main", "image": "localcloud/debian:12", "command": ["sleep", "600"]}],
    },
}


@dataclass
class Cloud:
    """A running cloud with one active cluster."""

    instance: Instance
    session: Any
    subnet: str

    def client(self, name: str) -> Any:
        return self.session.client(name, endpoint_url=self.instance.endpoint)

    def kubectl(self, *arguments: str, stdin: str | None = None) -> str:
        config = self.instance.state / "clusters" / "demo" / "admin.kubeconfig"
        command = [str(tools.binary("kubectl")), "--kubeconfig", str(config), *arguments]
        done = subprocess.run(
            command, input=stdin, capture_output=True, text=True, timeout=READY_SECONDS + 30, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def nodes(self) -> dict[str, Any]:
        """Return the Node objects by provider id."""
        return {
            node["spec"]["providerID"]: node for node in json.loads(self.kubectl("get", "nodes", "-ojson"))["items"]
        }

    def log(self) -> str:
        return (self.instance.state / "logs" / "daemon.log").read_text()

    def run(self, profile: str, label: str) -> Any:
        """Run an instance with the user data of a node."""
        launched = self.client("ec2").run_instances(
            ImageId=IMAGE,
            InstanceType="m5.large",
            SubnetId=self.subnet,
            IamInstanceProfile={"Name": profile},
            UserData=self._user_data(label),
            MinCount=1,
            MaxCount=1,
        )
        return launched["Instances"][0]

    def _user_data(self, label: str) -> str:
        cluster = self.client("eks").describe_cluster(name="demo")["cluster"]
        config = {
            "apiVersion": "node.eks.aws/v1alpha1",
            "kind": "NodeConfig",
            "spec": {
                "cluster": {
                    "name": "demo",
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


def localcloud(command: str, state: Path) -> None:
    """Run the command line, which prints why it failed."""
    subprocess.run([sys.executable, "-m", "localcloud", command, "--state", str(state)], cwd=SOURCES, check=True)


@pytest.fixture(scope="module")
def cloud(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    """A cloud with an active cluster without nodes, and two roles: `invited` has an access entry, `stranger` none."""
    state = tmp_path_factory.mktemp("cloud") / "state"
    localcloud("start", state)
    try:
        instance = Instance.load(state)
        keys = instance.credentials()
        session: Any = boto3.Session(keys.access_key, keys.secret_key, region_name=instance.region)
        made = Cloud(instance, session, "")
        _create(made)
        yield made
    finally:
        localcloud("stop", state)


def _create(cloud: Cloud) -> None:
    iam, ec2, eks = cloud.client("iam"), cloud.client("ec2"), cloud.client("eks")
    roles = {}
    for name, service in (("cluster", "eks"), ("invited", "ec2"), ("stranger", "ec2")):
        document = json.dumps(trust(f"{service}.amazonaws.com"))
        roles[name] = iam.create_role(RoleName=name, AssumeRolePolicyDocument=document)["Role"]["Arn"]
        if service == "ec2":
            iam.create_instance_profile(InstanceProfileName=name)
            iam.add_role_to_instance_profile(InstanceProfileName=name, RoleName=name)
    vpc = ec2.create_vpc(CidrBlock="10.7.0.0/16")["Vpc"]["VpcId"]
    subnets = [
        ec2.create_subnet(VpcId=vpc, CidrBlock=f"10.7.{number}.0/24", AvailabilityZone=f"us-west-2{zone}")
        for number, zone in enumerate("ab")
    ]
    ids = [made["Subnet"]["SubnetId"] for made in subnets]
    eks.create_cluster(
        name="demo",
        roleArn=roles["cluster"],
        resourcesVpcConfig={"subnetIds": ids},
        accessConfig={"authenticationMode": "API"},
        bootstrapSelfManagedAddons=False,
    )
    wait_for("an active cluster", lambda: eks.describe_cluster(name="demo")["cluster"]["status"] == "ACTIVE")
    for addon in ADDONS:
        eks.create_addon(clusterName="demo", addonName=addon)
    eks.create_access_entry(clusterName="demo", principalArn=roles["invited"], type="EC2_LINUX")
    cloud.subnet = ids[1]


def ready(node: dict[str, Any]) -> bool:
    conditions = node.get("status", {}).get("conditions", [])
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


def test_an_instance_becomes_a_node_runs_pods_and_takes_its_node_with_it(cloud: Cloud) -> None:
    launched = cloud.run("invited", "surge")
    provider_id = f"aws:///us-west-2b/{launched['InstanceId']}"
    wait_for("a Ready node", lambda: ready(cloud.nodes().get(provider_id, {})))
    node = cloud.nodes()[provider_id]
    assert node["metadata"]["name"] == launched["PrivateDnsName"]
    assert {
        "role": "surge",
        "node.kubernetes.io/instance-type": "m5.large",
        "topology.kubernetes.io/region": "us-west-2",
        "topology.kubernetes.io/zone": "us-west-2b",
    }.items() <= node["metadata"]["labels"].items()
    assert {"key": "surge", "effect": "NoSchedule"} in node["spec"]["taints"]
    assert node["status"]["allocatable"]["pods"] == "29"

    cloud.kubectl("apply", "-f", "-", stdin=json.dumps(POD))
    cloud.kubectl("wait", "--for=condition=Ready", "pod/surge", f"--timeout={READY_SECONDS}s")
    assert cloud.kubectl("get", "pod", "surge", "-ojsonpath={.spec.nodeName}") == launched["PrivateDnsName"]

    cloud.client("ec2").terminate_instances(InstanceIds=[launched["InstanceId"]])
    wait_for("no node", lambda: provider_id not in cloud.nodes())
    assert not (cloud.instance.state / "nodes" / launched["InstanceId"]).exists()


def test_an_instance_whose_role_has_no_access_entry_stays_an_instance(cloud: Cloud) -> None:
    launched = cloud.run("stranger", "stranger")
    reason = f"instance {launched['InstanceId']} ({launched['PrivateDnsName']}) is not a node: its role "
    wait_for("a line in the log", lambda: reason in cloud.log())
    assert [name for name in cloud.nodes() if name.endswith(launched["InstanceId"])] == []
    found = cloud.client("ec2").describe_instances(InstanceIds=[launched["InstanceId"]])
    assert found["Reservations"][0]["Instances"][0]["State"]["Name"] == "running"
    cloud.client("ec2").terminate_instances(InstanceIds=[launched["InstanceId"]])
