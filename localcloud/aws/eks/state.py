"""The clusters of this account while the daemon runs; killing the daemon empties the account, as it does moto's.

Handlers of API calls and the reconciler share a `ClusterState` under its lock; what is inside it are values that are
replaced, never changed.
"""

from __future__ import annotations

import base64
import secrets
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any

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
    Nodegroup,
    Tags,
    Update,
    Worker,
)
from localcloud.aws.policy import Decision, Query, evaluate
from localcloud.aws.principals import Principals

MAX_RESULTS = 100
WORKERS = 16


@dataclass
class GroupState:
    """A node group and its nodes; times are on the monotonic clock."""

    group: Nodegroup
    started_at: float
    workers: dict[str, Worker] = field(default_factory=dict)
    nodes: dict[str, Node] = field(default_factory=dict)
    launch_after: float = 0.0
    relabel: set[str] = field(default_factory=set)
    removed_labels: set[str] = field(default_factory=set)
    removed_taints: set[tuple[str, str]] = field(default_factory=set)


@dataclass
class ClusterState:
    """A cluster and everything in it."""

    cluster: Cluster
    creations: Mapping[tuple[str, str], Creation] = field(default_factory=dict)
    """The calls that made it and what is in it, by operation and `clientRequestToken` (see `idempotency`)."""
    groups: dict[str, GroupState] = field(default_factory=dict)
    addons: dict[str, Addon] = field(default_factory=dict)
    entries: dict[str, AccessEntry] = field(default_factory=dict)
    associations: dict[str, Association] = field(default_factory=dict)
    updates: dict[str, Update] = field(default_factory=dict)
    plane: ControlPlane | None = None
    software: Addons | None = None
    removed_addons: set[str] = field(default_factory=set)
    lock: threading.RLock = field(default_factory=threading.RLock)
    wake: threading.Event = field(default_factory=threading.Event)
    stopping: bool = False

    def change(self, **changes: Any) -> Cluster:
        """Replace fields of the cluster."""
        self.cluster = replace(self.cluster, **changes)
        return self.cluster

    def arns(self) -> set[str]:
        """The ARNs of the cluster and of what is in it, except what is being deleted."""
        ending: list[Cluster | Nodegroup] = [self.cluster, *(member.group for member in list(self.groups.values()))]
        lasting: list[Addon | AccessEntry | Association] = [
            *self.addons.values(),
            *self.entries.values(),
            *self.associations.values(),
        ]
        return {item.arn for item in ending if item.status != "DELETING"} | {item.arn for item in lasting}


@dataclass(frozen=True)
class Settings:
    """What EKS is told at start.

    Args:
        webhooks: `webhooks(kind, cluster)` is the `localcloud.kube.Webhook` of `authenticate` or `pod-identity`.
        changed: Called after a control plane has started, before its cluster is ACTIVE, and after one was deleted.
    """

    account: str
    region: str
    webhooks: Callable[[str, str], Any]
    changed: Callable[[Eks], None] = lambda eks: None


class Eks:
    """All clusters, and the seams to what they are made of."""

    def __init__(self, settings: Settings, ec2: Ec2, principals: Principals, machine: Machine) -> None:
        self.settings = settings
        self.ec2 = ec2
        self.principals = principals
        self.machine = machine
        self.clusters: dict[str, ClusterState] = {}
        self.lock = threading.RLock()
        self.creating = threading.Lock()
        self.pool = ThreadPoolExecutor(WORKERS, thread_name_prefix="eks")

    def find(self, name: str) -> ClusterState:
        """The cluster with this name, or the API's error."""
        with self.lock:
            state = self.clusters.get(name)
        if state is None:
            raise not_found(f"No cluster found for name: {name}.", clusterName=name)
        return state

    def find_active(self, name: str) -> ClusterState:
        """The same, but it has to be ACTIVE."""
        state = self.find(name)
        if state.cluster.status != "ACTIVE":
            raise in_use(f"Cluster '{name}' is not in ACTIVE status (it is {state.cluster.status})", clusterName=name)
        return state

    def arn(self, kind: str, *parts: str) -> str:
        """An ARN of ours."""
        return f"arn:aws:eks:{self.settings.region}:{self.settings.account}:{kind}/{'/'.join(parts)}"

    def free_index(self) -> int:
        """The lowest number that no cluster has; addresses and ports derive from it."""
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
        """A role must exist and trust the service that is to assume it; `context` adds condition keys."""
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
        """The condition keys by which trust policies guard against confused deputies."""
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

        The reply to the call that made it says InProgress, as EKS's does; it is done by the time anybody asks again,
        unless the caller keeps it open in `state.updates`.
        """
        listed = tuple({"type": name, "value": str(value)} for name, value in params.items())
        update = Update(str(uuid.uuid4()), kind, time.time(), listed, nodegroup=nodegroup, addon=addon)
        state.updates[update.id] = replace(update, status="Successful")
        return update


def new_id(length: int) -> str:
    """Random lower-case hexadecimal digits."""
    return secrets.token_hex((length + 1) // 2)[:length]


def page(items: list[Any], params: Mapping[str, Any], key: str) -> Json:
    """One page of a list and the token for the next."""
    token = params.get("nextToken")
    try:
        start = int(base64.b64decode(token, validate=True)) if token else 0
    except ValueError as error:
        raise invalid(f"nextToken {token!r} is not one that this API gave") from error
    end = start + int(params.get("maxResults") or MAX_RESULTS)
    following = base64.b64encode(str(end).encode()).decode() if end < len(items) else None
    return {key: items[start:end], **({"nextToken": following} if following else {})}


def checked_tags(tags: Any) -> Tags:
    """Tags as given, or the API's error about them."""
    for name in tags or {}:
        if str(name).lower().startswith("aws:"):
            raise invalid(f"Tag key {name!r} is reserved: it must not start with aws:")
    return dict(tags or {})
