"""What a team's people may do in its namespace: what Kubernetes' role `edit` has, but for writing NetworkPolicies.

    # Once; a RoleBinding in each namespace names ROLE.
    PeopleRights("people", PeopleRightsArgs(role_manifests()), platform.options(namespace))

With `edit` a team could open its namespace, and its pods' way to the file system and to others. Kubernetes adds roles
up and takes nothing off. So this one is made of `view`, of what others add to `edit` by its label (ElasticJobs, for
example), and of what Kubernetes itself has in `edit`, written out here without NetworkPolicies.
https://kubernetes.io/docs/reference/access-authn-authz/rbac/#aggregated-clusterroles
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pulumi

from tidewater.contract import labels
from workloads import objects
from workloads.manifests import Manifest, metadata

ROLE = f"{labels.APPLICATION}-people"
OWN_RULES = f"{labels.APPLICATION}-people-edit"
GROUP = "rbac.authorization.k8s.io"

AGGREGATED = f"{labels.PREFIX}/aggregate-to-people"
BOOTSTRAPPING = "kubernetes.io/bootstrapping"
"""Label of the roles that Kubernetes itself makes."""

READ = ("get", "list", "watch")
WRITE = ("create", "delete", "deletecollection", "patch", "update")

DOORS = ("pods/attach", "pods/exec", "pods/portforward", "pods/proxy", "services/proxy")
WRITTEN: Mapping[str, tuple[str, ...]] = {
    "": (
        *("configmaps", "events", "persistentvolumeclaims", "pods", "replicationcontrollers"),
        *("replicationcontrollers/scale", "secrets", "serviceaccounts", "services", *DOORS),
    ),
    "apps": (
        *("daemonsets", "deployments", "deployments/rollback", "deployments/scale", "replicasets"),
        *("replicasets/scale", "statefulsets", "statefulsets/scale"),
    ),
    "autoscaling": ("horizontalpodautoscalers",),
    "batch": ("cronjobs", "jobs"),
    "coordination.k8s.io": ("leases",),
    "events.k8s.io": ("events",),
    "networking.k8s.io": ("ingresses",),
    "policy": ("poddisruptionbudgets",),
    "resource.k8s.io": ("resourceclaims", "resourceclaimtemplates"),
}
"""By API group. The rules of Kubernetes' role system:aggregate-to-edit; those of the group `extensions` have no API."""


def role_manifests() -> list[Manifest]:
    """Return the role of teams' people, and the one with its own rules."""
    application = {labels.NAME: labels.APPLICATION}
    others = [
        {"key": f"{GROUP}/aggregate-to-edit", "operator": "In", "values": ["true"]},
        {"key": BOOTSTRAPPING, "operator": "DoesNotExist"},
    ]
    rules = [{"apiGroups": [group], "resources": list(each), "verbs": list(WRITE)} for group, each in WRITTEN.items()]
    rules += [
        {"apiGroups": [""], "resources": ["secrets", *DOORS], "verbs": list(READ)},
        {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": list(READ)},
        {"apiGroups": [""], "resources": ["pods/eviction", "serviceaccounts/token"], "verbs": ["create"]},
        {"apiGroups": [""], "resources": ["serviceaccounts"], "verbs": ["impersonate"]},
    ]
    kind = {"apiVersion": f"{GROUP}/v1", "kind": "ClusterRole"}
    selectors = [
        {"matchLabels": {f"{GROUP}/aggregate-to-view": "true"}},
        {"matchLabels": {AGGREGATED: "true"}},
        {"matchExpressions": others},
    ]
    return [
        {**kind, "metadata": metadata(OWN_RULES, {**application, AGGREGATED: "true"}), "rules": rules},
        {**kind, "metadata": metadata(ROLE, application), "aggregationRule": {"clusterRoleSelectors": selectors}},
    ]


@dataclass(frozen=True)
class PeopleRightsArgs:
    """The roles' manifests."""

    roles: Sequence[Manifest]


class PeopleRights(pulumi.ComponentResource):
    """The roles, which the bindings of all teams name."""

    def __init__(self, name: str, args: PeopleRightsArgs, opts: pulumi.ResourceOptions) -> None:
        super().__init__("tidewater:workloads:PeopleRights", name, None, opts)
        for manifest in args.roles:
            objects.register(manifest, opts=pulumi.ResourceOptions(parent=self))
        self.register_outputs({})
