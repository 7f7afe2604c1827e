"""The resources that the cases of resource types need, and the form of a case."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from packages.localcloud.tests.aws.fakes import ACCOUNT, REGION, trust
from packages.localcloud.tests.standins.aws.harness import Engine, Resource

Tree = dict[str, Any]


class World:
    """The resources that the cases need, created on first use."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._made: dict[tuple[str, str], Resource] = {}
        self._number = 0

    def get(self, token: str, name: str, **inputs: Any) -> Resource:
        key = (token, name)
        if key not in self._made:
            self._made[key] = self._engine.create(token, name, inputs)
        return self._made[key]

    def fresh(self, token: str, **inputs: Any) -> Resource:
        self._number += 1
        return self.get(token, f"fresh{self._number}", **inputs)

    def take_down(self) -> None:
        for resource in reversed(self._made.values()):
            self._engine.delete(resource)

    @property
    def vpc(self) -> str:
        return self.get("aws:ec2/vpc:Vpc", "vpc", cidrBlock="10.0.0.0/16", enableDnsHostnames=True).id

    def subnet(self, zone: str = "a") -> str:
        place = {"vpcId": self.vpc, "cidrBlock": f"10.0.{ord(zone)}.0/24", "availabilityZone": f"us-west-2{zone}"}
        return self.get("aws:ec2/subnet:Subnet", f"subnet-{zone}", **place).id

    def group(self, name: str = "group") -> str:
        return self.get("aws:ec2/securityGroup:SecurityGroup", name, vpcId=self.vpc, description="d").id

    @property
    def gateway(self) -> str:
        return self.get("aws:ec2/internetGateway:InternetGateway", "gateway", vpcId=self.vpc).id

    def table(self, name: str = "table") -> str:
        return self.get("aws:ec2/routeTable:RouteTable", name, vpcId=self.vpc).id

    def address(self) -> str:
        return self.get("aws:ec2/eip:Eip", "address", domain="vpc").id

    def role(self, name: str, *services: str) -> Resource:
        policy = json.dumps(trust(*services, actions=("sts:AssumeRole", "sts:TagSession")))
        return self.get("aws:iam/role:Role", name, assumeRolePolicy=policy)

    @property
    def system(self) -> str:
        return self.get("aws:efs/fileSystem:FileSystem", "system", encrypted=True).id

    @property
    def key(self) -> Resource:
        return self.get("aws:kms/key:Key", "key", deletionWindowInDays=7)

    def bucket(self) -> str:
        return self.fresh("aws:s3/bucket:Bucket", forceDestroy=True).id

    def secret(self, name: str) -> str:
        """Return the ARN of a secret; the plug-in has no such type, so moto makes it."""
        from moto.secretsmanager.models import secretsmanager_backends

        backend = secretsmanager_backends[ACCOUNT][REGION]
        if name not in backend.secrets:
            backend.create_secret(name, "{}", None, None, [], None, None, [], force_overwrite=False)
        return str(backend.secrets[name].arn)

    @property
    def cluster(self) -> str:
        return self.get("aws:eks/cluster:Cluster", "cluster", **cluster_inputs(self)).id


@dataclass(frozen=True)
class Case:
    """Inputs of a type, made from the world.

    Attributes:
        token: the type.
        inputs: to create it with.
        changed: inputs that change in place; None: the type knows no such change.
        replaced: inputs that replace; None: nothing does.
        importable: whether the id (or `import_id`) is enough to import it without a difference.
        unread: inputs that an import cannot know.
    """

    token: str
    inputs: Callable[[World], Tree]
    changed: Callable[[World], Tree] | None = None
    replaced: Callable[[World], Tree] | None = None
    import_id: Callable[[Resource], str] = field(default=lambda resource: resource.id)
    importable: bool = True
    unread: frozenset[str] = frozenset()


def policy(*actions: str) -> str:
    statement = {"Effect": "Allow", "Action": list(actions), "Resource": "*"}
    return json.dumps({"Version": "2012-10-17", "Statement": [statement]})


def cluster_inputs(world: World) -> Tree:
    return {
        "roleArn": world.role("cluster-role", "eks.amazonaws.com").outputs["arn"],
        "version": "1.34",
        "accessConfig": {"authenticationMode": "API", "bootstrapClusterCreatorAdminPermissions": False},
        "vpcConfig": {"subnetIds": [world.subnet("a"), world.subnet("b")], "endpointPrivateAccess": True},
        "enabledClusterLogTypes": ["api", "audit"],
        "tags": {"a": "1"},
    }
