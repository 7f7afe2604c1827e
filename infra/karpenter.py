"""What Karpenter needs of AWS: the roles of its controller and of its nodes, and the queue of interruption notices.

    access = KarpenterAccess(name, KarpenterAccessArgs(account, stack.cluster_name, stack.brought), account.options())
    access.queue_name, access.node_role_name

As its documentation sets them up: https://karpenter.sh/v1.14/reference/cloudformation/
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pulumi
import pulumi_aws as aws

import settings
from infra import policies
from infra.account import Account
from infra.identity import NodeRoleArgs, make_node_role, make_role, pods_trust, write_policy
from infra.policies import karpenter

NAMESPACE = "kube-system"
"""Where Karpenter's documentation installs it: the API server serves this namespace's requests before others'."""

SERVICE_ACCOUNT = "karpenter"
"""The service account of the chart's controller."""

RETENTION_SECONDS = 300
"""A notice that is older has no use: a Spot Instance has ended two minutes after its notice."""

EVENTS: dict[str, tuple[str, str]] = {
    "spot": ("aws.ec2", "EC2 Spot Instance Interruption Warning"),
    "rebalance": ("aws.ec2", "EC2 Instance Rebalance Recommendation"),
    "state-change": ("aws.ec2", "EC2 Instance State-change Notification"),
    "health": ("aws.health", "AWS Health Event"),
    "reservation": ("aws.ec2", "EC2 Capacity Reservation Instance Interruption Warning"),
}
"""Source and type of the events that Karpenter reads: `pkg/controllers/interruption/messages` of its source."""


@dataclass(frozen=True)
class KarpenterAccessArgs:
    """The account, the cluster's name, the pools that Karpenter brings, whether their nodes are in a placement group
    and pull through ECR, the ARN of the customer's key of their disks, if there is one, and the policy with which they
    mount the file system, if they need one."""

    account: Account
    cluster: str
    pools: Sequence[settings.Pool]
    placement_group: bool = False
    image_cache: bool = False
    disk_key: str = ""
    mount_policy: pulumi.Input[str] | None = None


class KarpenterAccess(pulumi.ComponentResource):
    """Roles, pod identity, access entry and queue of the stack that the component is named after.

    Karpenter depends on the whole component, and so does every node that it brings: they come after all of it and are
    gone before any of it.
    """

    queue_name: pulumi.Output[str]
    node_role_name: pulumi.Output[str]

    def __init__(self, name: str, args: KarpenterAccessArgs, opts: pulumi.ResourceOptions) -> None:
        super().__init__("tidewater:infra:KarpenterAccess", name, None, opts)
        self._name = name
        self._account = args.account
        self._cluster = args.cluster
        self._child = pulumi.ResourceOptions(parent=self)
        nodes = self._node_role(image_cache=args.image_cache)
        if args.mount_policy is not None:
            write_policy(f"{name}-surge-node", "mount", nodes.name, args.mount_policy, self._child)
        queue = self._queue()
        self._controller(nodes.arn, queue.arn, args)
        self.queue_name = queue.name
        self.node_role_name = nodes.name
        self.register_outputs({"queueName": queue.name, "nodeRoleName": nodes.name})

    def _node_role(self, *, image_cache: bool) -> aws.iam.Role:
        name = f"{self._name}-surge-node"
        description = f"The nodes that Karpenter brings to {self._name}"
        role = make_node_role(name, NodeRoleArgs(self._name, description, self._account, image_cache), self._child)
        # EKS makes the entry for the roles of its own node groups only.
        aws.eks.AccessEntry(
            name,
            cluster_name=self._cluster,
            principal_arn=role.arn,
            type="EC2_LINUX",
            tags={"Name": name},
            opts=self._child,
        )
        return role

    def _queue(self) -> aws.sqs.Queue:
        queue = aws.sqs.Queue(
            self._name,
            name=self._name,
            message_retention_seconds=RETENTION_SECONDS,
            sqs_managed_sse_enabled=True,
            tags={"Name": self._name},
            opts=self._child,
        )
        senders = self._document(lambda scope, arns: karpenter.queue(scope, arns[0]), queue.arn)
        policy = aws.sqs.QueuePolicy(self._name, queue_url=queue.url, policy=senders, opts=self._child)
        for label, (source, type_) in EVENTS.items():
            name = f"{self._name}-karpenter-{label}"
            rule = aws.cloudwatch.EventRule(
                name,
                description=f"{type_}s for Karpenter",
                event_pattern=json.dumps({"source": [source], "detail-type": [type_]}),
                tags={"Name": name},
                opts=self._child,
            )
            aws.cloudwatch.EventTarget(
                name,
                rule=rule.name,
                arn=queue.arn,
                target_id="queue",
                # Events that the queue refuses are lost.
                opts=pulumi.ResourceOptions(parent=self, depends_on=[policy]),
            )
        return queue

    def _controller(
        self, node_role_arn: pulumi.Output[str], queue_arn: pulumi.Output[str], args: KarpenterAccessArgs
    ) -> None:
        name = f"{self._name}-karpenter"
        trust = pods_trust(self._cluster, self._account, NAMESPACE, SERVICE_ACCOUNT)
        role = make_role(name, f"Karpenter's controller of {self._name}", trust, (), self._account, self._child)

        def document(scope: karpenter.Scope, found: list[str]) -> policies.Document:
            uses = karpenter.Uses.of(args.pools, *found, placement_group=args.placement_group, disk_key=args.disk_key)
            return karpenter.controller(scope, uses)

        policy = self._document(document, queue_arn, node_role_arn)
        write_policy(self._name, "karpenter", role.name, policy, self._child)
        aws.eks.PodIdentityAssociation(
            name,
            cluster_name=self._cluster,
            namespace=NAMESPACE,
            service_account=SERVICE_ACCOUNT,
            role_arn=role.arn,
            tags={"Name": name},
            opts=self._child,
        )

    def _document(
        self, document: Callable[[karpenter.Scope, list[str]], policies.Document], *arns: pulumi.Output[str]
    ) -> pulumi.Output[str]:
        """Return the JSON of `document`, a function of the cluster's scope and the ARNs."""
        account = self._account

        def text(found: list[str]) -> str:
            scope = karpenter.Scope(found[1], account.region, found[0], self._cluster)
            return policies.to_json(document(scope, found[2:]))

        return pulumi.Output.all(account.id, account.partition, *arns).apply(text)
