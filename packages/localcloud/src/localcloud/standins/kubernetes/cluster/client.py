"""The client of the API server; no other module sends it requests.

    cluster = Cluster(connection)
    cluster.apply(obj, manager="me", force=False, dry_run=True)

Many threads share one instance and its pool of connections. Discovery is requested per group version, when needed.
No published client serves here: lightkube 1.0 refuses `client.authentication.k8s.io/v1` commands, starts one command
per waiting thread, writes client keys to /tmp, and has neither strict field validation nor OpenAPI; the official client
loads a class for every kind at each start of the plug-in.
"""

from __future__ import annotations

import contextlib
import json
import os
import ssl
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote, urlencode

import urllib3

from localcloud.standins.kubernetes.cluster.credentials import Credentials
from localcloud.standins.kubernetes.cluster.errors import ApiError, UnknownKind, Unreachable
from localcloud.standins.kubernetes.cluster.kubeconfig import Connection
from localcloud.standins.kubernetes.metadata import Object, name, namespace

CONNECTIONS: Final = 64
TIMEOUT: Final = urllib3.Timeout(connect=5, read=60)
_RETRIES: Final = urllib3.Retry(
    total=2, connect=1, read=1, status=0, other=0, redirect=0, backoff_factor=0.2, allowed_methods=None
)
"""The server may have closed a pooled connection. Any request may arrive twice: a second apply or deletion changes
nothing, the other requests carry a resourceVersion."""


@dataclass(frozen=True)
class ResourceType:
    """How the API server serves a kind."""

    api_version: str
    plural: str
    namespaced: bool

    def path(self, namespace: str, name: str = "") -> str:
        """Return the URL path of the collection in a namespace, or of one object of it."""
        where = f"/namespaces/{quote(namespace or 'default')}" if self.namespaced else ""
        return f"/{_root(self.api_version)}{where}/{self.plural}" + (f"/{quote(name)}" if name else "")


class Cluster:
    """A client of one cluster. It sends nothing before the first call."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self._credentials = Credentials(connection.user or {})
        self._lock = threading.Lock()
        self._types: dict[str, dict[str, ResourceType]] = {}
        self._pool: urllib3.PoolManager | None = None

    def version(self) -> dict[str, Any]:
        """Return the API server's version; the cheapest request that shows whether it can be reached."""
        return self.request("GET", "/version")

    def api_versions(self) -> list[str]:
        """Return `GROUP/VERSION` and `GROUP/VERSION/KIND` of everything that is served, as charts ask for them."""
        groups = self.request("GET", "/apis").get("groups") or []
        found: dict[str, None] = {}
        for each in ["v1", *(version["groupVersion"] for group in groups for version in group["versions"])]:
            found[each] = None
            try:
                listing = self.request("GET", f"/{_root(each)}")
            except ApiError:  # a registered API whose server is gone; helm goes on without it, too
                continue
            found |= {f"{each}/{item['kind']}": None for item in listing.get("resources") or []}
        return list(found)

    def resource_type(self, api_version: str, kind: str) -> ResourceType:
        """Return how a kind is served.

        Raises:
            UnknownKind: It isn't.
        """
        with self._lock:
            known = self._types.get(api_version, {})
        if kind not in known:
            known = self._discover(api_version)
        if kind not in known:
            raise UnknownKind(api_version, kind)
        return known[kind]

    def _discover(self, api_version: str) -> dict[str, ResourceType]:
        try:
            listing = self.request("GET", f"/{_root(api_version)}")
        except ApiError as error:
            if not error.not_found:
                raise
            listing = {}
        found = {
            item["kind"]: ResourceType(api_version, item["name"], bool(item["namespaced"]))
            for item in listing.get("resources") or []
            if "/" not in item["name"]
        }
        with self._lock:
            self._types[api_version] = found
        return found

    def path_of(self, obj: Object) -> str:
        """Return the URL path of an object."""
        kind = self.resource_type(str(obj.get("apiVersion")), str(obj.get("kind")))
        return kind.path(namespace(obj), name(obj))

    def get(self, obj: Object) -> Object:
        """Return the live object of the same kind, namespace and name.

        Raises:
            ApiError: With `not_found` when there is none.
        """
        return self.request("GET", self.path_of(obj))

    def list_objects(self, api_version: str, kind: str, where: str) -> list[Object]:
        """Return the objects of a kind in a namespace, with the apiVersion and kind that lists leave out."""
        items = self.request("GET", self.resource_type(api_version, kind).path(where)).get("items") or []
        return [{"apiVersion": api_version, "kind": kind, **item} for item in items]

    def apply(self, obj: Object, *, manager: str, force: bool, dry_run: bool) -> Object:
        """Apply the object on the server's side; a field that the kind does not have is an error."""
        query = {"fieldManager": manager, "force": "true" if force else "false", "fieldValidation": "Strict"}
        dry = {"dryRun": "All"} if dry_run else {}
        return self.request("PATCH", self.path_of(obj), {**query, **dry}, obj, "application/apply-patch+yaml")

    def replace(self, obj: Object, *, manager: str, dry_run: bool) -> Object:
        """Replace the existing object, whose resourceVersion `obj` carries."""
        query = {"fieldManager": manager, "fieldValidation": "Strict"} | ({"dryRun": "All"} if dry_run else {})
        return self.request("PUT", self.path_of(obj), query, obj)

    def json_patch(self, obj: Object, operations: list[dict[str, Any]]) -> Object:
        """Change the object by a JSON patch (RFC 6902)."""
        return self.request("PATCH", self.path_of(obj), {}, operations, "application/json-patch+json")

    def delete(self, obj: Object, propagation: str) -> Object:
        """Start the deletion."""
        options = {"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": propagation}
        return self.request("DELETE", self.path_of(obj), {}, options)

    def openapi(self, api_version: str) -> dict[str, Any]:
        """Return the OpenAPI v3 document of a group version."""
        return self.request("GET", f"/openapi/v3/{_root(api_version)}")

    def request(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None = None,
        body: Any = None,
        content_type: str = "application/json",
    ) -> dict[str, Any]:
        """Send a request and return the JSON answer.

        Raises:
            ApiError: The API server refused.
            Unreachable: There was no answer.
        """
        url = f"{self.connection.server}{path}" + (f"?{urlencode(query)}" if query else "")
        data = None if body is None else json.dumps(body).encode()
        response = self._send(method, url, data, content_type)
        if response.status == 401 and self._credentials.renewable:
            self._credentials.forget()
            response = self._send(method, url, data, content_type)
        if response.status >= 400:
            raise _error(response)
        return dict(json.loads(response.data))

    def _send(self, method: str, url: str, data: bytes | None, content_type: str) -> urllib3.BaseHTTPResponse:
        headers = {"Accept": "application/json", "Content-Type": content_type, **self._credentials.headers()}
        try:
            return self._pool_manager().request(
                method, url, body=data, headers=headers, timeout=TIMEOUT, retries=_RETRIES
            )
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise Unreachable(
                f'cluster "{self.connection.name}" at {self.connection.server}: {_cause(error)}'
            ) from error

    def _pool_manager(self) -> urllib3.PoolManager:
        with self._lock:
            if self._pool is None:
                options: dict[str, Any] = {}
                if self.connection.server.startswith("https"):
                    options["ssl_context"] = _ssl_context(self.connection)
                    if self.connection.server_name:
                        options["server_hostname"] = options["assert_hostname"] = self.connection.server_name
                self._pool = urllib3.PoolManager(num_pools=2, maxsize=CONNECTIONS, block=False, **options)
            return self._pool


def _root(api_version: str) -> str:
    return f"apis/{api_version}" if "/" in api_version else f"api/{api_version}"


def _ssl_context(connection: Connection) -> ssl.SSLContext:
    context = ssl.create_default_context(cadata=connection.ca_pem)
    if not connection.verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if connection.certificate_pem and connection.key_pem:
        with _memory_file(connection.certificate_pem + "\n" + connection.key_pem) as path:
            context.load_cert_chain(path)
    return context


@contextlib.contextmanager
def _memory_file(text: str) -> Iterator[str]:
    """Keep a private key off the disk: OpenSSL reads it from a path only."""
    descriptor = os.memfd_create("client-certificate")
    try:
        os.write(descriptor, text.encode())
        yield f"/proc/self/fd/{descriptor}"
    finally:
        os.close(descriptor)


def _error(response: urllib3.BaseHTTPResponse) -> ApiError:
    """Return the error that a Status object describes, or the text of a proxy's answer."""
    text = response.data.decode(errors="replace").strip()
    try:
        status = dict(json.loads(text))
    except (ValueError, TypeError):
        status = {}
    message = str(status.get("message") or text or f"HTTP status {response.status}")
    code = int(status.get("code") or response.status)
    return ApiError(code, str(status.get("reason") or ""), message, status.get("details"))


def _cause(error: BaseException) -> str:
    """Return the innermost message: urllib3 wraps it in the address and the number of tries."""
    reason = getattr(error, "reason", None)
    return _cause(reason) if isinstance(reason, BaseException) else str(error) or type(error).__name__
