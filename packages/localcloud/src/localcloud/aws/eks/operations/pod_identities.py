"""Pod identity associations: operations on them, and the exchange of a pod's token for credentials (EKS Auth)."""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from localcloud.aws.eks.errors import EksError, in_use, not_found
from localcloud.aws.eks.model import Association, Json, association_json
from localcloud.aws.eks.state import ClusterState, Eks, checked_tags, new_id, page
from localcloud.aws.principals import Principal

AUDIENCE = "pods.eks.amazonaws.com"
SERVICE = "pods.eks.amazonaws.com"
TRUST_ACTIONS = ("sts:AssumeRole", "sts:TagSession")
SESSION_SECONDS = 6 * 3600
SESSION_NAME_LENGTH = 64


def create(eks: Eks, caller: Principal, params: Mapping[str, Any]) -> Json:
    """CreatePodIdentityAssociation."""
    state = eks.find_active(str(params["clusterName"]))
    with state.lock:
        made = add(
            eks,
            state,
            (str(params["namespace"]), str(params["serviceAccount"])),
            str(params["roleArn"]),
            tags=checked_tags(params.get("tags")),
        )
        made = replace(
            made,
            disable_session_tags=bool(params.get("disableSessionTags", False)),
            target_role_arn=params.get("targetRoleArn"),
        )
        state.associations[made.id] = made
    return {"association": association_json(made)}


def add(
    eks: Eks,
    state: ClusterState,
    subject: tuple[str, str],
    role_arn: str,
    *,
    owner_arn: str | None = None,
    tags: Mapping[str, str] | None = None,
) -> Association:
    """Record an association. A service account can have only one.

    Args:
        subject: Namespace and name of the service account.
    """
    namespace, service_account = subject
    for other in state.associations.values():
        if (other.namespace, other.service_account) == (namespace, service_account):
            raise in_use(f"Association already exists: {other.id}", clusterName=state.cluster.name)
    eks.check_role(role_arn, SERVICE, TRUST_ACTIONS, "roleArn", session_tags(eks, state, subject))
    identity, now = f"a-{new_id(17)}", time.time()
    made = Association(
        id=identity,
        cluster=state.cluster.name,
        arn=eks.arn("podidentityassociation", state.cluster.name, identity),
        namespace=namespace,
        service_account=service_account,
        role_arn=role_arn,
        created_at=now,
        modified_at=now,
        owner_arn=owner_arn,
        tags=dict(tags or {}),
    )
    state.associations[identity] = made
    return made


def describe(eks: Eks, caller: Principal, params: Mapping[str, Any]) -> Json:
    """DescribePodIdentityAssociation."""
    return {"association": association_json(_find(eks, params)[1])}


def list_all(eks: Eks, caller: Principal, params: Mapping[str, Any]) -> Json:
    """ListPodIdentityAssociations; with `namespace` or `serviceAccount` only the matching ones."""
    wanted = {"namespace": params.get("namespace"), "serviceAccount": params.get("serviceAccount")}
    keys = ("clusterName", "namespace", "serviceAccount", "associationArn", "associationId", "ownerArn")
    views = [association_json(found) for found in eks.find(str(params["clusterName"])).associations.values()]
    chosen = [
        {key: view[key] for key in keys if key in view}
        for view in views
        if all(value in (None, view[key]) for key, value in wanted.items())
    ]
    return page(chosen, params, "associations")


def update(eks: Eks, caller: Principal, params: Mapping[str, Any]) -> Json:
    """UpdatePodIdentityAssociation: change the role."""
    state, found = _find(eks, params)
    role = str(params.get("roleArn") or found.role_arn)
    subject = (found.namespace, found.service_account)
    eks.check_role(role, SERVICE, TRUST_ACTIONS, "roleArn", session_tags(eks, state, subject))
    with state.lock:
        found = replace(
            found,
            role_arn=role,
            disable_session_tags=bool(params.get("disableSessionTags", found.disable_session_tags)),
            target_role_arn=params.get("targetRoleArn", found.target_role_arn),
            modified_at=time.time(),
        )
        state.associations[found.id] = found
    return {"association": association_json(found)}


def delete(eks: Eks, caller: Principal, params: Mapping[str, Any]) -> Json:
    """DeletePodIdentityAssociation."""
    state, found = _find(eks, params)
    with state.lock:
        state.associations.pop(found.id, None)
    return {"association": association_json(found)}


def session_tags(eks: Eks, state: ClusterState, subject: tuple[str, str]) -> dict[str, tuple[str, ...]]:
    """Return the session tags that EKS sets, as condition keys. Trust policies can restrict a role with them.

    https://docs.aws.amazon.com/eks/latest/userguide/pod-id-abac.html
    """
    namespace, service_account = subject
    tags = {
        "eks-cluster-arn": eks.arn("cluster", state.cluster.name),
        "eks-cluster-name": state.cluster.name,
        "kubernetes-namespace": namespace,
        "kubernetes-service-account": service_account,
    }
    return {f"aws:requesttag/{key}": (value,) for key, value in tags.items()}


def association_of(state: ClusterState, namespace: str, service_account: str) -> Association | None:
    """Return the association of a service account, or None."""
    for found in list(state.associations.values()):
        if (found.namespace, found.service_account) == (namespace, service_account):
            return found
    return None


def assume_role(eks: Eks, cluster: str, token: str) -> Json:
    """AssumeRoleForPodIdentity: return credentials for the role of the token's service account.

    Raises:
        EksError: The cluster rejects the token, the account has no association, or the role no longer trusts EKS.
    """
    state = eks.find_active(cluster)
    namespace, account, pod = _reviewed(state, token)
    found = association_of(state, namespace, account)
    if found is None:
        raise not_found(f"No association found for service account {account} in namespace {namespace}")
    try:
        tags = session_tags(eks, state, (namespace, account))
        eks.check_role(found.role_arn, SERVICE, TRUST_ACTIONS, "roleArn", tags)
    except EksError as error:
        raise EksError(
            "AccessDeniedException", f"Unauthorized Exception! EKS does not have permissions: {error}"
        ) from (error)
    session = f"eks-{cluster}-{pod or account}-{uuid.uuid4()}"[:SESSION_NAME_LENGTH].rstrip("-")
    made = eks.principals.assume(found.role_arn, session, SESSION_SECONDS)
    return {
        "subject": {"namespace": namespace, "serviceAccount": account},
        "audience": AUDIENCE,
        "podIdentityAssociation": {"associationArn": found.arn, "associationId": found.id},
        "assumedRoleUser": {"arn": made.session_arn, "assumeRoleId": made.session_id},
        "credentials": {
            "accessKeyId": made.access_key,
            "secretAccessKey": made.secret,
            "sessionToken": made.token,
            "expiration": made.expiration.timestamp(),
        },
    }


def _reviewed(state: ClusterState, token: str) -> tuple[str, str, str]:
    """Return the namespace, service account and pod of a token; the cluster's API server checks the token."""
    if state.plane is None:
        raise EksError("InvalidTokenException", f"Cluster {state.cluster.name} is not ready to check tokens")
    review = {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenReview",
        "spec": {"token": token, "audiences": [AUDIENCE]},
    }
    status = state.plane.client.create("/apis/authentication.k8s.io/v1/tokenreviews", review).get("status", {})
    user = status.get("user", {})
    parts = str(user.get("username", "")).split(":")
    if not status.get("authenticated") or parts[:2] != ["system", "serviceaccount"] or len(parts) != 4:
        reason = status.get("error") or "it is not a service account's token for this audience"
        raise EksError("InvalidTokenException", f"The token included in the request is invalid: {reason}")
    pod = (user.get("extra", {}).get("authentication.kubernetes.io/pod-name") or [""])[0]
    return parts[2], parts[3], str(pod)


def _find(eks: Eks, params: Mapping[str, Any]) -> tuple[ClusterState, Association]:
    state = eks.find(str(params["clusterName"]))
    found = state.associations.get(str(params["associationId"]))
    if found is None:
        raise not_found(
            f"No association found with ID: {params['associationId']} in cluster {state.cluster.name}",
        )
    return state, found
