"""The mutating webhook that adds what AWS's SDKs need to the pods of an associated service account.

https://github.com/aws/amazon-eks-pod-identity-webhook. It also sets the endpoint
of this cloud; without it the SDKs would call AWS itself.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from typing import Any

from localcloud.aws.eks.model import Json
from localcloud.aws.eks.operations.pod_identities import AUDIENCE, association_of
from localcloud.aws.eks.state import Eks

VOLUME = "eks-pod-identity-token"
MOUNT = "/var/run/secrets/pods.eks.amazonaws.com/serviceaccount"
TOKEN_SECONDS = 86400
CREDENTIALS_URI = "http://169.254.170.23/v1/credentials"


def environment(region: str, endpoint: str) -> dict[str, str]:
    """Return the environment variables for each container."""
    return {
        "AWS_STS_REGIONAL_ENDPOINTS": "regional",
        "AWS_DEFAULT_REGION": region,
        "AWS_REGION": region,
        "AWS_CONTAINER_CREDENTIALS_FULL_URI": CREDENTIALS_URI,
        "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE": f"{MOUNT}/{VOLUME}",
        "AWS_ENDPOINT_URL": endpoint,
    }


def patch(pod: Mapping[str, Any], variables: Mapping[str, str]) -> list[Json]:
    """Return the JSON patch that adds variables, token volume and mounts; empty if the pod has them already."""
    spec = pod["spec"]
    if any(volume["name"] == VOLUME for volume in spec.get("volumes") or []):
        return []
    projection = {"serviceAccountToken": {"audience": AUDIENCE, "expirationSeconds": TOKEN_SECONDS, "path": VOLUME}}
    volume = {"name": VOLUME, "projected": {"sources": [projection]}}
    changes: list[Json] = [
        {"op": "add", "path": "/spec/volumes", "value": [*(spec.get("volumes") or []), volume]},
    ]
    for kind in ("initContainers", "containers"):
        for index, container in enumerate(spec.get(kind) or []):
            present = {entry["name"] for entry in container.get("env") or []}
            added = [{"name": name, "value": value} for name, value in variables.items() if name not in present]
            mount = {"name": VOLUME, "mountPath": MOUNT, "readOnly": True}
            path = f"/spec/{kind}/{index}"
            changes.append({"op": "add", "path": f"{path}/env", "value": [*(container.get("env") or []), *added]})
            mounts = [*(container.get("volumeMounts") or []), mount]
            changes.append({"op": "add", "path": f"{path}/volumeMounts", "value": mounts})
    return changes


def review(eks: Eks, cluster: str, endpoint: str, request: Json) -> Json:
    """Answer an AdmissionReview."""
    asked = request["request"]
    answer: Json = {"uid": asked["uid"], "allowed": True}
    pod = asked.get("object") or {}
    namespace = asked.get("namespace") or pod.get("metadata", {}).get("namespace") or "default"
    account = pod.get("spec", {}).get("serviceAccountName") or "default"
    state = eks.clusters.get(cluster)
    if state is not None and pod.get("spec") and association_of(state, namespace, account) is not None:
        changes = patch(pod, environment(eks.settings.region, endpoint))
        if changes:
            answer |= {"patchType": "JSONPatch", "patch": base64.b64encode(json.dumps(changes).encode()).decode()}
    return {"apiVersion": request.get("apiVersion"), "kind": "AdmissionReview", "response": answer}
