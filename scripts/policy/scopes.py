"""On which resources actions are allowed, and under which conditions. Pure.

What a statement may name is in https://docs.aws.amazon.com/service-authorization/latest/reference/ (one page for each
service): an action without a resource type there takes only `*`, and then the region is the condition.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

import settings
from infra.identity import AUTO_SCALING_PATH, AUTO_SCALING_ROLE
from infra.policies.roles import CLUSTER_POLICY, EFS_CSI_POLICY, NODE_POLICIES


class Scope(Enum):
    """A set of resources and conditions; each becomes one statement."""

    REGION = auto()
    """Actions that have no resources: what they read or make is in the stack's region."""
    EC2 = auto()
    """What EC2 has in this account and region."""
    EC2_OWN = auto()
    """What of it has the stack's tags."""
    EC2_TAGS = auto()
    """What is tagged while it is made."""
    EC2_DEFAULT_GROUP = auto()
    """The VPC's default group, which gets the stack's tags after EC2 has made it."""
    PLACEMENT = auto()
    CLUSTER = auto()
    ROLES = auto()
    NEW_ROLES = auto()
    ATTACHED = auto()
    PASSED = auto()
    BUCKET = auto()
    OBJECTS = auto()
    DATASET = auto()
    FILES = auto()
    KEY = auto()
    ALIAS = auto()
    DISK_KEY = auto()
    LOGS = auto()
    QUEUE = auto()
    RULES = auto()
    METRICS = auto()
    PARAMETERS = auto()
    SERVICE_ROLES = auto()
    AUTO_SCALING = auto()
    """The service-linked role to which the key of the nodes' disks is granted."""
    BOUNDARY = auto()


@dataclass(frozen=True)
class Place:
    """The stack's names, and where it is."""

    stack: settings.Settings
    account: str
    partition: str

    @classmethod
    def of(cls, stack: settings.Settings, account: str) -> Place:
        """Return the place of a stack in this account.

        https://docs.aws.amazon.com/IAM/latest/UserGuide/reference-arns.html
        """
        known = {"cn": "aws-cn", "us-gov": "aws-us-gov"}
        partition = next((name for begin, name in known.items() if stack.region.startswith(f"{begin}-")), "aws")
        return cls(stack, account, partition)

    def arn(self, service: str, resource: str) -> str:
        """Return an ARN in this account and region."""
        return f"arn:{self.partition}:{service}:{self.stack.region}:{self.account}:{resource}"

    def iam(self, resource: str, account: str | None = None) -> str:
        """Return an ARN of IAM, which has no regions."""
        return f"arn:{self.partition}:iam::{self.account if account is None else account}:{resource}"

    @property
    def roles(self) -> list[str]:
        """The ARNs of the stack's roles: those that are given, or a pattern, as Pulumi adds random digits to names."""
        given = self.stack.roles.arns
        return sorted(given.values()) or [self.iam(f"role{self.stack.roles.path}{self.stack.name}-*")]


Where = tuple[list[str], dict[str, Any]]
"""Resources and conditions, as in a statement."""


def where(scope: Scope, place: Place) -> Where:
    """Return the resources and the conditions of a scope."""
    stack, name = place.stack, place.stack.name
    here = {"StringEquals": {"aws:RequestedRegion": stack.region}}
    known: dict[Scope, Where] = {
        Scope.REGION: (["*"], here),
        Scope.EC2: ([place.arn("ec2", "*/*")], {}),
        Scope.EC2_OWN: ([place.arn("ec2", "*/*")], {"StringEquals": _tags(stack, "ResourceTag")}),
        Scope.EC2_TAGS: ([place.arn("ec2", "*/*")], {"Null": {"ec2:CreateAction": "false"}}),
        Scope.EC2_DEFAULT_GROUP: (
            [place.arn("ec2", "security-group/*")],
            {"StringEquals": _tags(stack, "RequestTag")},
        ),
        Scope.PLACEMENT: ([place.arn("ec2", f"placement-group/{name}-*")], {}),
        Scope.CLUSTER: (_cluster(place), {}),
        Scope.BUCKET: ([f"arn:{place.partition}:s3:::{name}-*"], {}),
        Scope.OBJECTS: ([f"arn:{place.partition}:s3:::{name}-*/*"], {}),
        Scope.DATASET: ([f"arn:{place.partition}:s3:::{_dataset_bucket(stack)}"], {}),
        Scope.FILES: (
            [
                place.arn("elasticfilesystem", kind)
                for kind in (f"file-system/{stack.file_system or '*'}", "access-point/*")
            ],
            {},
        ),
        Scope.KEY: ([stack.data_key or place.arn("kms", "key/*")], {}),
        Scope.ALIAS: ([place.arn("kms", f"alias/{name}")], {}),
        Scope.DISK_KEY: ([stack.node_disk_key], {}),
        Scope.BOUNDARY: ([stack.roles.boundary], {}),
        Scope.LOGS: (
            [place.arn("logs", f"log-group:/aws/{kind}") for kind in (f"eks/{name}/*", f"vpc/{name}", f"vpc/{name}:*")],
            {},
        ),
        Scope.QUEUE: ([place.arn("sqs", name)], {}),
        Scope.RULES: ([place.arn("events", f"rule/{name}-karpenter-*")], {}),
        Scope.METRICS: ([place.arn("aps", kind) for kind in ("workspace/*", "scraper/*", "rulegroupsnamespace/*")], {}),
        Scope.PARAMETERS: ([f"arn:{place.partition}:ssm:{stack.region}::parameter/aws/service/eks/*"], {}),
        **_identity(place),
    }
    return known[scope]


def _tags(stack: settings.Settings, kind: str) -> dict[str, str]:
    return {f"aws:{kind}/{key}": value for key, value in sorted(stack.own_tags.items())}


def _cluster(place: Place) -> list[str]:
    """Return the cluster and what is in it; of one that was there before, what the stack has in it.

    Of an association no ARN says more than its cluster:
    https://docs.aws.amazon.com/service-authorization/latest/reference/list_amazonelastickubernetesservice.html
    """
    name, own = place.stack.cluster_name, place.stack.name
    kinds = [f"{kind}/{name}/*" for kind in ("nodegroup", "addon", "access-entry", "podidentityassociation")]
    if place.stack.cluster.existing:
        given, paths = place.stack.roles.arns, {"/", place.stack.roles.path}
        entries = (
            [] if given else [f"access-entry/{name}/role/{place.account}{path}{own}-*/*" for path in sorted(paths)]
        )
        people = [arn for team in place.stack.teams for arn in team.user_arns]
        entries += sorted(
            {f"access-entry/{name}/{each}/*" for each in _principals([*place.stack.roles.of_nodes, *people])}
        )
        kinds = [f"nodegroup/{name}/{own}-*/*", f"addon/{name}/*", *entries, f"podidentityassociation/{name}/*"]
    return [place.arn("eks", kind) for kind in (f"cluster/{name}", *kinds)]


def _principals(arns: Iterable[str]) -> Iterator[str]:
    """Return roles and users as the ARNs of access entries name them; AWS doesn't say whether with their path."""
    for arn in arns:
        account, _, principal = arn.split(":", 4)[-1].partition(":")
        kind, _, path = principal.partition("/")
        yield from (f"{kind}/{account}/{path}", f"{kind}/{account}/{path.rpartition('/')[2]}")


def _dataset_bucket(stack: settings.Settings) -> str:
    return (stack.training.dataset.uri or "").removeprefix("s3://").partition("/")[0]


def _identity(place: Place) -> dict[Scope, Where]:
    """Return the scopes of IAM. A role is made only with the boundary, and only the stack's own policies are attached.

    https://docs.aws.amazon.com/IAM/latest/UserGuide/access_policies_boundaries.html#access_policies_boundaries-delegate
    """
    stack = place.stack
    bounded = {"StringEquals": {"iam:PermissionsBoundary": stack.roles.boundary}} if stack.roles.boundary else {}
    of_aws = (*NODE_POLICIES, EFS_CSI_POLICY, CLUSTER_POLICY)
    attached = [*(place.iam(f"policy/{each}", "aws") for each in of_aws), *stack.training.policy_arns]
    services = ["eks.amazonaws.com", "pods.eks.amazonaws.com", "vpc-flow-logs.amazonaws.com"]
    made = ["eks.amazonaws.com", "eks-nodegroup.amazonaws.com", "elasticfilesystem.amazonaws.com"]
    made += ["scraper.aps.amazonaws.com"] if stack.monitoring and stack.monitoring.managed else []
    return {
        Scope.ROLES: (place.roles, {}),
        Scope.NEW_ROLES: (place.roles, bounded),
        Scope.ATTACHED: (place.roles, {"ArnEquals": {"iam:PolicyARN": attached}}),
        Scope.PASSED: (place.roles, {"StringEquals": {"iam:PassedToService": services}}),
        Scope.AUTO_SCALING: ([place.iam(f"role/{AUTO_SCALING_PATH}/{AUTO_SCALING_ROLE}")], {}),
        Scope.SERVICE_ROLES: (
            [place.iam("role/aws-service-role/*")],
            {"StringEquals": {"iam:AWSServiceName": made}},
        ),
    }


SERVICES: Mapping[Scope, str] = {
    **dict.fromkeys((Scope.EC2, Scope.EC2_OWN, Scope.EC2_TAGS, Scope.EC2_DEFAULT_GROUP, Scope.PLACEMENT), "ec2"),
    **dict.fromkeys((Scope.ROLES, Scope.NEW_ROLES, Scope.ATTACHED, Scope.PASSED, Scope.BOUNDARY), "iam"),
    **dict.fromkeys((Scope.SERVICE_ROLES, Scope.AUTO_SCALING), "iam"),
    **dict.fromkeys((Scope.BUCKET, Scope.OBJECTS, Scope.DATASET), "s3"),
    **dict.fromkeys((Scope.KEY, Scope.ALIAS, Scope.DISK_KEY), "kms"),
    Scope.CLUSTER: "eks",
    Scope.FILES: "elasticfilesystem",
    Scope.LOGS: "logs",
    Scope.QUEUE: "sqs",
    Scope.RULES: "events",
    Scope.METRICS: "aps",
    Scope.PARAMETERS: "ssm",
}
"""Of the scopes that have only one."""
