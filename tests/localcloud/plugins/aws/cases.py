"""A case per resource type: inputs, a change in place, and a change that replaces."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pulumi

from localcloud.plugins.aws.entry import words
from tests.localcloud.aws.fakes import ACCOUNT, trust
from tests.localcloud.plugins.aws.harness import Engine, Resource

Tree = dict[str, Any]


class World:
    """What the cases stand on, made when first asked for."""

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
        return self.get("aws:iam/role:Role", name, assumeRolePolicy=policy, forceDetachPolicies=True)

    @property
    def system(self) -> str:
        return self.get("aws:efs/fileSystem:FileSystem", "system", encrypted=True).id

    @property
    def key(self) -> Resource:
        return self.get("aws:kms/key:Key", "key", deletionWindowInDays=7)

    def bucket(self) -> str:
        return self.fresh("aws:s3/bucket:Bucket", forceDestroy=True).id

    @property
    def cluster(self) -> str:
        return self.get("aws:eks/cluster:Cluster", "cluster", **_cluster(self)).id


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


def _cluster(world: World) -> Tree:
    return {
        "roleArn": world.role("cluster-role", "eks.amazonaws.com").outputs["arn"],
        "version": "1.34",
        "accessConfig": {"authenticationMode": "API", "bootstrapClusterCreatorAdminPermissions": False},
        "vpcConfig": {"subnetIds": [world.subnet("a"), world.subnet("b")], "endpointPrivateAccess": True},
        "enabledClusterLogTypes": ["api", "audit"],
        "tags": {"a": "1"},
    }


def _group(world: World, size: int = 0) -> Tree:
    return {
        "clusterName": world.cluster,
        "nodeRoleArn": world.role("node-role", "ec2.amazonaws.com").outputs["arn"],
        "subnetIds": [world.subnet("a"), world.subnet("b")],
        "scalingConfig": {"desiredSize": size, "minSize": 0, "maxSize": 3},
        "instanceTypes": ["m5.large"],
        "labels": {"role": "worker"},
        "taints": [{"key": "gpu", "value": "true", "effect": "NO_SCHEDULE"}],
    }


def _identity(world: World, role: str) -> Tree:
    arn = world.role(role, "pods.eks.amazonaws.com").outputs["arn"]
    return {"clusterName": world.cluster, "namespace": "ns", "serviceAccount": "sa", "roleArn": arn}


def _access(world: World) -> Tree:
    return {"clusterName": world.cluster, "principalArn": f"arn:aws:iam::{ACCOUNT}:role/dev"}


def _association(world: World) -> Tree:
    entry = {"clusterName": world.cluster, "principalArn": f"arn:aws:iam::{ACCOUNT}:role/ops"}
    world.get("aws:eks/accessEntry:AccessEntry", "entry", **entry)
    policy_arn = "arn:aws:eks::aws:cluster-access-policy/AmazonEKSClusterAdminPolicy"
    return {**entry, "policyArn": policy_arn, "accessScope": {"type": "cluster"}}


def _rule(world: World) -> Tree:
    return {
        "type": "ingress",
        "securityGroupId": world.group(),
        "protocol": "tcp",
        "fromPort": 443,
        "toPort": 443,
        "cidrBlocks": ["10.0.0.0/16"],
        "description": "d",
    }


def _single(world: World) -> Tree:
    ports = {"ipProtocol": "tcp", "fromPort": 2049, "toPort": 2049}
    return {"securityGroupId": world.group(), **ports, "referencedSecurityGroupId": world.group("other")}


def _inline(cidr: str) -> Callable[[World], Tree]:
    rule = {"protocol": "tcp", "fromPort": 22, "toPort": 22, "cidrBlocks": [cidr], "description": "ssh"}
    out = {"protocol": "-1", "fromPort": 0, "toPort": 0, "cidrBlocks": ["0.0.0.0/0"]}
    return lambda world: {"vpcId": world.vpc, "ingress": [rule], "egress": [out], "tags": {"a": "1"}}


def _template(size: int) -> Callable[[World], Tree]:
    disk = {"deviceName": "/dev/xvda", "ebs": {"volumeSize": size, "encrypted": "true", "deleteOnTermination": "true"}}
    options = {"httpTokens": "required", "httpPutResponseHopLimit": 1, "httpEndpoint": "enabled"}
    tags = [{"resourceType": "instance", "tags": {"Name": "worker"}}]
    inputs = {"blockDeviceMappings": [disk], "metadataOptions": options, "tagSpecifications": tags}
    return lambda world: {**inputs, "updateDefaultVersion": True, "vpcSecurityGroupIds": [world.group()]}


def _point(path: str) -> Callable[[World], Tree]:
    user = {"uid": 1000, "gid": 1000}
    root = {"path": path, "creationInfo": {"ownerUid": 1000, "ownerGid": 1000, "permissions": "0755"}}
    return lambda world: {"fileSystemId": world.system, "posixUser": user, "rootDirectory": root}


def _target(world: World, *groups: str) -> Tree:
    system = world.get("aws:efs/fileSystem:FileSystem", "mounted", encrypted=True).id
    return {"fileSystemId": system, "subnetId": world.subnet(), "securityGroups": [world.group(g) for g in groups]}


def _table(world: World, cidr: str) -> Tree:
    return {"vpcId": world.vpc, "routes": [{"cidrBlock": cidr, "gatewayId": world.gateway}]}


def _setting(**inputs: Any) -> Callable[[World], Tree]:
    return lambda world: {"bucket": world.bucket(), **inputs}


def _fixed(name: str, **inputs: Any) -> Callable[[World], Tree]:
    """A setting on a bucket that both steps share."""
    return lambda world: {"bucket": world.get("aws:s3/bucket:Bucket", name, forceDestroy=True).id, **inputs}


def _encryption(algorithm: str) -> Tree:
    return {"rules": [{"applyServerSideEncryptionByDefault": {"sseAlgorithm": algorithm}, "bucketKeyEnabled": True}]}


def _lifecycle(days: int) -> Tree:
    parts = {"abortIncompleteMultipartUpload": {"daysAfterInitiation": days}, "filter": {"prefix": "logs/"}}
    return {"rules": [{"id": "r", "status": "Enabled", **parts, "noncurrentVersionExpiration": {"noncurrentDays": 30}}]}


def _bucket_policy(effect: str) -> str:
    statement = {"Effect": effect, "Principal": {"AWS": f"arn:aws:iam::{ACCOUNT}:root"}, "Action": "s3:GetObject"}
    return json.dumps({"Version": "2012-10-17", "Statement": [{**statement, "Resource": "arn:aws:s3:::x/*"}]})


def _mount_policy(action: str) -> str:
    statement = {"Effect": "Allow", "Principal": {"AWS": "*"}, "Action": f"elasticfilesystem:{action}", "Resource": "*"}
    return json.dumps({"Version": "2012-10-17", "Statement": [statement]})


def _blocks(value: bool) -> Tree:
    return dict.fromkeys(("blockPublicAcls", "blockPublicPolicy", "ignorePublicAcls", "restrictPublicBuckets"), value)


ROLE_TRUST, OTHER_TRUST = json.dumps(trust("ec2.amazonaws.com")), json.dumps(trust("eks.amazonaws.com"))

CASES = [
    Case(
        "aws:ec2/vpc:Vpc",
        lambda world: {"cidrBlock": "10.1.0.0/16", "tags": {"a": "1", "b": "2"}},
        lambda world: {"cidrBlock": "10.1.0.0/16", "enableDnsHostnames": True, "tags": {"a": "3"}},
        lambda world: {"cidrBlock": "10.2.0.0/16"},
    ),
    Case(
        "aws:ec2/subnet:Subnet",
        lambda world: {"vpcId": world.vpc, "cidrBlock": "10.0.1.0/24", "availabilityZone": "us-west-2a"},
        lambda world: {
            "vpcId": world.vpc,
            "cidrBlock": "10.0.1.0/24",
            "availabilityZone": "us-west-2a",
            "mapPublicIpOnLaunch": True,
            "tags": {"a": "1"},
        },
        lambda world: {"vpcId": world.vpc, "cidrBlock": "10.0.1.0/24", "availabilityZone": "us-west-2b"},
    ),
    Case(
        "aws:ec2/routeTable:RouteTable",
        lambda world: _table(world, "0.0.0.0/0"),
        lambda world: _table(world, "192.168.0.0/16"),
        lambda world: {"vpcId": world.fresh("aws:ec2/vpc:Vpc", cidrBlock="10.5.0.0/16").id},
    ),
    Case(
        "aws:ec2/route:Route",
        lambda world: {
            "routeTableId": world.table(),
            "destinationCidrBlock": "1.2.3.0/24",
            "gatewayId": world.gateway,
        },
        None,
        lambda world: {
            "routeTableId": world.table(),
            "destinationCidrBlock": "1.2.4.0/24",
            "gatewayId": world.gateway,
        },
        import_id=lambda route: f"{route.inputs['routeTableId']}_1.2.3.0/24",
    ),
    Case(
        "aws:ec2/routeTableAssociation:RouteTableAssociation",
        lambda world: {"routeTableId": world.table(), "subnetId": world.subnet()},
        lambda world: {"routeTableId": world.table("second"), "subnetId": world.subnet()},
        lambda world: {"routeTableId": world.table(), "subnetId": world.subnet("b")},
        import_id=lambda found: f"{found.inputs['subnetId']}/{found.inputs['routeTableId']}",
    ),
    Case(
        "aws:ec2/internetGateway:InternetGateway",
        lambda world: {"vpcId": world.fresh("aws:ec2/vpc:Vpc", cidrBlock="10.6.0.0/16").id},
        lambda world: {"vpcId": world.fresh("aws:ec2/vpc:Vpc", cidrBlock="10.7.0.0/16").id, "tags": {"a": "1"}},
    ),
    Case("aws:ec2/eip:Eip", lambda world: {"domain": "vpc"}, lambda world: {"domain": "vpc", "tags": {"a": "1"}}),
    Case(
        "aws:ec2/natGateway:NatGateway",
        lambda world: {"subnetId": world.subnet(), "allocationId": world.address()},
        lambda world: {"subnetId": world.subnet(), "allocationId": world.address(), "tags": {"a": "1"}},
        lambda world: {"subnetId": world.subnet("b"), "allocationId": world.address()},
    ),
    Case(
        "aws:ec2/vpcEndpoint:VpcEndpoint",
        lambda world: {
            "vpcId": world.vpc,
            "serviceName": "com.amazonaws.us-west-2.s3",
            "routeTableIds": [world.table()],
        },
        lambda world: {
            "vpcId": world.vpc,
            "serviceName": "com.amazonaws.us-west-2.s3",
            "routeTableIds": [world.table(), world.table("second")],
            "tags": {"a": "1"},
        },
        lambda world: {"vpcId": world.vpc, "serviceName": "com.amazonaws.us-west-2.dynamodb"},
    ),
    Case(
        "aws:ec2/flowLog:FlowLog",
        lambda world: {
            "vpcId": world.vpc,
            "trafficType": "REJECT",
            "logDestinationType": "s3",
            "logDestination": f"arn:aws:s3:::{world.get('aws:s3/bucket:Bucket', 'flows', forceDestroy=True).id}",
        },
        None,
        lambda world: {
            "vpcId": world.vpc,
            "trafficType": "ALL",
            "logDestinationType": "s3",
            "logDestination": f"arn:aws:s3:::{world.get('aws:s3/bucket:Bucket', 'flows', forceDestroy=True).id}",
        },
    ),
    Case(
        "aws:ec2/securityGroup:SecurityGroup",
        _inline("10.0.0.0/8"),
        _inline("10.0.0.0/16"),
        lambda world: {**_inline("10.0.0.0/8")(world), "description": "other"},
    ),
    Case(
        "aws:ec2/defaultSecurityGroup:DefaultSecurityGroup",
        lambda world: {"vpcId": world.get("aws:ec2/vpc:Vpc", "bare", cidrBlock="10.8.0.0/16").id},
        lambda world: {
            "vpcId": world.get("aws:ec2/vpc:Vpc", "bare", cidrBlock="10.8.0.0/16").id,
            "tags": {"a": "1"},
        },
    ),
    Case(
        "aws:ec2/securityGroupRule:SecurityGroupRule",
        _rule,
        lambda world: {**_rule(world), "description": "e"},
        lambda world: {**_rule(world), "toPort": 444},
        importable=False,
    ),
    Case(
        "aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule",
        lambda world: {**_single(world), "description": "nfs"},
        lambda world: {**_single(world), "description": "efs", "toPort": 2050, "tags": {"a": "1"}},
        lambda world: {**_single(world), "securityGroupId": world.group("other")},
    ),
    Case(
        "aws:vpc/securityGroupEgressRule:SecurityGroupEgressRule",
        lambda world: {"securityGroupId": world.group(), "ipProtocol": "-1", "cidrIpv4": "1.0.0.0/8"},
        lambda world: {"securityGroupId": world.group(), "ipProtocol": "-1", "cidrIpv4": "2.0.0.0/8"},
        lambda world: {"securityGroupId": world.group("other"), "ipProtocol": "-1", "cidrIpv4": "1.0.0.0/8"},
    ),
    Case(
        "aws:ec2/launchTemplate:LaunchTemplate",
        _template(50),
        _template(60),
        lambda world: {**_template(50)(world), "name": "other"},
        unread=words("updateDefaultVersion"),
    ),
    Case(
        "aws:efs/fileSystem:FileSystem",
        lambda world: {"encrypted": True, "lifecyclePolicies": [{"transitionToIa": "AFTER_30_DAYS"}]},
        lambda world: {"encrypted": True, "throughputMode": "elastic", "tags": {"Name": "x"}},
        lambda world: {"encrypted": False},
    ),
    Case(
        "aws:efs/mountTarget:MountTarget",
        lambda world: _target(world, "group"),
        lambda world: _target(world, "group", "other"),
        lambda world: {**_target(world, "group"), "subnetId": world.subnet("b")},
    ),
    Case(
        "aws:efs/accessPoint:AccessPoint",
        _point("/a"),
        lambda world: {**_point("/a")(world), "tags": {"a": "1"}},
        _point("/b"),
    ),
    Case(
        "aws:efs/fileSystemPolicy:FileSystemPolicy",
        lambda world: {"fileSystemId": world.system, "policy": _mount_policy("ClientMount")},
        lambda world: {"fileSystemId": world.system, "policy": _mount_policy("ClientWrite")},
    ),
    Case(
        "aws:efs/backupPolicy:BackupPolicy",
        lambda world: {"fileSystemId": world.system, "backupPolicy": {"status": "ENABLED"}},
        lambda world: {"fileSystemId": world.system, "backupPolicy": {"status": "DISABLED"}},
    ),
    Case(
        "aws:iam/role:Role",
        lambda world: {"assumeRolePolicy": ROLE_TRUST, "description": "d"},
        lambda world: {"assumeRolePolicy": OTHER_TRUST, "description": "e", "maxSessionDuration": 7200},
        lambda world: {"assumeRolePolicy": ROLE_TRUST, "description": "d", "path": "/x/"},
    ),
    Case(
        "aws:iam/policy:Policy",
        lambda world: {"policy": policy("s3:GetObject")},
        lambda world: {"policy": policy("s3:PutObject"), "tags": {"a": "1"}},
        lambda world: {"policy": policy("s3:GetObject"), "description": "new"},
    ),
    Case(
        "aws:iam/rolePolicy:RolePolicy",
        lambda world: {"role": world.role("inline", "ec2.amazonaws.com").id, "policy": policy("s3:GetObject")},
        lambda world: {"role": world.role("inline", "ec2.amazonaws.com").id, "policy": policy("s3:PutObject")},
        lambda world: {"role": world.role("second", "ec2.amazonaws.com").id, "policy": policy("s3:GetObject")},
    ),
    Case(
        "aws:iam/rolePolicyAttachment:RolePolicyAttachment",
        lambda world: {
            "role": world.role("attached", "ec2.amazonaws.com").id,
            "policyArn": world.get("aws:iam/policy:Policy", "attachable", policy=policy("s3:GetObject")).id,
        },
        None,
        lambda world: {
            "role": world.role("second", "ec2.amazonaws.com").id,
            "policyArn": world.get("aws:iam/policy:Policy", "attachable", policy=policy("s3:GetObject")).id,
        },
        import_id=lambda found: f"{found.inputs['role']}/{found.inputs['policyArn']}",
    ),
    Case(
        "aws:iam/instanceProfile:InstanceProfile",
        lambda world: {"role": world.role("profiled", "ec2.amazonaws.com").id},
        lambda world: {"role": world.role("second", "ec2.amazonaws.com").id, "tags": {"a": "1"}},
        lambda world: {"role": world.role("profiled", "ec2.amazonaws.com").id, "path": "/x/"},
    ),
    Case(
        "aws:iam/openIdConnectProvider:OpenIdConnectProvider",
        lambda world: {"url": "https://a.example", "clientIdLists": ["c"], "thumbprintLists": ["a" * 40]},
        lambda world: {"url": "https://a.example", "clientIdLists": ["c", "d"], "thumbprintLists": ["b" * 40]},
        lambda world: {"url": "https://b.example", "clientIdLists": ["c"], "thumbprintLists": ["a" * 40]},
    ),
    Case(
        "aws:kms/key:Key",
        lambda world: {"enableKeyRotation": True, "description": "d", "deletionWindowInDays": 7},
        lambda world: {"enableKeyRotation": False, "description": "e", "tags": {"a": "1"}},
        lambda world: {"keyUsage": "SIGN_VERIFY", "customerMasterKeySpec": "RSA_2048"},
        unread=words("deletionWindowInDays"),
    ),
    Case(
        "aws:kms/alias:Alias",
        lambda world: {"targetKeyId": world.key.id},
        lambda world: {"targetKeyId": world.fresh("aws:kms/key:Key").id},
        lambda world: {"targetKeyId": world.key.id, "name": "alias/other"},
    ),
    Case(
        "aws:cloudwatch/logGroup:LogGroup",
        lambda world: {"retentionInDays": 365},
        lambda world: {"retentionInDays": 0, "tags": {"a": "1"}},
        lambda world: {"retentionInDays": 365, "name": "/other"},
    ),
    Case(
        "aws:s3/bucket:Bucket",
        lambda world: {"tags": {"a": "1"}},
        lambda world: {"tags": {"b": "2"}, "forceDestroy": True},
        lambda world: {"bucket": "another-name-altogether"},
    ),
    Case("aws:s3/bucketV2:BucketV2", lambda world: {"tags": {"a": "1"}}, lambda world: {"tags": {"b": "2"}}),
    *(
        Case(
            token,
            _fixed("versioned", versioningConfiguration={"status": "Enabled"}),
            _fixed("versioned", versioningConfiguration={"status": "Suspended"}),
            _setting(versioningConfiguration={"status": "Enabled"}),
        )
        for token in ("aws:s3/bucketVersioning:BucketVersioning", "aws:s3/bucketVersioningV2:BucketVersioningV2")
    ),
    *(
        Case(token, _fixed("encrypted", **_encryption("AES256")), _fixed("encrypted", **_encryption("aws:kms")))
        for token in (
            "aws:s3/bucketServerSideEncryptionConfiguration:BucketServerSideEncryptionConfiguration",
            "aws:s3/bucketServerSideEncryptionConfigurationV2:BucketServerSideEncryptionConfigurationV2",
        )
    ),
    *(
        Case(token, _fixed("ruled", **_lifecycle(7)), _fixed("ruled", **_lifecycle(8)))
        for token in (
            "aws:s3/bucketLifecycleConfiguration:BucketLifecycleConfiguration",
            "aws:s3/bucketLifecycleConfigurationV2:BucketLifecycleConfigurationV2",
        )
    ),
    Case(
        "aws:s3/bucketPublicAccessBlock:BucketPublicAccessBlock",
        _fixed("blocked", **_blocks(True)),
        _fixed("blocked", **_blocks(False)),
    ),
    Case(
        "aws:s3/bucketOwnershipControls:BucketOwnershipControls",
        _fixed("owned", rule={"objectOwnership": "BucketOwnerEnforced"}),
        _fixed("owned", rule={"objectOwnership": "BucketOwnerPreferred"}),
    ),
    Case(
        "aws:s3/bucketPolicy:BucketPolicy",
        _fixed("guarded", policy=_bucket_policy("Allow")),
        _fixed("guarded", policy=_bucket_policy("Deny")),
    ),
    *(
        Case(
            token,
            _fixed("holder", key="k", content="one", contentType="text/plain"),
            _fixed("holder", key="k", source=pulumi.StringAsset("two"), tags={"a": "1"}),
            _fixed("holder", key="l", content="one"),
            importable=False,
        )
        for token in ("aws:s3/bucketObjectv2:BucketObjectv2", "aws:s3/bucketObject:BucketObject")
    ),
    Case(
        "aws:eks/cluster:Cluster",
        _cluster,
        lambda world: {**_cluster(world), "enabledClusterLogTypes": ["api"], "tags": {"b": "2"}},
        lambda world: {**_cluster(world), "kubernetesNetworkConfig": {"serviceIpv4Cidr": "10.100.0.0/16"}},
        importable=False,
    ),
    Case(
        "aws:eks/nodeGroup:NodeGroup",
        _group,
        lambda world: {**_group(world, 1), "labels": {"role": "other"}, "taints": []},
        lambda world: {**_group(world), "instanceTypes": ["t3.medium"]},
    ),
    Case(
        "aws:eks/addon:Addon",
        lambda world: {"clusterName": world.cluster, "addonName": "vpc-cni", "resolveConflictsOnCreate": "OVERWRITE"},
        lambda world: {
            "clusterName": world.cluster,
            "addonName": "vpc-cni",
            "configurationValues": json.dumps({"env": {"A": "1"}}),
            "tags": {"a": "1"},
        },
        lambda world: {"clusterName": world.cluster, "addonName": "kube-proxy"},
        unread=words("resolveConflictsOnCreate"),
    ),
    Case(
        "aws:eks/accessEntry:AccessEntry",
        _access,
        lambda world: {**_access(world), "kubernetesGroups": ["devs"], "tags": {"a": "1"}},
        lambda world: {**_access(world), "type": "EC2_LINUX"},
    ),
    Case(
        "aws:eks/accessPolicyAssociation:AccessPolicyAssociation",
        _association,
        None,
        lambda world: {**_association(world), "accessScope": {"type": "namespace", "namespaces": ["a"]}},
    ),
    Case(
        "aws:eks/podIdentityAssociation:PodIdentityAssociation",
        lambda world: _identity(world, "pods"),
        lambda world: _identity(world, "other-pods"),
        lambda world: {**_identity(world, "pods"), "serviceAccount": "other"},
        import_id=lambda found: f"{found.inputs['clusterName']},{found.id}",
    ),
]
