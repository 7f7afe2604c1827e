"""Fakes of what the EKS API uses: EC2, IAM and the machine that runs clusters. They keep state."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import count
from typing import Any, ClassVar

from localcloud.aws.ec2 import Ec2Instance, InstanceType, LaunchRefused, LaunchSpec, Subnet
from localcloud.aws.eks import reconcile, service
from localcloud.aws.eks.model import Json
from localcloud.aws.eks.state import Eks, Settings
from localcloud.aws.principals import Principal, Role, SessionCredentials, UnknownCredentials
from localcloud.errors import CloudError

ACCOUNT = "123456789012"
REGION = "us-west-2"
OPERATOR = Principal(f"arn:aws:iam::{ACCOUNT}:user/operator", f"arn:aws:iam::{ACCOUNT}:user/operator", ACCOUNT, "s", ())


def trust(*services: str, actions: Sequence[str] = ("sts:AssumeRole",)) -> Json:
    """Return a trust policy for services."""
    statement = {"Effect": "Allow", "Principal": {"Service": list(services)}, "Action": list(actions)}
    return {"Version": "2012-10-17", "Statement": [statement]}


@dataclass
class FakePrincipals:
    """`Principals` backed by dictionaries."""

    roles: dict[str, Role] = field(default_factory=dict)
    keys: dict[str, Principal] = field(default_factory=dict)
    bucket_policies: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    profiles: dict[str, str] = field(default_factory=dict)
    assumed: list[tuple[str, str]] = field(default_factory=list)

    def add_role(self, name: str, document: Json) -> str:
        arn = f"arn:aws:iam::{ACCOUNT}:role/{name}"
        self.roles[arn] = Role(arn, document)
        return arn

    def find(self, access_key: str, session_token: str | None) -> Principal:
        if access_key not in self.keys:
            raise UnknownCredentials(access_key)
        return self.keys[access_key]

    def role(self, arn: str) -> Role | None:
        return self.roles.get(arn)

    def role_of_profile(self, profile_arn: str) -> str | None:
        return self.profiles.get(profile_arn)

    def assume(self, role_arn: str, session_name: str, seconds: int) -> SessionCredentials:
        self.assumed.append((role_arn, session_name))
        session = f"arn:aws:sts::{ACCOUNT}:assumed-role/{role_arn.rpartition('/')[2]}/{session_name}"
        return SessionCredentials("ASIA", "secret", "token", datetime(2030, 1, 1, tzinfo=UTC), session, "AROA:x")

    def bucket_policy(self, bucket: str) -> Mapping[str, Any] | None:
        return self.bucket_policies.get(bucket)


class FakeEc2:
    """`Ec2` with two subnets in two zones and two launch templates."""

    def __init__(self) -> None:
        self.subnets = {f"subnet-{zone}": Subnet(f"subnet-{zone}", "vpc-1", f"us-west-2{zone}") for zone in "ab"}
        self.groups: dict[str, str] = {"sg-own": "own"}
        self.interfaces: dict[str, str] = {}
        self.states: dict[str, str] = {}
        self.seen: dict[str, Ec2Instance] = {}
        self.launched: list[LaunchSpec] = []
        self.template_user_data = b""
        self.without_capacity: set[tuple[str, str]] = set()
        """The instance types, each with a subnet, that can't be launched there."""
        self._numbers = count(1)

    def subnet(self, identity: str) -> Subnet | None:
        return self.subnets.get(identity)

    def security_group_exists(self, identity: str) -> bool:
        return identity in self.groups

    def instance_type(self, name: str) -> InstanceType | None:
        sizes = {"m5.large": (2, 8192), "t3.medium": (2, 4096), "g5.12xlarge": (48, 196608, 4)}
        return InstanceType(name, *sizes[name]) if name in sizes else None

    def launch_template(self, identity: str | None, name: str | None, version: str | None) -> Mapping[str, Any] | None:
        if identity not in ("lt-1", "lt-2"):
            return None
        known = {"id": identity, "name": "workers", "version": version or "1"}
        return {**known, "data": {}, "user_data": self.template_user_data}

    def create_security_group(self, name: str, description: str, vpc_id: str, tags: Mapping[str, str]) -> str:
        identity = f"sg-{next(self._numbers)}"
        self.groups[identity] = name
        return identity

    def delete_security_group(self, identity: str) -> None:
        self.groups.pop(identity)

    def create_interface(self, subnet: str, groups: Sequence[str], description: str, tags: Mapping[str, str]) -> str:
        identity = f"eni-{next(self._numbers)}"
        self.interfaces[identity] = subnet
        return identity

    def delete_interface(self, identity: str) -> None:
        self.interfaces.pop(identity)

    def run(self, spec: LaunchSpec) -> Ec2Instance:
        if (spec.instance_type, spec.subnet) in self.without_capacity:
            raise LaunchRefused("InsufficientInstanceCapacity - We currently do not have sufficient capacity.")
        self.launched.append(spec)
        own = self.template_user_data if spec.launch_template else b""
        return self.start(spec.subnet, spec.instance_type, user_data=own, image=spec.image)

    def start(self, subnet: str, instance_type: str = "m5.large", **fields: Any) -> Ec2Instance:
        """Run an instance as another client does."""
        number, place = next(self._numbers), self.subnets[subnet]
        name = f"ip-10-0-0-{number}.us-west-2.compute.internal"
        seen = Ec2Instance(f"i-{number}", f"10.0.0.{number}", name, subnet, place.zone, place.vpc_id, instance_type)
        self.states[seen.id], self.seen[seen.id] = "running", replace(seen, **fields)
        return self.seen[seen.id]

    def boot(self, identity: str) -> None:
        """Start a stopped instance, or reboot a running one."""
        self.states[identity] = "running"
        self.seen[identity] = replace(self.seen[identity], boots=self.seen[identity].boots + 1)

    def terminate(self, identity: str) -> None:
        self.states[identity] = "terminated"

    def running(self) -> set[str]:
        return {identity for identity, state in self.states.items() if state == "running"}

    def instances(self) -> dict[str, Ec2Instance]:
        alive = [(identity, state) for identity, state in self.states.items() if state != "terminated"]
        return {identity: replace(self.seen[identity], running=state == "running") for identity, state in alive}


BINDINGS = {"clusterrolebindings": "ClusterRoleBinding", "rolebindings": "RoleBinding"}


class FakeClient:
    """An API server: its objects by path, and its replies to reviews."""

    def __init__(self) -> None:
        self.objects: dict[tuple[str, str | None, str], Json] = {}
        self.patches: list[tuple[str, Json]] = []
        self.pods: list[Json] = []
        self.review: Json = {"authenticated": False, "error": "unknown token"}

    def apply(self, manifest: Json) -> Json:
        metadata = manifest["metadata"]
        self.objects[(manifest["kind"], metadata.get("namespace"), metadata["name"])] = manifest
        return manifest

    def get(self, path: str) -> Json:
        if path.startswith("/api/v1/nodes/"):
            return {"spec": {"taints": [{"key": "own", "effect": "NoSchedule"}]}}
        if path.startswith("/api/v1/pods"):
            return {"items": self.pods}
        kind = BINDINGS[path.partition("?")[0].rpartition("/")[2]]
        label = path.rpartition("%3D")[2]
        found = [item for (known, _, _), item in self.objects.items() if known == kind]
        return {"items": [item for item in found if label in item["metadata"]["labels"].values()]}

    def delete(self, path: str) -> bool:
        parts = path.split("/")
        namespace = parts[parts.index("namespaces") + 1] if "namespaces" in parts else None
        return self.objects.pop((BINDINGS[parts[-2]], namespace, parts[-1]), None) is not None

    def create(self, path: str, body: Json) -> Json:
        return {"status": self.review}

    def patch(self, path: str, body: Json) -> Json:
        self.patches.append((path, body))
        return {}

    def request(self, method: str, path: str, body: Json, content_type: str) -> Json:
        self.patches.append((path, body))
        return {}


@dataclass
class FakePlane:
    """A control plane that is ready at once."""

    spec: Json
    endpoint: str = "https://198.18.0.2:6443"
    issuer: str = "https://oidc.eks.us-west-2.amazonaws.com/id/ABC"
    ca_pem: str = "-----BEGIN CERTIFICATE-----"
    client: Any = field(default_factory=FakeClient)
    deleted_nodes: list[str] = field(default_factory=list)
    drained: list[str] = field(default_factory=list)
    stopped: bool = False
    breaks: bool = False

    def start(self, deadline: float) -> None: ...

    def upgrade(self, version: str, deadline: float) -> None:
        if self.breaks:
            raise CloudError("kube-apiserver died")
        self.spec["version"] = version

    def revive(self) -> None: ...

    def stop(self) -> None:
        self.stopped = True

    def delete_node(self, name: str) -> None:
        self.deleted_nodes.append(name)

    def drain(self, name: str, deadline: float) -> None:
        self.drained.append(name)


@dataclass
class FakeNode:
    """A node that is Ready once it is started, unless it is set to fail."""

    spec: Json
    fails: bool = False
    running: bool = False
    ended: str | None = None
    log: str = ""
    """The failure in its logs; it isn't Ready if there is one."""

    def start(self) -> None:
        if self.fails:
            raise CloudError(f"node {self.spec['name']}: containerd died")
        self.running = True

    def stop(self) -> None:
        self.running, self.ended = False, "stopped"

    def power_off(self) -> None:
        self.running, self.ended = False, "powered off"

    def alive(self) -> bool:
        return self.running

    def failure(self) -> str:
        return self.log

    def ready(self) -> bool:
        return self.running and not self.log


@dataclass
class FakeAddons:
    """Addons with a status that a test sets."""

    VERSIONS: ClassVar[dict[str, list[str]]] = {
        "vpc-cni": ["v1.20.4-eksbuild.1", "v1.20.3-eksbuild.1"],
        "coredns": ["v1.12.4-eksbuild.1"],
        "kube-proxy": ["v1.35.3-eksbuild.29", "v1.34.6-eksbuild.29"],
    }
    installed: dict[str, tuple[str, Json]] = field(default_factory=dict)
    statuses: dict[str, str] = field(default_factory=dict)

    def install(self, name: str, version: str, configuration: Json) -> None:
        self.installed[name] = (version, configuration)

    def remove(self, name: str) -> None:
        self.installed.pop(name, None)

    def status(self, name: str) -> str:
        return self.statuses.get(name, "ACTIVE")


class FakeMachine:
    """`Machine` that creates the fakes and remembers them."""

    def __init__(self) -> None:
        self.planes: list[FakePlane] = []
        self.nodes: dict[str, FakeNode] = {}
        self.software = FakeAddons()
        self.next_node_fails = False
        self.versions = ["1.34", "1.35"]

    def control_plane(self, spec: Json) -> Any:
        self.planes.append(FakePlane(spec))
        return self.planes[-1]

    def node(self, control_plane: Any, spec: Json) -> Any:
        node = FakeNode(spec, fails=self.next_node_fails)
        self.next_node_fails = False
        self.nodes[spec["instance_id"]] = node
        return node

    def addons(self, control_plane: Any) -> Any:
        return self.software

    def addon_versions(self) -> dict[str, list[str]]:
        return dict(FakeAddons.VERSIONS)

    def kubernetes_versions(self) -> list[str]:
        return self.versions


class InlinePool:
    """An executor that does the work at once in the caller's thread."""

    def submit(self, work: Any, *args: Any) -> Any:
        done: Future[Any] = Future()
        done.set_result(work(*args))
        return done

    def shutdown(self, **_: Any) -> None: ...


class LatePool(InlinePool):
    """An executor that does its work when the test says so."""

    def __init__(self) -> None:
        self.left: list[Any] = []

    def submit(self, work: Any, *args: Any) -> None:
        self.left.append(work)


@dataclass
class World:
    """An EKS API with fakes; the test runs the reconciler's rounds."""

    eks: Eks
    ec2: FakeEc2
    principals: FakePrincipals
    machine: FakeMachine
    cluster_role: str
    node_role: str
    pod_role: str

    def call(self, operation: str, caller: Principal = OPERATOR, **params: Any) -> Json:
        if "clusterName" in params:
            params.setdefault("name", params["clusterName"])
        answer: Json = json.loads(json.dumps(service.answer(self.eks, caller, operation, params)))
        return answer

    def cluster(self, name: str = "demo", **params: Any) -> None:
        """Create a cluster and start it."""
        given: Json = {
            "roleArn": self.cluster_role,
            "resourcesVpcConfig": {"subnetIds": sorted(self.ec2.subnets)},
            "accessConfig": {"authenticationMode": "API"},
            "bootstrapSelfManagedAddons": False,
        }
        self.call("CreateCluster", name=name, **(given | params))
        reconcile.start(self.eks, self.eks.clusters[name])

    def nodegroup(self, desired: int, **params: Any) -> Json:
        """Create a node group."""
        scaling = {"minSize": 0, "maxSize": 8, "desiredSize": desired}
        given: Json = {"nodeRole": self.node_role, "subnets": sorted(self.ec2.subnets), "scalingConfig": scaling}
        group: Json = self.of_group("CreateNodegroup", **(given | {"instanceTypes": ["m5.large"]} | params))[
            "nodegroup"
        ]
        return group

    def turn(self, rounds: int = 1, later_seconds: float = 0.0) -> None:
        """Run some rounds of the reconciler, now or at a later time."""
        for _ in range(rounds):
            reconcile.step(self.eks, self.eks.clusters["demo"], time.monotonic() + later_seconds)

    def of_group(self, operation: str, **params: Any) -> Json:
        """Call an operation on the node group."""
        return self.call(operation, clusterName="demo", nodegroupName="workers", **params)

    def group(self) -> Json:
        """Return the node group as it is described."""
        described: Json = self.of_group("DescribeNodegroup")["nodegroup"]
        return described

    def status(self) -> str:
        """Return the node group's status."""
        return str(self.group()["status"])


def world(monkeypatch: Any) -> World:
    """A new account. No thread runs, so only the test's calls change anything."""
    monkeypatch.setattr(threading.Thread, "start", lambda self: None)
    ec2, principals, machine = FakeEc2(), FakePrincipals(), FakeMachine()
    eks = Eks(Settings(ACCOUNT, REGION, lambda kind, cluster: (kind, cluster)), ec2, principals, machine)
    eks.pool = InlinePool()  # type: ignore[assignment]
    pod = trust("pods.eks.amazonaws.com", actions=("sts:AssumeRole", "sts:TagSession"))
    return World(
        eks,
        ec2,
        principals,
        machine,
        cluster_role=principals.add_role("cluster", trust("eks.amazonaws.com")),
        node_role=principals.add_role("node", trust("ec2.amazonaws.com")),
        pod_role=principals.add_role("pod", pod),
    )
