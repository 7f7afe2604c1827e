"""What EKS stores, as immutable values; `*_json` returns a value as the API shows it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

Json = dict[str, Any]
Tags = Mapping[str, str]
PLATFORM_VERSION = "eks.9"
VERSIONS = ("1.34", "1.35")
"""Of Kubernetes, oldest first: a cluster goes from one to the next. Each needs its programs (`localcloud.tools`)."""
NAME = re.compile(r"[0-9A-Za-z][A-Za-z0-9_-]{0,99}")


@dataclass(frozen=True)
class Cluster:
    """A cluster. The configuration fields have the API's own shapes."""

    name: str
    arn: str
    version: str
    role_arn: str
    created_at: float
    creator_arn: str
    vpc_config: Json
    network_config: Json
    logging: Json
    access_config: Json
    encryption_config: list[Json]
    upgrade_policy: Json
    oidc_issuer: str
    index: int
    interfaces: tuple[str, ...]
    self_managed_addons: bool
    deletion_protection: bool = False
    status: str = "CREATING"
    endpoint: str | None = None
    ca_pem: str | None = None
    issues: tuple[Json, ...] = ()
    tags: Tags = field(default_factory=dict)

    @property
    def authentication_mode(self) -> str:
        """Return CONFIG_MAP, API or API_AND_CONFIG_MAP."""
        return str(self.access_config["authenticationMode"])


@dataclass(frozen=True)
class Nodegroup:
    """A managed node group: `desired` nodes of one instance type in its subnets."""

    name: str
    cluster: str
    arn: str
    version: str
    release_version: str
    created_at: float
    modified_at: float
    node_role: str
    subnets: tuple[str, ...]
    scaling: Json
    instance_types: tuple[str, ...]
    instance_type: str
    ami_type: str
    capacity_type: str
    disk_size: int | None
    labels: Mapping[str, str]
    taints: tuple[Json, ...]
    update_config: Json
    node_repair_config: Json | None
    launch_template: Json | None
    remote_access: Json | None
    auto_scaling_group: str
    status: str = "CREATING"
    issues: tuple[Json, ...] = ()
    tags: Tags = field(default_factory=dict)

    @property
    def desired(self) -> int:
        """Return how many nodes there should be."""
        return 0 if self.status == "DELETING" else int(self.scaling["desiredSize"])


class Phase(Enum):
    """The state of a node in its life cycle."""

    STARTING = "starting"
    UP = "up"
    DRAINING = "draining"
    DRAINED = "drained"
    FAILED = "failed"
    DEAD = "dead"


@dataclass(frozen=True)
class Worker:
    """An EC2 instance that is a node.

    Args:
        launched_at: On the monotonic clock.
        died_at: When the node's last process has ended, or its start has failed; None before. On the same clock.
        boots: How often the instance had booted when the node started.
    """

    instance_id: str
    node_name: str
    subnet: str
    zone: str
    launched_at: float
    phase: Phase = Phase.STARTING
    ready: bool = False
    died_at: float | None = None
    boots: int = 1
    release: str = ""
    """Of its image; empty for an image that isn't EKS's."""


@dataclass(frozen=True)
class NodeFailure:
    """Why a node failed before it was Ready: the end of its log."""

    instance_id: str
    reason: str


@dataclass(frozen=True)
class Addon:
    """An installed addon."""

    name: str
    cluster: str
    arn: str
    version: str
    created_at: float
    modified_at: float
    configuration: str | None
    service_account_role: str | None
    associations: tuple[str, ...]
    status: str = "CREATING"
    issues: tuple[Json, ...] = ()
    tags: Tags = field(default_factory=dict)


@dataclass(frozen=True)
class AccessEntry:
    """A principal that may log in, its user name and groups; `policies` maps a policy's ARN to its association."""

    principal_arn: str
    cluster: str
    arn: str
    kind: str
    username: str
    groups: tuple[str, ...]
    created_at: float
    modified_at: float
    policies: Mapping[str, Json] = field(default_factory=dict)
    tags: Tags = field(default_factory=dict)


@dataclass(frozen=True)
class Association:
    """A pod identity association: the pods of a service account get credentials for a role."""

    id: str
    cluster: str
    arn: str
    namespace: str
    service_account: str
    role_arn: str
    created_at: float
    modified_at: float
    owner_arn: str | None = None
    disable_session_tags: bool = False
    target_role_arn: str | None = None
    tags: Tags = field(default_factory=dict)


@dataclass(frozen=True)
class Update:
    """A change of a cluster, node group or addon, in progress or done."""

    id: str
    kind: str
    created_at: float
    params: tuple[Json, ...]
    status: str = "InProgress"
    nodegroup: str | None = None
    addon: str | None = None
    errors: tuple[Json, ...] = ()


@dataclass(frozen=True)
class Creation:
    """A call with a `clientRequestToken`, the ARN or the update's id that it made, and its reply."""

    params: Mapping[str, Any]
    arn: str
    answer: Json


def cluster_json(cluster: Cluster) -> Json:
    """Return a cluster as the API shows it."""
    view: Json = {
        "name": cluster.name,
        "arn": cluster.arn,
        "createdAt": cluster.created_at,
        "version": cluster.version,
        "roleArn": cluster.role_arn,
        "resourcesVpcConfig": cluster.vpc_config,
        "kubernetesNetworkConfig": cluster.network_config,
        "logging": cluster.logging,
        "identity": {"oidc": {"issuer": cluster.oidc_issuer}},
        "status": cluster.status,
        "certificateAuthority": {},
        "platformVersion": PLATFORM_VERSION,
        "tags": dict(cluster.tags),
        "health": {"issues": list(cluster.issues)},
        "accessConfig": {"authenticationMode": cluster.authentication_mode},
        "upgradePolicy": cluster.upgrade_policy,
        "deletionProtection": cluster.deletion_protection,
    }
    if cluster.encryption_config:
        view["encryptionConfig"] = cluster.encryption_config
    return view


def nodegroup_json(group: Nodegroup) -> Json:
    """Return a node group as the API shows it."""
    view: Json = {
        "nodegroupName": group.name,
        "nodegroupArn": group.arn,
        "clusterName": group.cluster,
        "version": group.version,
        "releaseVersion": group.release_version,
        "createdAt": group.created_at,
        "modifiedAt": group.modified_at,
        "status": group.status,
        "capacityType": group.capacity_type,
        "scalingConfig": group.scaling,
        "subnets": list(group.subnets),
        "amiType": group.ami_type,
        "nodeRole": group.node_role,
        "labels": dict(group.labels),
        "taints": list(group.taints),
        "resources": {"autoScalingGroups": [{"name": group.auto_scaling_group}]},
        "health": {"issues": list(group.issues)},
        "updateConfig": group.update_config,
        "tags": dict(group.tags),
    }
    optional = {
        "instanceTypes": list(group.instance_types) or None,
        "diskSize": group.disk_size,
        "launchTemplate": group.launch_template,
        "remoteAccess": group.remote_access,
        "nodeRepairConfig": group.node_repair_config,
    }
    return view | {name: value for name, value in optional.items() if value is not None}


def addon_json(addon: Addon) -> Json:
    """Return an addon as the API shows it."""
    view: Json = {
        "addonName": addon.name,
        "clusterName": addon.cluster,
        "status": addon.status,
        "addonVersion": addon.version,
        "health": {"issues": list(addon.issues)},
        "addonArn": addon.arn,
        "createdAt": addon.created_at,
        "modifiedAt": addon.modified_at,
        "tags": dict(addon.tags),
        "publisher": "eks",
        "owner": "aws",
    }
    if addon.configuration is not None:
        view["configurationValues"] = addon.configuration
    if addon.service_account_role is not None:
        view["serviceAccountRoleArn"] = addon.service_account_role
    if addon.associations:
        view["podIdentityAssociations"] = list(addon.associations)
    return view


def entry_json(entry: AccessEntry) -> Json:
    """Return an access entry as the API shows it."""
    return {
        "clusterName": entry.cluster,
        "principalArn": entry.principal_arn,
        "kubernetesGroups": list(entry.groups),
        "accessEntryArn": entry.arn,
        "createdAt": entry.created_at,
        "modifiedAt": entry.modified_at,
        "tags": dict(entry.tags),
        "username": entry.username,
        "type": entry.kind,
    }


def association_json(association: Association) -> Json:
    """Return a pod identity association as the API shows it."""
    view: Json = {
        "clusterName": association.cluster,
        "namespace": association.namespace,
        "serviceAccount": association.service_account,
        "roleArn": association.role_arn,
        "associationArn": association.arn,
        "associationId": association.id,
        "tags": dict(association.tags),
        "createdAt": association.created_at,
        "modifiedAt": association.modified_at,
        "disableSessionTags": association.disable_session_tags,
    }
    if association.owner_arn is not None:
        view["ownerArn"] = association.owner_arn
    if association.target_role_arn is not None:
        view["targetRoleArn"] = association.target_role_arn
    return view


def update_json(update: Update) -> Json:
    """Return an update as the API shows it."""
    return {
        "id": update.id,
        "status": update.status,
        "type": update.kind,
        "params": list(update.params),
        "createdAt": update.created_at,
        "errors": list(update.errors),
    }
