"""What the controller may do, the least with which it can do its work, and what users may do with jobs.

With the namespaces that it serves it has its rights on jobs and pods in these only, by Roles. In the cluster as a whole
it then reads what has no namespace, and with fixed nodes the pods: other pods take room too.

It can't read Secrets and ConfigMaps, run commands in pods, or change a job's spec. Leases it writes only in its own
namespace. Anyone who may create ElasticJobs in a namespace can start pods there, through the controller, with any of
that namespace's service accounts: give the right to create them to those who may create pods. So the roles view, edit
and admin of Kubernetes, which have rights on pods, get the same ones on jobs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tidewater.elasticjob import names
from tidewater.elasticjob.install.pods import Installation

Manifest = dict[str, Any]

RBAC = "rbac.authorization.k8s.io"

JOB_RULES: tuple[Manifest, ...] = (
    # `delete` is for ttlSecondsAfterFinished.
    {"apiGroups": [names.GROUP], "resources": [names.PLURAL], "verbs": ["get", "list", "watch", "delete"]},
    {"apiGroups": [names.GROUP], "resources": [f"{names.PLURAL}/status"], "verbs": ["patch"]},
    # Needed to own pods in a way that delays the job's deletion, where the admission plug-in
    # OwnerReferencesPermissionEnforcement is on.
    {"apiGroups": [names.GROUP], "resources": [f"{names.PLURAL}/finalizers"], "verbs": ["update"]},
    {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch", "create", "delete"]},
    {"apiGroups": [""], "resources": ["services"], "verbs": ["get", "list", "watch", "create"]},
    # `watch` is for those of Karpenter, which say why a pod gets no node.
    {"apiGroups": [""], "resources": ["events"], "verbs": ["create", "patch", "watch"]},
)
"""In the namespaces of the jobs."""

NODE_RULES: tuple[Manifest, ...] = (
    {"apiGroups": [""], "resources": ["nodes"], "verbs": ["get", "list", "watch"]},
    # With fixed nodes: which pods displace others.
    {"apiGroups": ["scheduling.k8s.io"], "resources": ["priorityclasses"], "verbs": ["list", "watch"]},
    # Their conditions say so where there is no event. A cluster without Karpenter has no such kinds.
    {"apiGroups": ["karpenter.sh"], "resources": ["nodeclaims", "nodepools"], "verbs": ["watch"]},
    {"apiGroups": ["karpenter.k8s.aws"], "resources": ["ec2nodeclasses"], "verbs": ["watch"]},
)
"""On what has no namespace."""

CLUSTER_RULES = (*JOB_RULES, *NODE_RULES)
"""In all namespaces, if it serves all."""

ROOM_RULES: tuple[Manifest, ...] = ({"apiGroups": [""], "resources": ["pods"], "verbs": ["list", "watch"]},)
"""In all namespaces, with fixed nodes."""

TAINT_RULES: tuple[Manifest, ...] = ({"apiGroups": [""], "resources": ["nodes"], "verbs": ["patch"]},)
"""In addition, if it taints nodes on which devices fail."""

OWN_RULES: tuple[Manifest, ...] = (
    {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["get", "create", "update"]},
)
"""In the controller's namespace: the Lease that makes one of the replicas the leader."""


USERS_RULES: Mapping[str, tuple[Manifest, ...]] = {
    "view": (
        {
            "apiGroups": [names.GROUP],
            "resources": [names.PLURAL, f"{names.PLURAL}/status", f"{names.PLURAL}/scale"],
            "verbs": ["get", "list", "watch"],
        },
    ),
    "edit": (
        {
            "apiGroups": [names.GROUP],
            "resources": [names.PLURAL],
            "verbs": ["create", "update", "patch", "delete", "deletecollection"],
        },
        {"apiGroups": [names.GROUP], "resources": [f"{names.PLURAL}/scale"], "verbs": ["update", "patch"]},
    ),
}
"""By the role of Kubernetes that includes them: edit includes view too, and admin all of edit.

https://kubernetes.io/docs/reference/access-authn-authz/rbac/#user-facing-roles
"""


def users_roles(own: Mapping[str, str]) -> list[Manifest]:
    """Return the roles that Kubernetes adds to view, edit and admin; `own` are the labels of all objects."""

    def role(into: str, rules: tuple[Manifest, ...]) -> Manifest:
        aggregated = {f"{RBAC}/aggregate-to-{into}": "true"}
        metadata = {"name": f"{names.PLURAL}-{into}", "labels": {**own, **aggregated}}
        return {"apiVersion": f"{RBAC}/v1", "kind": "ClusterRole", "metadata": metadata, "rules": list(rules)}

    return [role(into, rules) for into, rules in USERS_RULES.items()]


def cluster_rules(wanted: Installation) -> tuple[Manifest, ...]:
    """Return what the controller may do in the cluster as a whole."""
    served = NODE_RULES + (ROOM_RULES if wanted.fixed_nodes else ()) if wanted.namespaces else CLUSTER_RULES
    return served + (TAINT_RULES if wanted.taint_bad_nodes else ())


def manifests(wanted: Installation) -> list[Manifest]:
    """Return the service account, its roles and their bindings, and the roles of users.

    The role in a namespace of jobs has that in its name, so that it isn't the one for the Lease if they are the same.
    """
    account = {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": wanted.metadata(wanted.name),
        "automountServiceAccountToken": False,  # the pods mount their own
    }
    return [
        account,
        *_role(wanted, wanted.name, cluster_rules(wanted), within=None),
        *_role(wanted, wanted.name, OWN_RULES, within=wanted.namespace),
        *(
            role
            for each in wanted.namespaces
            for role in _role(wanted, f"{wanted.name}-{each}", JOB_RULES, within=each)
        ),
        *users_roles(wanted.labels),
    ]


def _role(wanted: Installation, name: str, rules: tuple[Manifest, ...], *, within: str | None) -> list[Manifest]:
    """Return a role of the controller and its binding; `within`: the namespace, None for the cluster."""
    kind = "Role" if within else "ClusterRole"
    metadata = {"name": name, "labels": wanted.labels, **({"namespace": within} if within else {})}
    return [
        {"apiVersion": f"{RBAC}/v1", "kind": kind, "metadata": metadata, "rules": list(rules)},
        {
            "apiVersion": f"{RBAC}/v1",
            "kind": f"{kind}Binding",
            "metadata": metadata,
            "roleRef": {"apiGroup": RBAC, "kind": kind, "name": name},
            "subjects": [{"kind": "ServiceAccount", "name": wanted.name, "namespace": wanted.namespace}],
        },
    ]
