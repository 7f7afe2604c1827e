"""A case per resource type: inputs, a change in place, and a change that replaces."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pulumi
from localcloud.standins.aws.entry import words

from packages.localcloud.tests.aws.fakes import ACCOUNT, trust
from packages.localcloud.tests.standins.aws.cases_ec2 import EC2_CASES
from packages.localcloud.tests.standins.aws.world import Case, Tree, World, cluster_inputs, policy


def group_inputs(world: World, size: int = 0) -> Tree:
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


def _point(path: str) -> Callable[[World], Tree]:
    user = {"uid": 1000, "gid": 1000}
    root = {"path": path, "creationInfo": {"ownerUid": 1000, "ownerGid": 1000, "permissions": "0755"}}
    return lambda world: {"fileSystemId": world.system, "posixUser": user, "rootDirectory": root}


def _target(world: World, *groups: str) -> Tree:
    system = world.get("aws:efs/fileSystem:FileSystem", "mounted", encrypted=True).id
    return {"fileSystemId": system, "subnetId": world.subnet(), "securityGroups": [world.group(g) for g in groups]}


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


def _pattern(*types: str) -> str:
    return json.dumps({"source": ["aws.ec2"], "detail-type": list(types)})


def _grant(world: World, *operations: str) -> Tree:
    role = world.role("granted", "ec2.amazonaws.com").outputs["arn"]
    return {"keyId": world.key.outputs["arn"], "granteePrincipal": role, "operations": list(operations)}


def _queue_policy(world: World, effect: str, name: str = "policed") -> Tree:
    queue = world.get("aws:sqs/queue:Queue", name).outputs
    service = {"Service": "events.amazonaws.com"}
    statement = {"Effect": effect, "Principal": service, "Action": "sqs:SendMessage", "Resource": queue["arn"]}
    document = {"Version": "2012-10-17", "Statement": [statement]}
    return {"queueUrl": queue["url"], "policy": json.dumps(document)}


def _event_target(world: World, rule: str = "aimed", queue: str = "hit") -> Tree:
    made = world.get("aws:cloudwatch/eventRule:EventRule", rule, eventPattern=_pattern("x"))
    return {
        "rule": made.outputs["name"],
        "arn": world.get("aws:sqs/queue:Queue", queue).outputs["arn"],
        "targetId": "queue",
    }


def _cache_rule(world: World, secret: str) -> Tree:
    return {
        "ecrRepositoryPrefix": "stack/hub",
        "upstreamRegistryUrl": "registry-1.docker.io",
        "credentialArn": world.secret(f"ecr-pullthroughcache/{secret}"),
    }


MANAGED = "arn:aws:iam::aws:policy/AmazonS3ReadOnlyAccess"
ROLE_TRUST, OTHER_TRUST = json.dumps(trust("ec2.amazonaws.com")), json.dumps(trust("eks.amazonaws.com"))


CASES = [
    *EC2_CASES,
    Case(
        "aws:ecr/pullThroughCacheRule:PullThroughCacheRule",
        lambda world: _cache_rule(world, "one"),
        lambda world: _cache_rule(world, "two"),
        lambda world: {**_cache_rule(world, "one"), "ecrRepositoryPrefix": "stack/other"},
    ),
    Case(
        "aws:efs/fileSystem:FileSystem",
        lambda world: {"encrypted": True},
        lambda world: {"encrypted": True, "throughputMode": "elastic", "tags": {"Name": "x"}},
        lambda world: {"encrypted": False},
    ),
    Case(
        "aws:efs/fileSystem:FileSystem",
        lambda world: {"encrypted": True, "throughputMode": "provisioned", "provisionedThroughputInMibps": 100},
        lambda world: {"encrypted": True, "throughputMode": "provisioned", "provisionedThroughputInMibps": 200},
        lambda world: {"encrypted": False, "throughputMode": "elastic"},
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
    ),
    Case(
        "aws:iam/role:Role",
        lambda world: {"assumeRolePolicy": ROLE_TRUST, "description": "d"},
        lambda world: {
            "assumeRolePolicy": OTHER_TRUST,
            "description": "e",
            "maxSessionDuration": 7200,
            "permissionsBoundary": MANAGED,
        },
        lambda world: {"assumeRolePolicy": ROLE_TRUST, "description": "d", "path": "/x/"},
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
            "policyArn": MANAGED,
        },
        None,
        lambda world: {
            "role": world.role("second", "ec2.amazonaws.com").id,
            "policyArn": MANAGED,
        },
        import_id=lambda found: f"{found.inputs['role']}/{found.inputs['policyArn']}",
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
        "aws:kms/grant:Grant",
        lambda world: _grant(world, "Decrypt", "DescribeKey"),
        None,
        lambda world: _grant(world, "Decrypt"),
    ),
    Case(
        "aws:cloudwatch/logGroup:LogGroup",
        lambda world: {"retentionInDays": 365},
        lambda world: {"retentionInDays": 0, "tags": {"a": "1"}},
        lambda world: {"retentionInDays": 365, "name": "/other"},
    ),
    Case(
        "aws:sqs/queue:Queue",
        lambda world: {"messageRetentionSeconds": 300, "sqsManagedSseEnabled": True, "tags": {"a": "1"}},
        lambda world: {"messageRetentionSeconds": 600, "sqsManagedSseEnabled": False, "tags": {"b": "2"}},
        lambda world: {"messageRetentionSeconds": 300, "sqsManagedSseEnabled": True, "name": "other"},
    ),
    Case(
        "aws:sqs/queuePolicy:QueuePolicy",
        lambda world: _queue_policy(world, "Allow"),
        lambda world: _queue_policy(world, "Deny"),
        lambda world: _queue_policy(world, "Allow", "other-policed"),
    ),
    Case(
        "aws:cloudwatch/eventRule:EventRule",
        lambda world: {"eventPattern": _pattern("a"), "description": "d"},
        lambda world: {"eventPattern": _pattern("a", "b"), "description": "e", "state": "DISABLED", "tags": {"a": "1"}},
        lambda world: {"eventPattern": _pattern("a"), "description": "d", "name": "other"},
    ),
    Case(
        "aws:cloudwatch/eventTarget:EventTarget",
        _event_target,
        lambda world: _event_target(world, queue="other-hit"),
        lambda world: _event_target(world, rule="other-aimed"),
        import_id=lambda found: f"{found.inputs['rule']}/{found.inputs['targetId']}",
    ),
    Case(
        "aws:s3/bucket:Bucket",
        lambda world: {"tags": {"a": "1"}},
        lambda world: {"tags": {"b": "2"}, "forceDestroy": True},
        lambda world: {"bucket": "another-name-altogether"},
    ),
    Case(
        "aws:s3/bucketVersioning:BucketVersioning",
        _fixed("versioned", versioningConfiguration={"status": "Enabled"}),
        _fixed("versioned", versioningConfiguration={"status": "Suspended"}),
        _setting(versioningConfiguration={"status": "Enabled"}),
    ),
    Case(
        "aws:s3/bucketServerSideEncryptionConfiguration:BucketServerSideEncryptionConfiguration",
        _fixed("encrypted", **_encryption("AES256")),
        _fixed("encrypted", **_encryption("aws:kms")),
    ),
    Case(
        "aws:s3/bucketLifecycleConfiguration:BucketLifecycleConfiguration",
        _fixed("ruled", **_lifecycle(7)),
        _fixed("ruled", **_lifecycle(8)),
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
    Case(
        "aws:s3/bucketObjectv2:BucketObjectv2",
        _fixed("holder", key="k", source=pulumi.StringAsset("one"), contentType="text/plain"),
        _fixed("holder", key="k", source=pulumi.StringAsset("two"), tags={"a": "1"}),
        _fixed("holder", key="l", source=pulumi.StringAsset("one")),
        importable=False,
    ),
    Case(
        "aws:eks/cluster:Cluster",
        cluster_inputs,
        lambda world: {**cluster_inputs(world), "enabledClusterLogTypes": ["api"], "tags": {"b": "2"}},
        lambda world: {**cluster_inputs(world), "kubernetesNetworkConfig": {"serviceIpv4Cidr": "10.100.0.0/16"}},
        importable=False,
    ),
    Case(
        "aws:eks/nodeGroup:NodeGroup",
        group_inputs,
        lambda world: {**group_inputs(world, 1), "labels": {"role": "other"}, "taints": []},
        lambda world: {**group_inputs(world), "instanceTypes": ["t3.medium"]},
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
