"""Every key of `Pulumi.yaml`, with a value of a wrong type, out of its range, or in conflict with another key."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml

import settings
from tests import graph
from tests.infra.preflight.roles.given_roles import arns_for

KEYS: dict[str, dict[str, Any]] = yaml.safe_load((graph.ROOT / "Pulumi.yaml").read_text())["config"]

# What is no value of a type, by the type in `Pulumi.yaml`.
WRONG_TYPES: dict[str, list[Any]] = {
    "boolean": ["maybe", "", 1, [True], {"a": True}],
    "integer": ["three", "", 2.5, "2.5", True, [2], {"a": 2}],
    "string": [["a"], {"a": "b"}, True],
    "array": ["a", "", 2, True, {"a": "b"}, [2], [["a"]], [{"a": "b"}], [None]],
    "object": ["a", "", 2, True, ["a"], {"a": 2}, {"a": ["b"]}, {"a": None}],
}

LUSTRE = {"fileSystemId": "fs-0123456789abcdef0", "mountName": "abcdefgh"}
PROXY = "http://proxy.example.com:3128"
SECRET = "arn:aws:secretsmanager:{}:123456789012:secret:ecr-pullthroughcache/hub-AbCdEf"

# A value of the right type that is refused, and a part of the remedy. Booleans have no others.
OUT_OF_RANGE: dict[str, tuple[Any, str]] = {
    "region": ("west", "such as us-west-2"),
    "profile": ("my profile", "the name of an AWS profile"),
    "allowedAccountIds": (["12345678901"], "the 12 digits of an AWS account"),
    "permissionsBoundary": ("arn:aws:iam::123456789012:role/boundary", "must be the ARN of an IAM policy"),
    "rolePath": ("/teams/*/", "between slashes, as in /ml/"),
    "roleArns": ({"nodes": "arn:aws:iam::123456789012:role/x"}, "no role has this name; they are cluster, node, "),
    "tags": ({"aws:x": "y"}, "use another name"),
    "vpcCidr": ("10.0.0.0/24", "from /16 to /20, for example 10.0.0.0/16"),
    "availabilityZones": ("5", "from 2 to 4"),
    "natGateways": ("two", "single or perZone"),
    "vpcId": ("10.0.0.0/16", "such as vpc-0123456789abcdef0, or empty"),
    "privateSubnetIds": (["10.0.0.0/24"], "such as subnet-0123456789abcdef0"),
    "httpProxy": ("https://proxy.example.com:3128", "must be http://HOST:PORT, such as"),
    "noProxy": (["*.example.com"], "must be a name such as example.com, an IPv4 address, or a network"),
    "fileSystemId": ("nfs.example", "such as fs-0123456789abcdef0, or empty"),
    "lustre": ({"fileSystemId": "fs-01234567"}, "must have the keys fileSystemId and mountName, and no others"),
    "clusterName": ("my cluster", "the name of an EKS cluster, or empty"),
    "vpcFlowLogs": (2, "must be one of 0, 1, 3, "),
    "kubernetesVersion": ("1.21", " or "),
    "publicAccessCidrs": (["10.0.0.0/33"], "such as 10.0.0.0/16"),
    "adminArns": (["arn:aws:s3:::bucket"], "the ARN of an IAM role or user"),
    "teams": (["vision"], "must be an object with name and maxWorkers"),
    "fileAccess": ("nfs", "vpc or iam"),
    "logRetentionDays": (364, "must be one of 365, "),
    "systemInstanceTypes": (["m5"], "such as m5.large"),
    "systemNodes": (11, "from 1 to 10"),
    "workers": (1001, "(from minWorkers to maxWorkers)"),
    "sizeOwner": ("hpa", "pulumi or cluster"),
    "minWorkers": (-1, "from 0 to 1000"),
    "maxWorkers": (1001, "from 1 to 1000"),
    "surgeNodes": ("asg", "karpenter or nodegroup"),
    "surgeInstanceTypes": (["g5."], "such as m5.large"),
    "surgeMaxVcpus": (2001, "from 0 to 2000"),
    "maintenanceWindow": ("Sun 3:00", "such as Sun 03:00 4h"),
    "gpusPerWorker": (9, "from 0 to 8"),
    "workersPerNode": (0, "from 1 to 96"),
    "workersPerReplica": (0, "from 1 to 1000"),
    "instanceTypes": ([], "at least one entry"),
    "capacityReservationIds": (["cr-1*"], "such as cr-0123456789abcdef0"),
    "pools": (["big"], "must be an object with name, instanceTypes and maxNodes"),
    "capacityType": ("spot", "ON_DEMAND or SPOT"),
    "nodeImageVersion": ("latest", "such as v20260903"),
    "namespace": ("kube-system", "choose another name"),
    "jobName": ("a" * 41, "40 at most"),
    "etcdMembers": (2, "must be one of 1, 3"),
    "dataset": ("imagenet", "must be digits, or the s3://"),
    "trainingScript": ("train.sh", "the path of a .py file"),
    "trainingCode": ("no-such-folder", "is not a folder; give its path from the directory of Pulumi.yaml"),
    "trainingPackages": ("no-such.txt", "give its path from the directory of Pulumi.yaml"),
    "trainerArgs": ("--name 'x", "can't be split"),
    "trainerPolicyArns": (["arn:aws:iam::123456789012:role/reader"], "must be the ARN of an IAM policy"),
    "nodeDiskKeyArn": ("alias/aws/ebs", "must be the ARN of a KMS key, not of an alias"),
    "dataKeyArn": ("alias/aws/s3", "must be the ARN of a KMS key, not of an alias"),
    "datasetKeyArn": ("alias/aws/s3", "must be the ARN of a KMS key, not of an alias"),
    "checkpoints": ("/data/runs", "efs or s3 or both, or a folder on Lustre: /lustre/FOLDER"),
    "keepCheckpoints": (0, "from 1 to 1000"),
    "dockerHubSecret": ("arn:aws:secretsmanager:us-west-2:123456789012:secret:hub-AbCdEf", "ecr-pullthroughcache/"),
    "imageRegistry": ("https://registry.example.com", "such as registry.example.com/mirror, or empty"),
    "imagePullSecret": ("config.json", "must be the JSON of Docker's configuration, or empty"),
    "image": ("py torch", "a container image"),
    "fetchImage": ("", "a container image"),
    "etcdImage": ("-", "a container image"),
    "controllerImage": ("python 3", "a container image"),
    "karpenterImage": ("@", "a container image"),
    "workerZones": ("0", "the number of availabilityZones"),
    "coreNodes": ("some", "a number of nodes, or all"),
    "efaPluginImage": ("efa plugin", "a container image"),
    "updateStrategy": ("FORCE", "auto or DEFAULT or MINIMAL"),
    "diskGib": (49, "from 50 to 16384"),
    "diskIops": (2999, "from 3000 to 80000"),
    "diskThroughput": (2001, "from 125 to 2000"),
    "datasetStorage": ("ebs", "efs or s3"),
    "jobLogDays": (3651, "from 0 to 3650"),
    "datasetMinutes": (4, "from 5 to 1440"),
    "fileThroughput": (3415, "elastic, bursting or a number of MiB/s from 1 to 3414"),
    "devicePluginImage": ("", "a container image"),
    "monitoring": ("datadog", "none or prometheus or managed"),
    "prometheusImage": ("@", "a container image"),
    "gpuExporterImage": ("dcgm exporter", "a container image"),
    "karpenterCharts": ("https://charts.example", "an oci:// address or a folder"),
}

# Values that are right alone: the changes, the key that is refused, and what the remedy says of the other.
CONFLICTS: dict[str, tuple[dict[str, Any], str, str]] = {
    "more workers than the maximum": ({"workers": 5, "maxWorkers": 4}, "workers", "from minWorkers to maxWorkers"),
    "fewer workers than the minimum": ({"workers": 2, "minWorkers": 3}, "workers", "from minWorkers to maxWorkers"),
    "a maximum below the minimum": ({"minWorkers": 9}, "maxWorkers", "at least minWorkers, which is 9"),
    "no core with a node group": (
        {"minWorkers": 0, "surgeNodes": "nodegroup"},
        "minWorkers",
        "0 needs surgeNodes karpenter",
    ),
    "Spot with nothing above the core": (
        {"capacityType": "SPOT", "minWorkers": 2, "maxWorkers": 2},
        "capacityType",
        "raise maxWorkers, set ON_DEMAND, or set surgeNodes to nodegroup",
    ),
    "a way out for nodes that are no Spot nodes": (
        {"spotFallback": True},
        "spotFallback",
        "set capacityType to SPOT",
    ),
    "a way out for a node group, which has one market": (
        {"spotFallback": True, "capacityType": "SPOT", "surgeNodes": "nodegroup"},
        "spotFallback",
        "set surgeNodes to karpenter",
    ),
    "types of a surge that there is not": (
        {"surgeInstanceTypes": ["g5.xlarge"], "surgeNodes": "nodegroup"},
        "surgeInstanceTypes",
        "set surgeNodes to karpenter",
    ),
    "a limit for nodes of a list": (
        {"surgeMaxVcpus": 8, "surgeInstanceTypes": ["g5.xlarge"]},
        "surgeMaxVcpus",
        "has no effect with surgeInstanceTypes",
    ),
    "a limit for nodes that EKS brings": (
        {"surgeMaxVcpus": 8, "surgeNodes": "nodegroup"},
        "surgeMaxVcpus",
        "set surgeNodes to karpenter",
    ),
    "reservations for nodes that EKS brings": (
        {"capacityReservationIds": ["cr-0123456789abcdef0"], "surgeNodes": "nodegroup"},
        "capacityReservationIds",
        "set surgeNodes to karpenter",
    ),
    "a pool of nodes that EKS brings": (
        {
            "pools": [{"name": "big", "instanceTypes": ["p5.48xlarge"], "maxNodes": 2}],
            "surgeNodes": "nodegroup",
        },
        "pools",
        "set surgeNodes to karpenter",
    ),
    "a window for nodes that EKS replaces": (
        {"maintenanceWindow": "Sun 03:00 4h", "surgeNodes": "nodegroup"},
        "maintenanceWindow",
        "set surgeNodes to karpenter",
    ),
    "an API that is open to everyone": (
        {"publicAccessCidrs": ["0.0.0.0/0"]},
        "publicAccessCidrs",
        "set publicAccessFromAnywhere to true",
    ),
    "more zones for workers than there are": (
        {"workerZones": "3", "availabilityZones": "2"},
        "workerZones",
        "from 1 to 2, the number of availabilityZones",
    ),
    "a placement group over zones": (
        {"placementGroup": True, "workerZones": "2"},
        "placementGroup",
        "workerZones is 2; set it to 1",
    ),
    "more IOPS than the disk can have": ({"diskIops": 30_000, "diskGib": 50}, "diskIops", "raise diskGib"),
    "more members of etcd than nodes for them": (
        {"etcdMembers": 3, "systemNodes": 2},
        "etcdMembers",
        "set systemNodes to 3, or etcdMembers to 1",
    ),
    "a key for disks in another region": (
        {"nodeDiskKeyArn": "arn:aws:kms:eu-west-1:123456789012:key/1234abcd"},
        "nodeDiskKeyArn",
        "is in another region than the stack; EBS needs one in us-west-2",
    ),
    "a key for the stack's data in another region": (
        {"dataKeyArn": "arn:aws:kms:eu-west-1:123456789012:key/1234abcd"},
        "dataKeyArn",
        "is in another region than the stack; EFS, EKS and CloudWatch Logs need one in us-west-2",
    ),
    "given roles and a path for own ones": (
        {"roleArns": arns_for(), "rolePath": "/ml/"},
        "rolePath",
        "is for roles that the stack makes, and roleArns names all of them; remove it",
    ),
    "given roles and a boundary for own ones": (
        {"roleArns": arns_for(), "permissionsBoundary": "arn:aws:iam::123456789012:policy/boundary"},
        "permissionsBoundary",
        "is for roles that the stack makes, and roleArns names all of them; remove it",
    ),
    "given roles without that of flow logs": (
        {"roleArns": arns_for(), "vpcFlowLogs": 14},
        "roleArns",
        "lacks flow-logs; this config needs all of cluster, node, efs-csi, trainer, flow-logs, surge-node, karpenter",
    ),
    "given roles for Karpenter without it": (
        {"roleArns": arns_for(), "surgeNodes": "nodegroup"},
        "roleArns",
        "has no use for karpenter, surge-node; this config needs all of cluster, node, efs-csi, trainer, and no others",
    ),
    "a key for data that is not in S3": (
        {
            "datasetKeyArn": "arn:aws:kms:us-west-2:123456789012:key/1234abcd",
            "dataset": "https://pictures.example/a.zip",
        },
        "datasetKeyArn",
        "is for a dataset in S3; remove it",
    ),
    "a folder in S3 on the file system": ({"dataset": "s3://bucket/images/"}, "dataset", "set datasetStorage to s3"),
    "a dataset that is no folder in S3": (
        {"datasetStorage": "s3"},
        "datasetStorage",
        "needs a folder in S3 as dataset",
    ),
    "credentials for a cache that there is not": (
        {"dockerHubSecret": SECRET.format("us-west-2")},
        "dockerHubSecret",
        "set imageCache to true",
    ),
    "credentials in another region": (
        {"dockerHubSecret": SECRET.format("eu-west-1"), "imageCache": True},
        "dockerHubSecret",
        "ECR needs one in us-west-2",
    ),
    "a mirror and a cache": (
        {"imageRegistry": "registry.example.com", "imageCache": True},
        "imageRegistry",
        "imageCache is another; remove one of them",
    ),
    "subnets of no VPC": (
        {"privateSubnetIds": ["subnet-0000000000000000a", "subnet-0000000000000000b"]},
        "privateSubnetIds",
        "need vpcId, the VPC that they are in; set it too",
    ),
    "a proxy in no VPC": ({"httpProxy": PROXY}, "httpProxy", "needs vpcId and privateSubnetIds"),
    "no proxy at all": ({"noProxy": ["example.com"]}, "noProxy", "set httpProxy too, or remove it"),
    "a file system in no VPC": ({"fileSystemId": "fs-01234567"}, "fileSystemId", "needs vpcId and privateSubnetIds"),
    "a Lustre file system in no VPC": ({"lustre": LUSTRE}, "lustre", "needs vpcId and privateSubnetIds"),
    "a dataset on no Lustre file system": ({"dataset": "/lustre/images"}, "dataset", "none is named; set lustre too"),
    "checkpoints on no Lustre file system": (
        {"checkpoints": "/lustre/runs"},
        "checkpoints",
        "none is named; set lustre",
    ),
    "a cluster in no VPC": ({"clusterName": "platform"}, "clusterName", "needs vpcId and privateSubnetIds"),
    "zones of another region": (
        {"availabilityZones": "us-west-2a,us-west-2b", "region": "eu-west-1"},
        "availabilityZones",
        "not a zone of the region 'eu-west-1'",
    ),
}


def mistakes(changes: dict[str, Any]) -> list[str]:
    """Return what is wrong with a stack that sets only `changes`."""
    with pytest.raises(settings.ConfigurationError) as refused:
        graph.parsed(**changes)
    return list(refused.value.mistakes)


def key_of(mistake: str) -> str:
    """Return the key at fault."""
    return mistake.partition(" = ")[0].partition(".")[0]


@pytest.mark.parametrize(
    ("key", "value"),
    [
        pytest.param(key, value, id=f"{key}={value!r}")
        for key, entry in KEYS.items()
        for value in WRONG_TYPES[entry["type"]]
    ],
)
def test_a_value_of_a_wrong_type_is_one_mistake_with_the_remedy(key: str, value: Any) -> None:
    (mistake,) = mistakes({key: value})
    assert key_of(mistake) == key
    assert ": must be " in mistake


def test_every_key_has_a_range() -> None:
    assert OUT_OF_RANGE.keys() == {key for key, entry in KEYS.items() if entry["type"] != "boolean"}


@pytest.mark.parametrize("key", OUT_OF_RANGE)
def test_a_value_out_of_range_is_one_mistake_with_the_remedy(key: str) -> None:
    value, remedy = OUT_OF_RANGE[key]
    (mistake,) = mistakes({key: value})
    wrong = next(iter(value), value) if isinstance(value, list | dict) else value
    assert mistake.startswith(f"{key} = {json.dumps(wrong) if wrong in ('', []) else wrong}: ")
    assert remedy in mistake


@pytest.mark.parametrize(("changes", "key", "remedy"), CONFLICTS.values(), ids=CONFLICTS.keys())
def test_a_conflict_is_one_mistake_that_names_the_other_key(changes: dict[str, Any], key: str, remedy: str) -> None:
    for other, value in changes.items():
        if other != key and other not in ("minWorkers", "maxWorkers", "systemNodes"):
            graph.parsed(**{other: value})  # right alone
    (mistake,) = mistakes(changes)
    assert key_of(mistake) == key
    assert remedy in mistake


def test_a_mistake_in_every_key_is_told_at_once_and_each_once() -> None:
    everything = {key: value for key, (value, _) in OUT_OF_RANGE.items()}
    everything |= {key: "maybe" for key, entry in KEYS.items() if entry["type"] == "boolean"}
    found = mistakes(everything)
    assert sorted(key_of(each) for each in found) == sorted(KEYS)
    for each in found:
        key = key_of(each)
        assert OUT_OF_RANGE.get(key, (None, "must be true or false"))[1] in each


@pytest.mark.parametrize("number", range(5))
def test_wrong_types_in_every_key_are_told_at_once_and_each_once(number: int) -> None:
    wrong = {key: WRONG_TYPES[entry["type"]] for key, entry in KEYS.items()}
    found = mistakes({key: values[number % len(values)] for key, values in wrong.items()})
    assert sorted(key_of(each) for each in found) == sorted(KEYS)


@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        pytest.param({"diskIops": 90_000}, {"diskThroughput": 2000}, id="IOPS"),
        pytest.param({"diskGib": 10}, {"diskIops": 60_000}, id="size of the disk"),
        pytest.param({"systemNodes": 11}, {"etcdMembers": 3}, id="system nodes"),
        pytest.param({"minWorkers": 2000}, {"coreNodes": 1}, id="limits of the workers"),
    ],
)
def test_a_value_is_not_compared_with_one_that_is_wrong(wrong: dict[str, Any], right: dict[str, Any]) -> None:
    (mistake,) = mistakes({**wrong, **right})
    assert mistake.startswith(f"{next(iter(wrong))} = ")
