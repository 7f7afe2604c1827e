"""What Karpenter's controller may do, and who may send to its queue of interruption notices.

    policy = karpenter.controller(Scope("aws", "us-west-2", "123456789012", "lab"), uses)

The statements and their names are those of Karpenter 1.14's CloudFormation template,
https://karpenter.sh/v1.14/reference/cloudformation/, compared with the requests that its source sends
(`pkg/aws/sdk.go` lists all of them, `pkg/utils/utils.go` and `pkg/apis/v1/ec2nodeclass.go` the tags). Where they differ
from the template, they allow less, since this stack uses less:

- EC2 resources are those of this account, and instance profiles those of this cluster; the template says any.
- Capacity reservations are only those that the node class selects, in any account, since they can be shared. Placement
  groups are allowed only if it selects one.
- SSM parameters are those of the EKS images, which the alias `al2023@…` is looked up in.
- AllowZonalShiftStatusReadOnly is left out: zonal shift is off, as in the chart's defaults.
- Only EventBridge sends to the queue, and only for rules of this account.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import settings
from infra.policies.documents import Document, document

NODE_POOL = "karpenter.sh/nodepool"
NODE_CLASS = "karpenter.k8s.aws/ec2nodeclass"
CLUSTER_NAME = "eks:eks-cluster-name"
REGION = "topology.kubernetes.io/region"

EC2_PRINCIPALS = ["ec2.amazonaws.com", "ec2.amazonaws.com.cn"]
LAUNCHED = ("fleet", "instance", "volume", "network-interface", "launch-template", "spot-instances-request")
"""The resources that a launch makes. Each gets the cluster's tags."""


@dataclass(frozen=True)
class Scope:
    """The cluster, and where it is."""

    partition: str
    region: str
    account: str
    cluster: str

    def arn(self, service: str, resource: str) -> str:
        """Return an ARN in this account and region."""
        return f"arn:{self.partition}:{service}:{self.region}:{self.account}:{resource}"

    @property
    def cluster_arn(self) -> str:
        """The ARN of the cluster."""
        return self.arn("eks", f"cluster/{self.cluster}")

    def ec2(self, *kinds: str) -> list[str]:
        """Return the ARNs of all EC2 resources of these kinds in this account."""
        return [self.arn("ec2", f"{kind}/*") for kind in kinds]

    def public(self, *kinds: str) -> list[str]:
        """Return the ARNs of all EC2 resources of these kinds, which belong to no account: images and snapshots."""
        return [f"arn:{self.partition}:ec2:{self.region}::{kind}/*" for kind in kinds]

    @property
    def instance_profiles(self) -> list[str]:
        """The ARNs of the instance profiles that Karpenter makes for this cluster.

        Path and name are its own (`pkg/providers/instanceprofile`). A profile that doesn't exist is asked for by name.
        """
        profiles = f"arn:{self.partition}:iam::{self.account}:instance-profile"
        return [f"{profiles}/karpenter/{self.region}/{self.cluster}/*", f"{profiles}/{self.cluster}_*"]

    def owned(self, where: str) -> dict[str, str]:
        """Return the condition that the request (`RequestTag`) or resource (`ResourceTag`) has the cluster's tag."""
        return {f"aws:{where}/kubernetes.io/cluster/{self.cluster}": "owned"}

    def named(self, where: str) -> dict[str, str]:
        """Return the condition that it has the tag with the cluster's name."""
        return {f"aws:{where}/{CLUSTER_NAME}": self.cluster}

    def regional(self, where: str) -> dict[str, str]:
        """Return the condition that it has the tag with the region: instance profiles belong to no region."""
        return {f"aws:{where}/{REGION}": self.region}


@dataclass(frozen=True)
class Uses:
    """What the controller uses: the queue, and for its nodes a role, perhaps Spot Instances and a placement group."""

    queue_arn: str
    node_role_arn: str
    spot: bool
    placement_group: bool = False
    disk_key: str = ""
    """ARN of the customer's key of the nodes' disks, if there is one."""
    reservations: Sequence[str] = ()
    """Ids of the capacity reservations that the nodes may be in."""

    @classmethod
    def of(
        cls, pools: Sequence[settings.Pool], queue_arn: str, node_role_arn: str, *, placement_group: bool, disk_key: str
    ) -> Uses:
        """Return what the controller uses for the nodes of these pools."""
        spot = any(pool.capacity_type == "SPOT" for pool in pools)
        reservations = tuple(dict.fromkeys(each for pool in pools for each in pool.reservations))
        return cls(queue_arn, node_role_arn, spot, placement_group, disk_key, reservations)


def controller(scope: Scope, uses: Uses) -> Document:
    """Return the policy of Karpenter's controller."""
    return document(
        *_launches(scope, uses),
        *_tags(scope),
        _deletions(scope),
        *_look_ups(scope, uses),
        _allow(
            "AllowInterruptionQueueActions",
            ["sqs:DeleteMessage", "sqs:GetQueueUrl", "sqs:ReceiveMessage"],
            uses.queue_arn,
        ),
        _allow(
            "AllowPassingInstanceRole",
            "iam:PassRole",
            uses.node_role_arn,
            {"StringEquals": {"iam:PassedToService": EC2_PRINCIPALS}},
        ),
        *_instance_profiles(scope),
        *([_spot_role(scope)] if uses.spot else []),
        *(_disk_key(scope, uses.disk_key) if uses.disk_key else []),
    )


def _allow(
    sid: str, action: str | list[str], resource: str | list[str], condition: Mapping[str, object] | None = None
) -> Document:
    statement = {"Sid": sid, "Effect": "Allow", "Action": action, "Resource": resource}
    return {**statement, "Condition": condition} if condition else statement


def _any(*tags: str) -> dict[str, str]:
    return dict.fromkeys(tags, "*")


def _launches(scope: Scope, uses: Uses) -> list[Document]:
    launch = ["ec2:RunInstances", "ec2:CreateFleet"]
    group = ["placement-group"] if uses.placement_group else []
    reserved = [f"arn:{scope.partition}:ec2:{scope.region}:*:capacity-reservation/{each}" for each in uses.reservations]
    return [
        _allow(
            "AllowScopedEC2InstanceAccessActions",
            launch,
            [*scope.public("image", "snapshot"), *scope.ec2("security-group", "subnet", *group), *reserved],
        ),
        _allow(
            "AllowScopedEC2LaunchTemplateAccessActions",
            launch,
            scope.ec2("launch-template"),
            {"StringEquals": scope.owned("ResourceTag"), "StringLike": _any(f"aws:ResourceTag/{NODE_POOL}")},
        ),
        _allow(
            "AllowScopedEC2InstanceActionsWithTags",
            [*launch, "ec2:CreateLaunchTemplate"],
            scope.ec2(*LAUNCHED),
            {
                "StringEquals": scope.owned("RequestTag") | scope.named("RequestTag"),
                "StringLike": _any(f"aws:RequestTag/{NODE_POOL}"),
            },
        ),
    ]


def _tags(scope: Scope) -> list[Document]:
    return [
        _allow(
            "AllowScopedResourceCreationTagging",
            "ec2:CreateTags",
            scope.ec2(*LAUNCHED),
            {
                "StringEquals": {
                    **scope.owned("RequestTag"),
                    **scope.named("RequestTag"),
                    "ec2:CreateAction": ["RunInstances", "CreateFleet", "CreateLaunchTemplate"],
                },
                "StringLike": _any(f"aws:RequestTag/{NODE_POOL}"),
            },
        ),
        _allow(
            "AllowScopedResourceTagging",
            "ec2:CreateTags",
            scope.ec2("instance"),
            {
                "StringEquals": scope.owned("ResourceTag"),
                "StringLike": _any(f"aws:ResourceTag/{NODE_POOL}"),
                "StringEqualsIfExists": scope.named("RequestTag"),
                "ForAllValues:StringEquals": {"aws:TagKeys": [CLUSTER_NAME, "karpenter.sh/nodeclaim", "Name"]},
            },
        ),
    ]


def _deletions(scope: Scope) -> Document:
    return _allow(
        "AllowScopedDeletion",
        ["ec2:TerminateInstances", "ec2:DeleteLaunchTemplate"],
        scope.ec2("instance", "launch-template"),
        {"StringEquals": scope.owned("ResourceTag"), "StringLike": _any(f"aws:ResourceTag/{NODE_POOL}")},
    )


def _look_ups(scope: Scope, uses: Uses) -> list[Document]:
    images = f"arn:{scope.partition}:ssm:{scope.region}::parameter/aws/service/eks/optimized-ami/*"
    return [
        _allow(
            "AllowRegionalReadActions",
            [
                *(["ec2:DescribeCapacityReservations"] if uses.reservations else []),
                "ec2:DescribeImages",
                "ec2:DescribeInstances",
                "ec2:DescribeInstanceStatus",
                "ec2:DescribeInstanceTypeOfferings",
                "ec2:DescribeInstanceTypes",
                "ec2:DescribeLaunchTemplates",
                *(["ec2:DescribePlacementGroups"] if uses.placement_group else []),
                "ec2:DescribeSecurityGroups",
                "ec2:DescribeSpotPriceHistory",
                "ec2:DescribeSubnets",
            ],
            "*",  # EC2's Describe actions have no resources
            {"StringEquals": {"aws:RequestedRegion": scope.region}},
        ),
        _allow("AllowSSMReadActions", "ssm:GetParameter", images),
        _allow("AllowPricingReadActions", "pricing:GetProducts", "*"),  # nor has the price list
        _allow("AllowAPIServerEndpointDiscovery", "eks:DescribeCluster", scope.cluster_arn),
    ]


def _instance_profiles(scope: Scope) -> list[Document]:
    wanted = {**scope.owned("RequestTag"), **scope.named("RequestTag"), **scope.regional("RequestTag")}
    existing = {**scope.owned("ResourceTag"), **scope.regional("ResourceTag")}
    its_class, new_class = f"aws:ResourceTag/{NODE_CLASS}", f"aws:RequestTag/{NODE_CLASS}"
    profiles = scope.instance_profiles
    return [
        _allow(
            "AllowScopedInstanceProfileCreationActions",
            "iam:CreateInstanceProfile",
            profiles,
            {"StringEquals": wanted, "StringLike": _any(new_class)},
        ),
        _allow(
            "AllowScopedInstanceProfileTagActions",
            "iam:TagInstanceProfile",
            profiles,
            {"StringEquals": {**existing, **wanted}, "StringLike": _any(its_class, new_class)},
        ),
        _allow(
            "AllowScopedInstanceProfileActions",
            ["iam:AddRoleToInstanceProfile", "iam:RemoveRoleFromInstanceProfile", "iam:DeleteInstanceProfile"],
            profiles,
            {"StringEquals": existing, "StringLike": _any(its_class)},
        ),
        _allow("AllowInstanceProfileReadActions", "iam:GetInstanceProfile", profiles),
        _allow("AllowUnscopedInstanceProfileListAction", "iam:ListInstanceProfiles", "*"),  # it has no resources
    ]


def _spot_role(scope: Scope) -> Document:
    """Return the permission that the first Spot request of an account needs: EC2 then makes its service-linked role.

    Not in the template. https://karpenter.sh/v1.14/troubleshooting/#missing-service-linked-role
    """
    role = "aws-service-role/spot.amazonaws.com/AWSServiceRoleForEC2Spot"
    return _allow(
        "AllowSpotServiceLinkedRole",
        "iam:CreateServiceLinkedRole",
        f"arn:{scope.partition}:iam::{scope.account}:role/{role}",
        {"StringEquals": {"iam:AWSServiceName": "spot.amazonaws.com"}},
    )


def _disk_key(scope: Scope, arn: str) -> list[Document]:
    """Return what EC2 asks of who launches an instance with a disk that a customer's key encrypts.

    Not in the template: without it the instances end at once.
    https://karpenter.sh/v1.14/troubleshooting/#node-terminates-before-ready-on-failed-encrypted-ebs-volume
    """
    # The name has another ending in China.
    through_ec2 = {"StringLike": {"kms:ViaService": f"ec2.{scope.region}.amazonaws.com*"}}
    use = ["kms:Decrypt", "kms:DescribeKey", "kms:GenerateDataKeyWithoutPlaintext"]
    for_aws = {**through_ec2, "Bool": {"kms:GrantIsForAWSResource": "true"}}
    return [
        _allow("UseTheDiskKey", use, arn, through_ec2),
        _allow("GrantTheDiskKeyToVolumes", "kms:CreateGrant", arn, for_aws),
    ]


def queue(scope: Scope, queue_arn: str) -> Document:
    """Return the queue's policy: rules of this account send to it, and every request uses TLS.

    A stranger's rule that could send would let Karpenter end nodes with invented notices.
    https://docs.aws.amazon.com/eventbridge/latest/userguide/eb-use-resource-based.html
    """
    rules = scope.arn("events", "rule/*")
    return document(
        {
            "Sid": "RulesOfThisAccount",
            "Effect": "Allow",
            "Principal": {"Service": "events.amazonaws.com"},
            "Action": "sqs:SendMessage",
            "Resource": queue_arn,
            "Condition": {"ArnLike": {"aws:SourceArn": rules}},
        },
        {
            "Sid": "TlsOnly",
            "Effect": "Deny",
            "Principal": "*",
            "Action": "sqs:*",
            "Resource": queue_arn,
            "Condition": {"Bool": {"aws:SecureTransport": "false"}},
        },
    )
