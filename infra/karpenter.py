"""What Karpenter needs of AWS: the roles of its controller and of its nodes, and the queue of interruption notices.

    access = KarpenterAccess(name, KarpenterAccessArgs(account, files.mount_policy), account.options())
    access.queue_name, access.node_role_name

As its documentation sets them up: https://karpenter.sh/v1.14/reference/cloudformation/
"""

from __future__ import annotations

import json
from dataclasses import dataclass

import pulumi
import pulumi_aws as aws

from infra import policies
from infra.account import Account
from infra.identity import Role, RoleArgs, make_role, write_policy
from infra.policies import karpenter
from infra.policies.roles import KARPENTER_NAMESPACE, KARPENTER_SERVICE_ACCOUNT, MOUNT

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
    """The account, and the policy with which the nodes mount the file system, if they need one."""

    account: Account
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
        self._cluster = args.account.stack.cluster_name
        self._child = pulumi.ResourceOptions(parent=self)
        nodes = self._node_role()
        if args.mount_policy is not None:
            write_policy(f"{name}-surge-node-{MOUNT}", MOUNT, nodes, args.mount_policy, self._child)
        queue = self._queue()
        self._controller(nodes, queue)
        self.queue_name = queue.name
        self.node_role_name = nodes.name
        self.register_outputs({"queueName": queue.name, "nodeRoleName": nodes.name})

    def _node_role(self) -> Role:
        name = f"{self._name}-surge-node"
        description = f"The nodes that Karpenter brings to {self._name}"
        role = make_role(name, RoleArgs(self._account, "surge-node", description), self._child)
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
        account = self._account
        senders = pulumi.Output.all(account.partition, account.id, queue.arn).apply(
            lambda found: policies.to_json(
                karpenter.queue(karpenter.Scope(found[0], account.region, found[1], self._cluster), found[2])
            )
        )
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

    def _controller(self, nodes: Role, queue: aws.sqs.Queue) -> None:
        name, named = f"{self._name}-karpenter", {"queue": queue.arn, "surge_node": nodes.arn}
        args = RoleArgs(self._account, "karpenter", f"Karpenter's controller of {self._name}", named)
        aws.eks.PodIdentityAssociation(
            name,
            cluster_name=self._cluster,
            namespace=KARPENTER_NAMESPACE,
            service_account=KARPENTER_SERVICE_ACCOUNT,
            role_arn=make_role(name, args, self._child).arn,
            tags={"Name": name},
            opts=self._child,
        )
