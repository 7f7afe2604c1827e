"""A small client of the API server, logged in as the cluster's administrator.

    client = Client(endpoint, ca_pem, pair)
    client.get("/api/v1/nodes")
    client.apply(manifest)

It keeps one connection per thread open. The daemon needs six verbs and has to start fast; importing a full client takes
longer than starting a node.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import ssl
import tempfile
import threading
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from localcloud.kube.errors import ApiError
from localcloud.kube.pki import Pair

TIMEOUT_SECONDS = 15.0
FIELD_MANAGER = "eks"
CLUSTER_SCOPED = frozenset(
    {"PersistentVolume", "ClusterRole", "ClusterRoleBinding", "CSIDriver", "MutatingWebhookConfiguration"}
)


class Client:
    """Speaks JSON to one API server.

    Args:
        endpoint: `https://address:port`.
        pair: The client certificate to log in with.
    """

    def __init__(self, endpoint: str, ca_pem: str, pair: Pair) -> None:
        parts = urlsplit(endpoint)
        self._host, self._port = parts.hostname or "", parts.port or 443
        self._tls = ssl.create_default_context(cadata=ca_pem)
        with tempfile.TemporaryDirectory() as folder:  # the ssl module reads key pairs from files only
            self._tls.load_cert_chain(*pair.write(Path(folder), "client"))
        self._local = threading.local()

    def get(self, path: str) -> dict[str, Any]:
        """Read an object or a list."""
        return self.request("GET", path)

    def find(self, path: str) -> dict[str, Any] | None:
        """Read an object; return None if there is none."""
        try:
            return self.get(path)
        except ApiError as error:
            if error.status == 404:
                return None
            raise

    def create(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """Add an object to the collection at `path`."""
        return self.request("POST", path, body)

    def patch(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """Apply a strategic merge patch."""
        return self.request("PATCH", path, body, "application/strategic-merge-patch+json")

    def apply(self, manifest: dict[str, Any]) -> dict[str, Any]:
        """Create or update an object by server-side apply; fields of other managers are overwritten."""
        path = f"{object_path(manifest)}?fieldManager={FIELD_MANAGER}&force=true"
        return self.request("PATCH", path, manifest, "application/apply-patch+yaml")

    def delete(self, path: str, options: dict[str, Any] | None = None) -> bool:
        """Delete an object; return False if there is none."""
        try:
            self.request("DELETE", path, options or {})
        except ApiError as error:
            if error.status == 404:
                return False
            raise
        return True

    def text(self, path: str) -> str:
        """Read something that isn't JSON, such as /readyz."""
        return self._exchange("GET", path, None, "")[1].decode(errors="replace")

    def request(
        self, method: str, path: str, body: dict[str, Any] | None = None, content_type: str = "application/json"
    ) -> dict[str, Any]:
        """Send one request.

        Raises:
            ApiError: The server answered with an error, or not at all (status 0).
        """
        status, data = self._exchange(method, path, body, content_type)
        try:
            answer: dict[str, Any] = json.loads(data)
        except ValueError as error:
            raise ApiError(status, f"{method} {path}: answer isn't JSON: {data[:200]!r}") from error
        return answer

    def _exchange(self, method: str, path: str, body: dict[str, Any] | None, content_type: str) -> tuple[int, bytes]:
        headers = {"Accept": "application/json", "Content-Type": content_type or "application/json"}
        payload = None if body is None else json.dumps(body)
        connection, fresh = self._connection()
        try:
            status, data = _send(connection, method, path, payload, headers)
        except (OSError, http.client.HTTPException) as error:
            self._drop()
            if fresh:
                raise ApiError(0, f"API server {self._host}:{self._port} does not answer: {error}") from error
            # The server may have closed the idle connection, so a new one is tried.
            return self._exchange(method, path, body, content_type)
        if status >= 400:
            raise ApiError(status, f"{method} {path}: {_message(data)}")
        return status, data

    def _connection(self) -> tuple[http.client.HTTPSConnection, bool]:
        connection: http.client.HTTPSConnection | None = getattr(self._local, "connection", None)
        if connection is not None:
            return connection, False
        connection = http.client.HTTPSConnection(self._host, self._port, context=self._tls, timeout=TIMEOUT_SECONDS)
        self._local.connection = connection
        return connection, True

    def _drop(self) -> None:
        with contextlib.suppress(OSError):
            self._local.connection.close()
        self._local.connection = None


def object_path(manifest: dict[str, Any]) -> str:
    """Return the path of an object from its manifest: `/apis/apps/v1/namespaces/kube-system/deployments/coredns`."""
    version, kind, metadata = manifest["apiVersion"], manifest["kind"], manifest["metadata"]
    root = f"/apis/{version}" if "/" in version else f"/api/{version}"
    scope = "" if kind in CLUSTER_SCOPED else f"/namespaces/{metadata.get('namespace', 'default')}"
    return f"{root}{scope}/{kind.lower()}s/{metadata['name']}"


def _send(
    connection: http.client.HTTPSConnection, method: str, path: str, payload: str | None, headers: dict[str, str]
) -> tuple[int, bytes]:
    connection.request(method, path, payload, headers)
    response = connection.getresponse()
    return response.status, response.read()


def _message(data: bytes) -> str:
    try:
        return str(json.loads(data).get("message", data.decode(errors="replace")))
    except (ValueError, AttributeError):
        return data.decode(errors="replace").strip()
