"""A running cloud with a cluster, and the real Karpenter controller as a process of this machine.

with karpenter_cloud(folder) as cloud:
    cloud.apply(deployment("one"))
"""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import boto3
from localcloud import cli, tools
from localcloud.instance import Instance

from packages.localcloud.tests.aws.fakes import ACCOUNT, REGION, trust
from packages.localcloud.tests.aws.karpenter import policy
from tests.control_plane import await_definitions

SOURCES = Path(__file__).resolve().parents[2] / "src"
CLUSTER = "demo"
NODE_ROLE = "surge-node"
ADDONS = ("vpc-cni", "kube-proxy")
TYPES = ("m5.large", "c5.large")
LABEL = {"role": "surge"}
TAINT = {"key": "surge", "value": "true", "effect": "NoSchedule"}
EVENTS = (
    ("aws.ec2", "EC2 Spot Instance Interruption Warning"),
    ("aws.ec2", "EC2 Instance Rebalance Recommendation"),
    ("aws.ec2", "EC2 Instance State-change Notification"),
    ("aws.health", "AWS Health Event"),
)
WAIT_SECONDS = 180.0
LIVING = [{"Name": "instance-state-name", "Values": ["pending", "running", "stopping", "stopped"]}]


@dataclass
class Cloud:
    """A running cloud with one active cluster, and Karpenter's controller for it."""

    instance: Instance
    session: Any
    folder: Path
    controller: subprocess.Popen[bytes] | None = None

    def client(self, name: str) -> Any:
        """Return a client with the operator's credentials."""
        return self.session.client(name, endpoint_url=self.instance.endpoint)

    @property
    def kubeconfig(self) -> Path:
        """The configuration of the cluster's administrator."""
        return self.instance.state / "clusters" / CLUSTER / "admin.kubeconfig"

    def kubectl(self, *arguments: str, stdin: str | None = None) -> str:
        """Run kubectl; an error fails the test."""
        command = [str(tools.binary("kubectl")), "--kubeconfig", str(self.kubeconfig), *arguments]
        done = subprocess.run(
            command, input=stdin, capture_output=True, text=True, timeout=WAIT_SECONDS + 30, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def apply(self, *objects: dict[str, Any]) -> None:
        """Create or update objects."""
        self.kubectl("apply", "-f", "-", stdin="\n---\n".join(json.dumps(each) for each in objects))

    def items(self, kind: str) -> list[dict[str, Any]]:
        """Return the objects of a kind in all namespaces."""
        found: list[dict[str, Any]] = json.loads(self.kubectl("get", kind, "-A", "-ojson"))["items"]
        return found

    def instances(self) -> list[Any]:
        """Return the instances that are not terminated."""
        reservations = self.client("ec2").describe_instances(Filters=LIVING)["Reservations"]
        return [each for reservation in reservations for each in reservation["Instances"]]

    def wait(self, what: str, condition: Callable[[], Any], seconds: float = WAIT_SECONDS) -> None:
        """Wait for a condition; what there is and the end of Karpenter's log say why it didn't come."""
        deadline = time.monotonic() + seconds
        while not condition():
            assert self.controller is None or self.controller.poll() is None, f"Karpenter has ended: {self.log()}"
            assert time.monotonic() < deadline, f"not within {seconds:.0f} s: {what}\n{self.left()}\n{self.log()}"
            time.sleep(0.25)

    def left(self) -> str:
        """Return what there is of what Karpenter makes."""
        names = {kind: [each["metadata"]["name"] for each in self.items(kind)] for kind in ("nodes", "nodeclaims")}
        instances = {each["InstanceId"]: each["State"]["Name"] for each in self.instances()}
        templates = self.client("ec2").describe_launch_templates()["LaunchTemplates"]
        pods = {each["metadata"]["name"]: each["status"] for each in self.items("pods")}
        made = [each["LaunchTemplateName"] for each in templates]
        return f"{names}, instances {instances}, templates {made}, pods {json.dumps(pods)}"

    def log(self) -> str:
        """Return the end of Karpenter's log."""
        path = self.folder / "karpenter.log"
        return "\n".join(path.read_text(errors="replace").splitlines()[-15:]) if path.exists() else ""


def deployment(name: str) -> dict[str, Any]:
    """Return a deployment of one pod that only a node of the pool can run.

    A bare pod would be lost when the kubelet of the new node refuses it (reason TaintToleration): the scheduler may
    know earlier than that kubelet that Karpenter has taken the taint karpenter.sh/unregistered away.
    """
    labels = {"name": name}
    template = {"metadata": {"labels": labels}, "spec": _pod_spec()}
    spec = {"replicas": 1, "selector": {"matchLabels": labels}, "template": template}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name}, "spec": spec}


def node_class(subnets: list[str], group: str) -> dict[str, Any]:
    """Return the class of the pool's nodes: a pinned image, the cluster's network, IMDSv2, an encrypted disk."""
    disk = {"volumeSize": "20Gi", "volumeType": "gp3", "encrypted": True, "deleteOnTermination": True}
    return {
        "apiVersion": "karpenter.k8s.aws/v1",
        "kind": "EC2NodeClass",
        "metadata": {"name": "surge"},
        "spec": {
            "role": NODE_ROLE,
            "amiSelectorTerms": [{"alias": "al2023@v20260903"}],
            "subnetSelectorTerms": [{"id": subnet} for subnet in subnets],
            "securityGroupSelectorTerms": [{"id": group}],
            "metadataOptions": {"httpTokens": "required", "httpPutResponseHopLimit": 1},
            "blockDeviceMappings": [{"deviceName": "/dev/xvda", "ebs": disk}],
            "tags": {"stack": "test"},
        },
    }


def node_pool() -> dict[str, Any]:
    """Return a pool of Spot Instances that are gone soon after their last pod."""
    wanted = {"karpenter.sh/capacity-type": ["spot"], "node.kubernetes.io/instance-type": list(TYPES)}
    return {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodePool",
        "metadata": {"name": "surge"},
        "spec": {
            "limits": {"cpu": "8"},
            "disruption": {
                "consolidationPolicy": "WhenEmpty",
                "consolidateAfter": "5s",
                "budgets": [{"nodes": "100%"}],
            },
            "template": {
                "metadata": {"labels": LABEL},
                "spec": {
                    "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "surge"},
                    "requirements": [
                        {"key": key, "operator": "In", "values": values} for key, values in wanted.items()
                    ],
                    "taints": [TAINT],
                    "expireAfter": "Never",
                },
            },
        },
    }


@contextlib.contextmanager
def karpenter_cloud(folder: Path) -> Iterator[Cloud]:
    """Start a cloud, a cluster without nodes and Karpenter; end all of it."""
    state = folder / "state"
    command = [sys.executable, "-m", "localcloud"]
    subprocess.run([*command, "start", "--state", str(state)], cwd=SOURCES, check=True)
    controller = None
    try:
        instance = Instance.load(state)
        keys = instance.credentials()
        session: Any = boto3.Session(keys.access_key, keys.secret_key, region_name=instance.region)
        cloud = Cloud(instance, session, folder)
        subnets = _create_cluster(cloud)
        _create_queue(cloud)
        _install_definitions(cloud)
        controller = cloud.controller = _start_controller(cloud)
        group = cloud.client("eks").describe_cluster(name=CLUSTER)["cluster"]["resourcesVpcConfig"]
        cloud.apply(node_class(subnets, group["clusterSecurityGroupId"]), node_pool())
        yield cloud
    finally:
        if controller is not None:
            controller.terminate()
            controller.wait(timeout=30)
        subprocess.run([*command, "stop", "--state", str(state)], cwd=SOURCES, check=True)


def _create_cluster(cloud: Cloud) -> list[str]:
    """Create the cluster with what its nodes need; return its subnets."""
    iam, ec2, eks = cloud.client("iam"), cloud.client("ec2"), cloud.client("eks")
    for name, service in (("cluster", "eks"), (NODE_ROLE, "ec2")):
        iam.create_role(RoleName=name, AssumeRolePolicyDocument=json.dumps(trust(f"{service}.amazonaws.com")))
    vpc = ec2.create_vpc(CidrBlock="10.7.0.0/16")["Vpc"]["VpcId"]
    made = [
        ec2.create_subnet(VpcId=vpc, CidrBlock=f"10.7.{number}.0/24", AvailabilityZone=f"{REGION}{zone}")
        for number, zone in enumerate("ab")
    ]
    subnets = [str(each["Subnet"]["SubnetId"]) for each in made]
    eks.create_cluster(
        name=CLUSTER,
        roleArn=f"arn:aws:iam::{ACCOUNT}:role/cluster",
        resourcesVpcConfig={"subnetIds": subnets},
        accessConfig={"authenticationMode": "API"},
        bootstrapSelfManagedAddons=False,
    )
    cloud.wait("an active cluster", lambda: eks.describe_cluster(name=CLUSTER)["cluster"]["status"] == "ACTIVE")
    for addon in ADDONS:
        eks.create_addon(clusterName=CLUSTER, addonName=addon)
    role = f"arn:aws:iam::{ACCOUNT}:role/{NODE_ROLE}"
    eks.create_access_entry(clusterName=CLUSTER, principalArn=role, type="EC2_LINUX")
    return subnets


def _create_queue(cloud: Cloud) -> None:
    """Create the queue of interruption notices with its policy and rules, as Karpenter's documentation does."""
    sqs, events = cloud.client("sqs"), cloud.client("events")
    arn = f"arn:aws:sqs:{REGION}:{ACCOUNT}:{CLUSTER}"
    allowed = {
        "Effect": "Allow",
        "Principal": {"Service": "events.amazonaws.com"},
        "Action": "sqs:SendMessage",
        "Resource": arn,
    }
    document = json.dumps({"Version": "2012-10-17", "Statement": [allowed]})
    sqs.create_queue(QueueName=CLUSTER, Attributes={"Policy": document, "MessageRetentionPeriod": "300"})
    for number, (source, kind) in enumerate(EVENTS):
        pattern = json.dumps({"source": [source], "detail-type": [kind]})
        events.put_rule(Name=f"karpenter-{number}", EventPattern=pattern)
        events.put_targets(Rule=f"karpenter-{number}", Targets=[{"Id": "queue", "Arn": arn}])


def _install_definitions(cloud: Cloud) -> None:
    """Install the custom resource definitions of Karpenter's chart."""
    from scripts import toolchain  # here, as in conftest.py: LOCALCLOUD_TOOLS has no charts

    chart = toolchain.charts() / "karpenter-crd"
    made = subprocess.run(
        [str(tools.binary("helm")), "template", "karpenter-crd", str(chart)], capture_output=True, text=True, check=True
    )
    cloud.kubectl("apply", "--server-side", "-f", "-", stdin=made.stdout)
    await_definitions(cloud.kubectl)


def _start_controller(cloud: Cloud) -> subprocess.Popen[bytes]:
    """Start Karpenter with the credentials of a user who has only its documented policy."""
    iam = cloud.client("iam")
    iam.create_user(UserName="karpenter")
    document = json.dumps(policy(CLUSTER, NODE_ROLE, CLUSTER))
    iam.put_user_policy(UserName="karpenter", PolicyName="controller", PolicyDocument=document)
    key = iam.create_access_key(UserName="karpenter")["AccessKey"]
    environment = {
        **cli.exports(cloud.instance),
        "AWS_ACCESS_KEY_ID": key["AccessKeyId"],
        "AWS_SECRET_ACCESS_KEY": key["SecretAccessKey"],
        "KUBECONFIG": str(cloud.kubeconfig),
        "CLUSTER_NAME": CLUSTER,
        "INTERRUPTION_QUEUE": CLUSTER,
        "DISABLE_LEADER_ELECTION": "true",
        "KARPENTER_SERVICE": "karpenter",
        "SYSTEM_NAMESPACE": "kube-system",
        "KUBERNETES_MIN_VERSION": "1.19.0-0",
        "METRICS_PORT": str(_free_port()),
        "HEALTH_PROBE_PORT": str(_free_port()),
        "HOME": str(cloud.folder),
    }
    with (cloud.folder / "karpenter.log").open("wb") as output:
        return subprocess.Popen(
            [str(tools.binary("karpenter"))], env=environment, stdout=output, stderr=subprocess.STDOUT, cwd=cloud.folder
        )


def _pod_spec() -> dict[str, Any]:
    requests = {"requests": {"cpu": "100m", "memory": "64Mi"}}
    container = {
        "name": "main",
        "image": "localcloud/shell:1",
        "command": ["sleep", "3600"],
        "imagePullPolicy": "Never",
        "resources": requests,
    }
    return {
        "nodeSelector": LABEL,
        "tolerations": [{"key": TAINT["key"], "operator": "Exists"}],
        "terminationGracePeriodSeconds": 0,
        "containers": [container],
    }


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
