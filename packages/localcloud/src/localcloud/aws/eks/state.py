"""The clusters of this account. They are in the daemon's memory, like moto's state, and end with it.

The handlers of API calls and the reconciler share a `ClusterState` and change it under its lock. The values in it are
immutable and are replaced.
"""

from __future__ import annotations

import secrets
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any

from localcloud.aws import pages
from localcloud.aws.ec2 import Ec2
from localcloud.aws.eks.errors import in_use, invalid, not_found
from localcloud.aws.eks.machine import Addons, ControlPlane, Machine, Node
from localcloud.aws.eks.model import (
    AccessEntry,
    Addon,
    Association,
    Cluster,
    Creation,
    Json,
    NodeFailure,
    Nodegroup,
    Tags,
    Update,
    Worker,
)
from localcloud.aws.policy import Decision, Query, evaluate
from localcloud.aws.principals import Principals

MAX_RESULTS = 100
WORKERS = 16


@dataclass(kw_only=True)
class NodeSet:
    """The instances that are nodes and belong together, by their ids; times are on the monotonic clock."""

    workers: dict[str, Worker] = field(default_factory=dict)
    nodes: dict[str, Node] = field(default_factory=dict)
    launch_after: float = 0.0
    node_failure: NodeFailure | None = None
    """The last failure of a node that was not Ready before; None once all nodes are."""


@dataclass
class GroupState(NodeSet):
    """A node group and its nodes."""

    group: Nodegroup
    started_at: float
    """When the group was created, or its update began or last replaced a node."""
    launch_failure: str | None = None
    """Why the last launch of an instance failed; None after a launch."""
    update: str | None = None
    """The id of the update that replaces the nodes."""
    before: Nodegroup | None = None
    """The group before that update."""
    relabel: set[str] = field(default_factory=set)
    removed_labels: set[str] = field(default_factory=set)
    removed_taints: set[tuple[str, str]] = field(default_factory=set)


@dataclass
class ClusterState:
    """A cluster and everything in it."""

    cluster: Cluster
    creations: Mapping[tuple[str, str], Creation] = field(default_factory=dict)
    """The create and update calls, by operation and `clientRequestToken` (see `idempotency`)."""
    groups: dict[str, GroupState] = field(default_factory=dict)
    self_managed: NodeSet = field(default_factory=NodeSet)
    """The nodes on instances that EKS did not launch."""
    addons: dict[str, Addon] = field(default_factory=dict)
    entries: dict[str, AccessEntry] = field(default_factory=dict)
    associations: dict[str, Association] = field(default_factory=dict)
    updates: dict[str, Update] = field(default_factory=dict)
    plane: ControlPlane | None = None
    software: Addons | None = None
    installing: list[str] = field(default_factory=list)
    """The addons that are being installed, each as often as it was asked for."""
    removed_addons: set[str] = field(default_factory=set)
    lock: threading.RLock = field(default_factory=threading.RLock)
    wake: threading.Event = field(default_factory=threading.Event)
    stopping: bool = False

    def change(self, **changes: Any) -> Cluster:
        """Replace fields of the cluster."""
        self.cluster = replace(self.cluster, **changes)
        return self.cluster

    def node_sets(self) -> list[NodeSet]:
        """Return all nodes of the cluster."""
        return [*self.groups.values(), self.self_managed]

    def made(self) -> set[str]:
        """Return the updates' ids, and the ARNs of the cluster and its parts, except of those being deleted."""
        ending: list[Cluster | Nodegroup] = [self.cluster, *(member.group for member in list(self.groups.values()))]
        lasting: list[Addon | AccessEntry | Association] = [
            *self.addons.values(),
            *self.entries.values(),
            *self.associations.values(),
        ]
        return (
            {item.arn for item in ending if item.status != "DELETING"}
            | {item.arn for item in lasting}
            | {*self.updates}
        )


@dataclass(frozen=True)
class Settings:
    """The settings of EKS.

    Args:
        webhooks: `webhooks(kind, cluster)` returns the `localcloud.kube.Webhook` of `authenticate` or `pod-identity`.
        changed: Called after a control plane has started and before its cluster is ACTIVE, and after a deletion.
    """

    account: str
    region: str
    webhooks: Callable[[str, str], Any]
    changed: Callable[[Eks], None] = lambda eks: None


class Eks:
    """All clusters, with the interfaces to EC2, IAM and the machine."""

    def __init__(self, settings: Settings, ec2: Ec2, principals: Principals, machine: Machine) -> None:
        self.settings = settings
        self.ec2 = ec2
        self.principals = principals
        self.machine = machine
        self.clusters: dict[str, ClusterState] = {}
        self.lock = threading.RLock()
        self.creating = threading.Lock()
        self.launching = threading.RLock()
        """Held while a node group's instance is launched: other threads see it only once it belongs to the group."""
        self.reasons: dict[str, str] = {}
        """Why running instances with user data are no nodes, by their ids; each reason is logged once."""
        self.pool = ThreadPoolExecutor(WORKERS, thread_name_prefix="eks")

    def find(self, name: str) -> ClusterState:
        """Return the cluster with this name; raise the API's error if there is none."""
        with self.lock:
            state = self.clusters.get(name)
        if state is None:
            raise not_found(f"No cluster found for name: {name}.", clusterName=name)
        return state

    def find_active(self, name: str) -> ClusterState:
        """Return the cluster with this name; raise the API's error if there is none or it is not ACTIVE."""
        state = self.find(name)
        if state.cluster.status != "ACTIVE":
            raise in_use(f"Cluster '{name}' is not in ACTIVE status (it is {state.cluster.status})", clusterName=name)
        return state

    def arn(self, kind: str, *parts: str) -> str:
        """Return the ARN of an EKS resource of this account."""
        return f"arn:aws:eks:{self.settings.region}:{self.settings.account}:{kind}/{'/'.join(parts)}"

    def free_index(self) -> int:
        """Return the lowest number that no cluster has. A cluster's addresses and ports derive from its number."""
        taken = {state.cluster.index for state in self.clusters.values()}
        return next(number for number in range(256) if number not in taken)

    def check_role(
        self,
        arn: str,
        service: str,
        actions: tuple[str, ...],
        field_name: str,
        context: Mapping[str, tuple[str, ...]] | None = None,
    ) -> None:
        """Raise an EksError unless the role exists and trusts the service; `context` adds condition keys."""
        role = self.principals.role(arn)
        if role is None:
            raise invalid(
                f"{field_name}: Role with arn: {arn}, could not be assumed because it does not exist "
                "or the trusted entity is not correct"
            )
        for action in actions:
            question = Query(action, arn, {**self.trust_context(), **(context or {})}, (f"service:{service}",))
            if evaluate([role.trust], question) is not Decision.ALLOW:
                raise invalid(
                    f"{field_name}: Trust policy of role {arn} does not let {service} do {action}: "
                    f"add the principal {service} with the action {action}"
                )

    def trust_context(self) -> dict[str, tuple[str, ...]]:
        """Return the condition keys with which trust policies prevent the confused deputy problem."""
        return {
            "aws:sourceaccount": (self.settings.account,),
            "aws:sourcearn": (f"arn:aws:eks:{self.settings.region}:{self.settings.account}:cluster/any",),
        }

    def add_update(
        self,
        state: ClusterState,
        kind: str,
        params: Mapping[str, Any],
        *,
        nodegroup: str | None = None,
        addon: str | None = None,
    ) -> Update:
        """Record a change.

        As on EKS, the returned update is InProgress. The stored one is Successful already; a caller can replace it in
        `state.updates`.
        """
        listed = tuple({"type": name, "value": str(value)} for name, value in params.items())
        update = Update(str(uuid.uuid4()), kind, time.time(), listed, nodegroup=nodegroup, addon=addon)
        state.updates[update.id] = replace(update, status="Successful")
        return update


def new_id(length: int) -> str:
    """Return random lower-case hexadecimal digits."""
    return secrets.token_hex((length + 1) // 2)[:length]


def page(items: list[Any], params: Mapping[str, Any], key: str) -> Json:
    """Return one page of a list and the token for the next page."""
    token = params.get("nextToken")
    try:
        found, following = pages.page(items, token, int(params.get("maxResults") or MAX_RESULTS))
    except ValueError as error:
        raise invalid(
            f"nextToken {token!r} was not returned by this API: use the nextToken of the previous page"
        ) from error
    return {key: found, **({"nextToken": following} if following else {})}


def checked_tags(tags: Any) -> Tags:
    """Return the tags; raise the API's error if a key is reserved."""
    for name in tags or {}:
        if str(name).lower().startswith("aws:"):
            raise invalid(f"Tag key {name!r} is reserved: it must not start with aws:")
    return dict(tags or {})
