"""The only module that speaks to an API server.

    cluster = Cluster(connection)
    cluster.apply(obj, manager="me", force=False, dry_run=True)

One instance serves many threads over a pool of connections. Discovery is asked per group version, when first needed.
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

from localcloud.standins.kubernetes.credentials import Credentials
from localcloud.standins.kubernetes.errors import ApiError, UnknownKind, Unreachable, from_status
from localcloud.standins.kubernetes.kubeconfig import Connection
from localcloud.standins.kubernetes.metadata import Object, name, namespace

CONNECTIONS: Final = 64
TIMEOUT: Final = urllib3.Timeout(connect=5, read=60)
_APPLY: Final = "application/apply-patch+yaml"
_JSON_PATCH: Final = "application/json-patch+json"


@dataclass(frozen=True)
class ResourceType:
    """How the API server serves a kind."""

    api_version: str
    plural: str
    namespaced: bool

    def path(self, namespace: str, name: str = "") -> str:
        """The URL path of the collection in a namespace, or of one object of it."""
        root = f"/apis/{self.api_version}" if "/" in self.api_version else f"/api/{self.api_version}"
        where = f"/namespaces/{quote(namespace or 'default')}" if self.namespaced else ""
        return f"{root}{where}/{self.plural}" + (f"/{quote(name)}" if name else "")


class Cluster:
    """A client of one cluster. Nothing is asked before the first call."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self._credentials = Credentials(connection)
        self._lock = threading.Lock()
        self._types: dict[str, dict[str, ResourceType]] = {}
        self._pool: urllib3.PoolManager | None = None

    def version(self) -> dict[str, Any]:
        """The API server's version; the cheapest question that shows whether it can be reached."""
        return self.request("GET", "/version")

    def resource_type(self, api_version: str, kind: str) -> ResourceType:
        """How a kind is served.

        Raises:
            UnknownKind: it isn't.
        """
        with self._lock:
            known = self._types.get(api_version)
        if known is None or kind not in known:
            known = self._discover(api_version)
        if kind not in known:
            raise UnknownKind(api_version, kind)
        return known[kind]

    def _discover(self, api_version: str) -> dict[str, ResourceType]:
        root = "apis" if "/" in api_version else "api"
        try:
            listing = self.request("GET", f"/{root}/{api_version}")
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
        """The URL path of an object."""
        kind = self.resource_type(str(obj.get("apiVersion")), str(obj.get("kind")))
        return kind.path(namespace(obj), name(obj))

    def get(self, obj: Object) -> Object:
        """The live object of the same kind, namespace and name.

        Raises:
            ApiError: with `not_found` when there is none.
        """
        return self.request("GET", self.path_of(obj))

    def list_objects(self, api_version: str, kind: str, where: str, *, labels: str = "") -> list[Object]:
        """The objects of a kind in a namespace, with the apiVersion and kind that lists leave out."""
        path = self.resource_type(api_version, kind).path(where)
        items = self.request("GET", path, {"labelSelector": labels} if labels else {}).get("items") or []
        return [{"apiVersion": api_version, "kind": kind, **item} for item in items]

    def apply(self, obj: Object, *, manager: str, force: bool, dry_run: bool) -> Object:
        """Server-side apply, refusing fields that the kind does not have."""
        query = {"fieldManager": manager, "force": "true" if force else "false", "fieldValidation": "Strict"}
        if dry_run:
            query["dryRun"] = "All"
        return self.request("PATCH", self.path_of(obj), query, obj, _APPLY)

    def replace(self, obj: Object, *, manager: str, dry_run: bool) -> Object:
        """Puts the object in the place of the existing one, whose resourceVersion it carries."""
        query = {"fieldManager": manager, "fieldValidation": "Strict"} | ({"dryRun": "All"} if dry_run else {})
        return self.request("PUT", self.path_of(obj), query, obj)

    def json_patch(self, obj: Object, operations: list[dict[str, Any]]) -> Object:
        """Changes the object by a JSON patch (RFC 6902)."""
        return self.request("PATCH", self.path_of(obj), {}, operations, _JSON_PATCH)

    def delete(self, obj: Object, propagation: str) -> Object:
        """Starts the deletion."""
        options = {"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": propagation}
        return self.request("DELETE", self.path_of(obj), {}, options)

    def watch(self, collection: str, query: Mapping[str, str], seconds: int) -> Iterator[tuple[str, Object]]:
        """Events of a collection as (type, object), until `seconds` are over. May end early; the caller asks anew."""
        asked = {**query, "watch": "true", "timeoutSeconds": str(max(1, seconds))}
        response = self._send("GET", collection, asked, None, "application/json", stream=True)
        try:
            pending = b""
            for chunk in response.stream(65536):
                *lines, pending = (pending + chunk).split(b"\n")
                for line in lines:
                    event = json.loads(line)
                    yield event["type"], event["object"]
        except (urllib3.exceptions.HTTPError, OSError):
            return
        finally:
            response.close()

    def openapi(self, api_version: str) -> dict[str, Any]:
        """The OpenAPI v3 document of a group version."""
        root = "apis" if "/" in api_version else "api"
        return self.request("GET", f"/openapi/v3/{root}/{api_version}")

    def request(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None = None,
        body: Any = None,
        content_type: str = "application/json",
    ) -> dict[str, Any]:
        """Sends a request and gives the JSON answer.

        Raises:
            ApiError: the API server refused.
            Unreachable: there was no answer.
        """
        response = self._send(method, path, query or {}, body, content_type)
        return dict(json.loads(response.data))

    def _send(
        self, method: str, path: str, query: Mapping[str, str], body: Any, content_type: str, *, stream: bool = False
    ) -> urllib3.BaseHTTPResponse:
        response = self._once(method, path, query, body, content_type, stream)
        if response.status == 401 and self._credentials.renewable:
            response.close()
            self._credentials.forget()
            response = self._once(method, path, query, body, content_type, stream)
        if response.status >= 400:
            raise _error(response)
        return response

    def _once(
        self, method: str, path: str, query: Mapping[str, str], body: Any, content_type: str, stream: bool
    ) -> urllib3.BaseHTTPResponse:
        headers = {"Accept": "application/json", "Content-Type": content_type, **self._credentials.headers()}
        url = f"{self.connection.server}{path}" + (f"?{urlencode(query)}" if query else "")
        data = None if body is None else json.dumps(body).encode()
        try:
            pool = self._pool_manager()
            return pool.request(
                method, url, body=data, headers=headers, timeout=TIMEOUT, preload_content=not stream, retries=_RETRIES
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
                    options["ssl_context"] = ssl_context(self.connection)
                    if self.connection.server_name:
                        options["server_hostname"] = options["assert_hostname"] = self.connection.server_name
                self._pool = urllib3.PoolManager(num_pools=2, maxsize=CONNECTIONS, block=False, **options)
            return self._pool


_RETRIES: Final = urllib3.Retry(
    total=2, connect=1, read=1, status=0, other=0, redirect=0, backoff_factor=0.2, allowed_methods=None
)
"""A pooled connection may have been closed meanwhile. Any request may arrive twice: an apply or a deletion changes
nothing the second time, the others carry a resourceVersion."""


def ssl_context(connection: Connection) -> ssl.SSLContext:
    """The TLS settings: whom to trust and, with a client certificate, who we are."""
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
    """A file that is nowhere on disk: OpenSSL wants a path, and a private key doesn't belong into /tmp."""
    descriptor = os.memfd_create("client-certificate")
    try:
        os.write(descriptor, text.encode())
        yield f"/proc/self/fd/{descriptor}"
    finally:
        os.close(descriptor)


def _error(response: urllib3.BaseHTTPResponse) -> ApiError:
    text = response.data.decode(errors="replace")
    try:
        status = json.loads(text)
    except ValueError:
        status = {}
    return from_status(response.status, status if isinstance(status, dict) else {}, text.strip())


def _cause(error: BaseException) -> str:
    """The innermost message: urllib3 wraps it in the address and the number of tries."""
    reason = getattr(error, "reason", None)
    return _cause(reason) if isinstance(reason, BaseException) else str(error) or type(error).__name__
