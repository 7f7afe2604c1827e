"""The policy of Karpenter's controller, as its documentation has it, for the tests of what it may do here.

https://karpenter.sh/v1.14/reference/cloudformation/
"""

from __future__ import annotations

from typing import Any

from packages.localcloud.tests.aws.fakes import ACCOUNT, REGION

POOL = "karpenter.sh/nodepool"
CLASS = "karpenter.k8s.aws/ec2nodeclass"
NAME = "eks:eks-cluster-name"
LAUNCH = ["ec2:RunInstances", "ec2:CreateFleet"]
MADE = ("fleet", "instance", "volume", "network-interface", "launch-template", "spot-instances-request")
PROFILES = f"arn:aws:iam::{ACCOUNT}:instance-profile/*"


def owner(cluster: str) -> str:
    """Return the key of the tag that says to which cluster something belongs; its value is `owned`."""
    return f"kubernetes.io/cluster/{cluster}"


def policy(cluster: str, node_role: str, queue: str) -> dict[str, Any]:
    """Return the policy for a cluster, the name of its nodes' role, and its queue."""
    role, url = f"arn:aws:iam::{ACCOUNT}:role/{node_role}", f"arn:aws:sqs:{REGION}:{ACCOUNT}:{queue}"
    statements = [
        *_launches(cluster),
        *_profiles(cluster),
        _allow("ec2:Describe*", "*", StringEquals={"aws:RequestedRegion": REGION}),
        _allow("iam:PassRole", role, StringEquals={"iam:PassedToService": ["ec2.amazonaws.com"]}),
        _allow(["iam:GetInstanceProfile"], PROFILES),
        _allow("iam:ListInstanceProfiles", "*"),
        _allow(["sqs:GetQueueUrl", "sqs:ReceiveMessage", "sqs:DeleteMessage"], url),
        _allow("ssm:GetParameter", f"arn:aws:ssm:{REGION}::parameter/aws/service/*"),
        _allow("pricing:GetProducts", "*"),
        _allow("eks:DescribeCluster", f"arn:aws:eks:{REGION}:{ACCOUNT}:cluster/{cluster}"),
    ]
    return {"Version": "2012-10-17", "Statement": statements}


def _launches(cluster: str) -> list[dict[str, Any]]:
    creating = _owned(cluster, "RequestTag")
    creating["StringEquals"] |= {"ec2:CreateAction": ["RunInstances", "CreateFleet", "CreateLaunchTemplate"]}
    naming = {
        **_owned(cluster, "ResourceTag"),
        "StringEqualsIfExists": {f"aws:RequestTag/{NAME}": cluster},
        "ForAllValues:StringEquals": {"aws:TagKeys": [NAME, "karpenter.sh/nodeclaim", "Name"]},
    }
    ends = ["ec2:TerminateInstances", "ec2:DeleteLaunchTemplate"]
    return [
        _allow(LAUNCH, [f"arn:aws:ec2:{REGION}::image/*", *_arns("security-group", "subnet")]),
        _allow(LAUNCH, _arns("launch-template"), **_owned(cluster, "ResourceTag")),
        _allow([*LAUNCH, "ec2:CreateLaunchTemplate"], _arns(*MADE), **_owned(cluster, "RequestTag")),
        _allow("ec2:CreateTags", _arns(*MADE), **creating),
        _allow("ec2:CreateTags", _arns("instance"), **naming),
        _allow(ends, _arns("instance", "launch-template"), **_owned(cluster, "ResourceTag")),
    ]


def _profiles(cluster: str) -> list[dict[str, Any]]:
    def owned(where: str) -> dict[str, Any]:
        return {f"aws:{where}/{owner(cluster)}": "owned", f"aws:{where}/topology.kubernetes.io/region": REGION}

    changes = ["AddRoleToInstanceProfile", "RemoveRoleFromInstanceProfile", "DeleteInstanceProfile"]
    known = {"StringEquals": owned("ResourceTag"), "StringLike": {f"aws:ResourceTag/{CLASS}": "*"}}
    new = {"StringEquals": owned("RequestTag"), "StringLike": {f"aws:RequestTag/{CLASS}": "*"}}
    return [
        _allow("iam:CreateInstanceProfile", PROFILES, **new),
        _allow([f"iam:{name}" for name in changes], PROFILES, **known),
    ]


def _owned(cluster: str, where: str) -> dict[str, Any]:
    equal = {f"aws:{where}/{owner(cluster)}": "owned"}
    return {"StringEquals": equal, "StringLike": {f"aws:{where}/{POOL}": "*"}}


def _arns(*kinds: str) -> list[str]:
    return [f"arn:aws:ec2:{REGION}:*:{kind}/*" for kind in kinds]


def _allow(action: Any, resource: Any, **condition: Any) -> dict[str, Any]:
    found = {"Effect": "Allow", "Action": action, "Resource": resource}
    return {**found, "Condition": condition} if condition else found
