"""Access entries and access policies: who may log in to a cluster, as whom, and with which rights.

EKS has its own authorizer for access policies. Here an associated policy becomes a role binding for a group; only this
entry's principal gets the group when it logs in (see `identity.token`).
"""

from __future__ import annotations

import base64
import hashlib
import re
import time
import uuid
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from localcloud.aws.eks.errors import in_use, invalid, not_found, refused
from localcloud.aws.eks.model import AccessEntry, Json, entry_json
from localcloud.aws.eks.state import ClusterState, Eks, checked_tags, page
from localcloud.aws.principals import Principal
from localcloud.errors import CloudError

POLICY_PREFIX = "arn:aws:eks::aws:cluster-access-policy/"
# https://docs.aws.amazon.com/eks/latest/userguide/access-policy-permissions.html
POLICIES = {
    "AmazonEKSClusterAdminPolicy": "cluster-admin",
    "AmazonEKSAdminPolicy": "admin",
    "AmazonEKSAdminViewPolicy": "eks:admin-view",
    "AmazonEKSEditPolicy": "edit",
    "AmazonEKSViewPolicy": "view",
}
ADMIN_VIEW: Json = {
    "apiVersion": "rbac.authorization.k8s.io/v1",
    "kind": "ClusterRole",
    "metadata": {"name": "eks:admin-view"},
    "rules": [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["get", "list", "watch"]}],
}
NODE_TYPES = {"EC2_LINUX": "system:nodes", "EC2_WINDOWS": "system:nodes", "FARGATE_LINUX": "system:nodes"}
TYPES = ("STANDARD", *NODE_TYPES)
WAIT_SECONDS = 0.5
BINDING_LABEL = "eks.amazonaws.com/access-entry"


def encoded(text: str) -> str:
    """Return a text in Base64."""
    return base64.b64encode(text.encode()).decode()


def group_of(principal_arn: str) -> str:
    """Return the Kubernetes group that an entry's policies are bound to."""
    return f"eks:access-entry:{principal_arn}"


def create(eks: Eks, caller: Principal, params: Mapping[str, Any]) -> Json:
    """CreateAccessEntry."""
    state = _entries_of(eks, params)
    arn, kind = str(params["principalArn"]), str(params.get("type") or "STANDARD")
    if kind not in TYPES:
        raise invalid(f"type {kind!r} is none of {', '.join(TYPES)}")
    if not re.fullmatch(r"arn:aws:iam::\d{12}:(role|user)/.+", arn):
        raise invalid("The specified principalArn is invalid: invalid principal")
    if kind != "STANDARD" and (params.get("kubernetesGroups") or params.get("username")):
        raise invalid(f"An access entry of type {kind} has no username and no kubernetesGroups")
    with state.lock:
        if arn in state.entries:
            raise in_use("The specified access entry resource is already in use on this cluster.")
        entry = _entry(eks, state, arn, kind, params)
        state.entries[arn] = entry
    state.wake.set()  # instances with this role may wait for it
    return {"accessEntry": entry_json(entry)}


def describe(eks: Eks, caller: Principal, params: Mapping[str, Any]) -> Json:
    """DescribeAccessEntry."""
    return {"accessEntry": entry_json(_entry_of(eks, params)[1])}


def list_all(eks: Eks, caller: Principal, params: Mapping[str, Any]) -> Json:
    """ListAccessEntries; with `associatedPolicyArn` only the entries that have this policy."""
    state, policy = _entries_of(eks, params), params.get("associatedPolicyArn")
    arns = [arn for arn, entry in sorted(state.entries.items()) if policy is None or policy in entry.policies]
    return page(arns, params, "accessEntries")


def update(eks: Eks, caller: Principal, params: Mapping[str, Any]) -> Json:
    """UpdateAccessEntry: change groups and user name."""
    state, entry = _entry_of(eks, params)
    groups = entry.groups if params.get("kubernetesGroups") is None else _groups(params["kubernetesGroups"])
    username = str(params.get("username") or entry.username)
    with state.lock:
        entry = replace(entry, groups=groups, username=username, modified_at=time.time())
        state.entries[entry.principal_arn] = entry
    return {"accessEntry": entry_json(entry)}


def delete(eks: Eks, caller: Principal, params: Mapping[str, Any]) -> Json:
    """DeleteAccessEntry, with its policies."""
    state, entry = _entry_of(eks, params)
    with state.lock:
        del state.entries[entry.principal_arn]
    sync_bindings(state, replace(entry, policies={}))
    return {}


def associate_policy(eks: Eks, caller: Principal, params: Mapping[str, Any]) -> Json:
    """AssociateAccessPolicy; a second call for the same policy changes its scope."""
    state, entry = _entry_of(eks, params)
    policy, scope = str(params["policyArn"]), dict(params.get("accessScope") or {})
    if policy.removeprefix(POLICY_PREFIX) not in POLICIES:
        raise invalid(f"The policyArn parameter format is not valid, or the policy is unknown: {policy}")
    if entry.kind != "STANDARD":
        raise refused(f"Access policies can't be associated with an access entry of type {entry.kind}")
    if scope.get("type") not in ("cluster", "namespace"):
        raise invalid(f"accessScope.type {scope.get('type')!r} is neither cluster nor namespace")
    if (scope["type"] == "namespace") != bool(scope.get("namespaces")):
        raise invalid("accessScope.namespaces is required with type namespace and not allowed with type cluster")
    now = time.time()
    before = entry.policies.get(policy, {})
    association = {
        "policyArn": policy,
        "accessScope": {"type": scope["type"], "namespaces": list(scope.get("namespaces") or [])},
        "associatedAt": before.get("associatedAt", now),
        "modifiedAt": now,
    }
    _set_policies(state, entry, {**entry.policies, policy: association})
    return {
        "clusterName": entry.cluster,
        "principalArn": entry.principal_arn,
        "associatedAccessPolicy": association,
    }


def disassociate_policy(eks: Eks, caller: Principal, params: Mapping[str, Any]) -> Json:
    """DisassociateAccessPolicy."""
    state, entry = _entry_of(eks, params)
    policy = str(params["policyArn"])
    if policy not in entry.policies:
        raise not_found(f"The policy {policy} is not associated with {entry.principal_arn}")
    _set_policies(state, entry, {arn: value for arn, value in entry.policies.items() if arn != policy})
    return {}


def list_associated(eks: Eks, caller: Principal, params: Mapping[str, Any]) -> Json:
    """ListAssociatedAccessPolicies."""
    entry = _entry_of(eks, params)[1]
    listed = page(list(entry.policies.values()), params, "associatedAccessPolicies")
    return {"clusterName": entry.cluster, "principalArn": entry.principal_arn, **listed}


def list_policies(eks: Eks, caller: Principal, params: Mapping[str, Any]) -> Json:
    """ListAccessPolicies."""
    return page([{"name": name, "arn": POLICY_PREFIX + name} for name in POLICIES], params, "accessPolicies")


def add_creator(eks: Eks, state: ClusterState, caller: Principal) -> None:
    """Add the entry that EKS creates for a cluster's creator, with full rights."""
    arn, now = caller.identity_arn, time.time()
    policy = POLICY_PREFIX + "AmazonEKSClusterAdminPolicy"
    scope = {"type": "cluster", "namespaces": []}
    association = {"policyArn": policy, "accessScope": scope, "associatedAt": now, "modifiedAt": now}
    entry = _entry(eks, state, arn, "STANDARD", {})
    state.entries[arn] = replace(entry, policies={policy: association})


def add_node_role(eks: Eks, state: ClusterState, role_arn: str) -> None:
    """Add the entry that EKS creates for a managed node group's role."""
    with state.lock:
        if state.cluster.authentication_mode != "CONFIG_MAP" and role_arn not in state.entries:
            state.entries[role_arn] = _entry(eks, state, role_arn, "EC2_LINUX", {})


def bindings(entry: AccessEntry) -> list[Json]:
    """Return the role bindings for an entry's policies."""
    made = []
    digest = hashlib.sha256(entry.principal_arn.encode()).hexdigest()[:12]
    for arn, association in entry.policies.items():
        name = arn.removeprefix(POLICY_PREFIX)
        scope = association["accessScope"]
        for namespace in scope["namespaces"] if scope["type"] == "namespace" else [None]:
            made.append(_binding(f"eks:{name}:{digest}", POLICIES[name], entry.principal_arn, digest, namespace))
    return made


def sync_bindings(state: ClusterState, entry: AccessEntry) -> None:
    """Create and delete the cluster's role bindings for this entry; do nothing while the control plane starts.

    While an update replaces the API server, wait for it: what is not done now is never done.
    """
    while state.plane is not None and state.cluster.status in ("ACTIVE", "UPDATING"):
        try:
            return _sync(state.plane.client, entry)
        except CloudError:
            if state.cluster.status != "UPDATING":
                raise
        time.sleep(WAIT_SECONDS)


def _sync(client: Any, entry: AccessEntry) -> None:
    wanted = bindings(entry)
    if any(binding["roleRef"]["name"] == "eks:admin-view" for binding in wanted):
        client.apply(ADMIN_VIEW)
    digest = hashlib.sha256(entry.principal_arn.encode()).hexdigest()[:12]
    keep = {(binding["metadata"].get("namespace"), binding["metadata"]["name"]) for binding in wanted}
    root = "/apis/rbac.authorization.k8s.io/v1"
    for kind in ("clusterrolebindings", "rolebindings"):
        for found in client.get(f"{root}/{kind}?labelSelector={BINDING_LABEL}%3D{digest}")["items"]:
            namespace, name = found["metadata"].get("namespace"), found["metadata"]["name"]
            if (namespace, name) not in keep:
                inside = f"namespaces/{namespace}/" if namespace else ""
                client.delete(f"{root}/{inside}{kind}/{name}")
    for binding in wanted:
        client.apply(binding)


def _binding(name: str, role: str, principal_arn: str, digest: str, namespace: str | None) -> Json:
    metadata: Json = {"name": name, "labels": {BINDING_LABEL: digest}}
    if namespace is not None:
        metadata["namespace"] = namespace
    api = "rbac.authorization.k8s.io"
    return {
        "apiVersion": f"{api}/v1",
        "kind": "ClusterRoleBinding" if namespace is None else "RoleBinding",
        "metadata": metadata,
        "roleRef": {"apiGroup": api, "kind": "ClusterRole", "name": role},
        "subjects": [{"apiGroup": api, "kind": "Group", "name": group_of(principal_arn)}],
    }


def _set_policies(state: ClusterState, entry: AccessEntry, policies: Mapping[str, Json]) -> None:
    with state.lock:
        changed = replace(entry, policies=policies, modified_at=time.time())
        state.entries[entry.principal_arn] = changed
    sync_bindings(state, changed)


def _entries_of(eks: Eks, params: Mapping[str, Any]) -> ClusterState:
    state = eks.find(str(params["clusterName"]))
    if state.cluster.authentication_mode == "CONFIG_MAP":
        raise refused(
            "The cluster's authentication mode must be set to one of [API, API_AND_CONFIG_MAP] "
            "to perform this operation."
        )
    return state


def _entry_of(eks: Eks, params: Mapping[str, Any]) -> tuple[ClusterState, AccessEntry]:
    state, arn = _entries_of(eks, params), str(params["principalArn"])
    entry = state.entries.get(arn)
    if entry is None:
        raise not_found(
            f"The specified principalArn could not be found. You tried to use {arn} on cluster {state.cluster.name}.",
        )
    return state, entry


def _entry(eks: Eks, state: ClusterState, arn: str, kind: str, params: Mapping[str, Any]) -> AccessEntry:
    account, resource = arn.split(":", 5)[4:]
    resource_type, _, name = resource.partition("/")
    short = name.rpartition("/")[2]
    groups: tuple[str, ...]
    if kind in NODE_TYPES:
        username, groups = "system:node:{{EC2PrivateDNSName}}", (NODE_TYPES[kind],)
    else:
        session = f"arn:aws:sts::{account}:assumed-role/{short}/{{{{SessionName}}}}"
        username = str(params.get("username") or (session if resource_type == "role" else arn))
        groups = _groups(params.get("kubernetesGroups"))
    now = time.time()
    return AccessEntry(
        principal_arn=arn,
        cluster=state.cluster.name,
        arn=eks.arn("access-entry", state.cluster.name, resource_type, account, short, str(uuid.uuid4())),
        kind=kind,
        username=username,
        groups=groups,
        created_at=now,
        modified_at=now,
        tags=checked_tags(params.get("tags")),
    )


def _groups(groups: Any) -> tuple[str, ...]:
    for group in groups or []:
        if str(group).startswith("system:"):
            raise invalid(
                f"The kubernetes group name {group} is invalid, it cannot start with system:, amazon, aws, eks or iam"
            )
    return tuple(str(group) for group in groups or [])
