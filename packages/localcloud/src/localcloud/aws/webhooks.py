"""The HTTPS server that API servers call: token authentication and the mutating webhook of pod identity."""

from __future__ import annotations

import base64
import json
import ssl
import tempfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from werkzeug.wrappers import Request, Response

from localcloud.aws.eks import token
from localcloud.aws.eks.model import Json
from localcloud.aws.eks.operations.pod_identities import AUDIENCE, association_of
from localcloud.aws.eks.state import Eks
from localcloud.kube.pki import Authority

WSGI = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]
VOLUME = "eks-pod-identity-token"
MOUNT = "/var/run/secrets/pods.eks.amazonaws.com/serviceaccount"
TOKEN_SECONDS = 86400
CREDENTIALS_URI = "http://169.254.170.23/v1/credentials"


def application(eks: Eks, endpoint: str) -> WSGI:
    """Return the application that serves `/authenticate/CLUSTER` and `/pod-identity/CLUSTER`.

    Args:
        endpoint: The URL of the AWS endpoint for pods.
    """

    def app(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        request = Request(environ)
        _, kind, cluster = request.path.split("/", 2) if request.path.count("/") == 2 else ("", "", "")
        body = json.loads(request.get_data() or b"{}")
        if kind == "authenticate":
            answer = token.review(eks, cluster, body)
        elif kind == "pod-identity":
            answer = review(eks, cluster, endpoint, body)
        else:
            return Response(f"no webhook at {request.path}\n", 404)(environ, start_response)
        return Response(json.dumps(answer), content_type="application/json")(environ, start_response)

    return app


def server_tls(address: str) -> tuple[ssl.SSLContext, str]:
    """Return a server context with a new certificate for `address`, and the PEM of the authority that signed it."""
    authority = Authority.create("localcloud webhooks")
    pair = authority.issue("localcloud", hosts=[address])
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with tempfile.TemporaryDirectory() as folder:
        context.load_cert_chain(*pair.write(Path(folder), "webhooks"))
    return context, authority.pair.certificate


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
