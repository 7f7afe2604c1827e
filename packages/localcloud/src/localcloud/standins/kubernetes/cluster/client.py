"""What the plug-in asks of the API server; no other module sends it requests.

    cluster = Cluster(connection)
    cluster.apply(obj, manager="me", force=False, dry_run=True)

Many threads share one instance. Discovery is requested per group version, when needed.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from typing import Any, Final

from localcloud.standins.kubernetes.metadata import Object, name, namespace
from tidewater.kube.errors import ApiError, MissingKind, NotFound, Unreachable
from tidewater.kube.http import JSON, Http, Request
from tidewater.kube.kinds import Kind, root
from tidewater.kube.kubeconfig import Connection

PAUSE_SECONDS: Final = 0.2


class Cluster:
    """A client of one cluster. It sends nothing before the first call.

    A login plug-in must not read the plug-in's own input: it belongs to the engine, and its end ends the plug-in.
    """

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self._http = Http(connection, interactive=False)
        self._lock = threading.Lock()
        self._types: dict[str, dict[str, Kind]] = {}

    def version(self) -> Object:
        """Return the API server's version; the cheapest request that shows whether it can be reached."""
        return self.request("GET", "/version")

    def api_versions(self) -> list[str]:
        """Return `GROUP/VERSION` and `GROUP/VERSION/KIND` of everything that is served, as charts ask for them."""
        groups = self.request("GET", "/apis").get("groups") or []
        found: dict[str, None] = {}
        for each in ["v1", *(version["groupVersion"] for group in groups for version in group["versions"])]:
            found[each] = None
            try:
                listing = self.request("GET", root(each))
            except ApiError:  # the API is registered, but its server is gone; helm goes on without it, too
                continue
            found |= {f"{each}/{item['kind']}": None for item in listing.get("resources") or []}
        return list(found)

    def resource_type(self, api_version: str, kind: str) -> Kind:
        """Return how a kind is served.

        Raises:
            MissingKind: It isn't.
        """
        with self._lock:
            known = self._types.get(api_version, {})
        if kind not in known:
            known = self._discover(api_version)
        if kind not in known:
            raise MissingKind(f'no matches for kind "{kind}" in version "{api_version}"')
        return known[kind]

    def _discover(self, api_version: str) -> dict[str, Kind]:
        try:
            listing = self.request("GET", root(api_version))
        except NotFound:
            listing = {}
        found = {
            item["kind"]: Kind(api_version, item["kind"], item["name"], bool(item["namespaced"]))
            for item in listing.get("resources") or []
            if "/" not in item["name"]
        }
        with self._lock:
            self._types[api_version] = found
        return found

    def path_of(self, obj: Object) -> str:
        """Return the URL path of an object."""
        kind = self.resource_type(str(obj.get("apiVersion")), str(obj.get("kind")))
        return kind.path(namespace(obj) or "default", name(obj))

    def get(self, obj: Object) -> Object:
        """Return the live object of the same kind, namespace and name.

        Raises:
            NotFound: There is none.
        """
        return self.request("GET", self.path_of(obj))

    def list_objects(self, api_version: str, kind: str, where: str) -> list[Object]:
        """Return the objects of a kind in a namespace, with the apiVersion and kind that lists leave out."""
        path = self.resource_type(api_version, kind).path(where or "default")
        items = self.request("GET", path).get("items") or []
        return [{"apiVersion": api_version, "kind": kind, **item} for item in items]

    def apply(self, obj: Object, *, manager: str, force: bool, dry_run: bool) -> Object:
        """Apply the object on the server's side; a field that the kind does not have is an error."""
        query = {"fieldManager": manager, "force": "true" if force else "false", "fieldValidation": "Strict"}
        dry = {"dryRun": "All"} if dry_run else {}
        return self.request("PATCH", self.path_of(obj), {**query, **dry}, obj, "application/apply-patch+yaml")

    def replace(self, obj: Object, *, manager: str, dry_run: bool) -> Object:
        """Replace the existing object; `obj` has its resourceVersion."""
        query = {"fieldManager": manager, "fieldValidation": "Strict"} | ({"dryRun": "All"} if dry_run else {})
        return self.request("PUT", self.path_of(obj), query, obj)

    def json_patch(self, obj: Object, operations: list[dict[str, Any]]) -> Object:
        """Change the object by a JSON patch (RFC 6902)."""
        return self.request("PATCH", self.path_of(obj), {}, operations, "application/json-patch+json")

    def delete(self, obj: Object, propagation: str) -> Object:
        """Start the deletion."""
        options = {"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": propagation}
        return self.request("DELETE", self.path_of(obj), {}, options)

    def openapi(self, api_version: str) -> Object:
        """Return the OpenAPI v3 document of a group version."""
        return self.request("GET", f"/openapi/v3/{root(api_version)}")

    def request(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None = None,
        body: Any = None,
        content_type: str = JSON,
    ) -> Object:
        """Send a request and return the JSON answer.

        It is sent again once without an answer: a second apply or deletion changes nothing, and the other requests
        carry a resourceVersion.

        Raises:
            ClusterError: The API server refused, or there was no answer.
        """
        request = Request(method, path, query or {}, body, content_type)
        try:
            return self._http.object(request)
        except Unreachable:
            time.sleep(PAUSE_SECONDS)
        try:
            return self._http.object(request)
        except Unreachable as error:
            raise Unreachable(error.message) from error  # its remedy is for a command with flags
