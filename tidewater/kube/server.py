"""A `Cluster` over HTTP.

connect(Access(namespace="training")).get(JOBS, "digits")
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from typing import Any

from tidewater.kube import errors, kubeconfig
from tidewater.kube.cluster import ALL_NAMESPACES, EVERYTHING, Change, Listing, LogOptions, Object, Selection, Table
from tidewater.kube.http import ANSWER_SECONDS, Http, Request
from tidewater.kube.kinds import PODS, Kind
from tidewater.kube.kubeconfig import Access

FIELD_MANAGER = "tidewater"
MERGE_PATCH = "application/merge-patch+json"

_AS_TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
_GRACE_SECONDS = 10.0
_PAGE = 500


def connect(access: Access, environment: Mapping[str, str] | None = None, *, interactive: bool = True) -> Server:
    """Return the cluster that the flags and the kubeconfig name. Nothing is sent yet.

    Args:
        access: the flags.
        environment: None: that of this process.
        interactive: whether a login plug-in may talk to the user on the terminal; else it has a limit.

    Raises:
        NoKubeconfig: there is none, or it is wrong.
    """
    return Server(kubeconfig.load(access, os.environ if environment is None else environment), interactive=interactive)


class Server:
    """One API server, and the user of one context. See `tidewater.kube.cluster.Cluster`."""

    def __init__(self, connection: kubeconfig.Connection, *, interactive: bool = True) -> None:
        self._connection = connection
        self._http = Http(connection, interactive=interactive)

    @property
    def namespace(self) -> str:
        """Return the default namespace."""
        return self._connection.namespace

    @property
    def server(self) -> str:
        """Return the URL of the API server."""
        return self._connection.server

    def get(self, kind: Kind, name: str, namespace: str = "") -> Object:
        """Return an object."""
        return self._http.object(Request("GET", self._path_of(kind, name, namespace), kind=kind))

    def list(self, kind: Kind, selection: Selection = EVERYTHING) -> Listing:
        """Return the selected objects, read in pages."""
        parameters = {**_selectors(selection), "limit": str(_PAGE)}
        items: list[Object] = []
        while True:
            page = self._http.object(Request("GET", self._path(kind, selection.namespace), parameters, kind=kind))
            items += page.get("items") or []
            metadata = page.get("metadata") or {}
            more = metadata.get("continue")
            if not more:
                return Listing(items, str(metadata.get("resourceVersion", "")))
            parameters["continue"] = more

    def table(self, kind: Kind, selection: Selection = EVERYTHING) -> Table:
        """Return the selected objects as `kubectl get` prints them."""
        parameters = {**_selectors(selection), "includeObject": "Metadata"}
        path = self._path(kind, selection.namespace)
        return _table(self._http.object(Request("GET", path, parameters, kind=kind, accept=_AS_TABLE)))

    def watch(self, kind: Kind, selection: Selection, since: str, seconds: float) -> Iterator[Change]:
        """Yield changes after `since`."""
        whole = max(1, round(seconds))
        parameters = {
            **_selectors(selection),
            "watch": "true",
            "resourceVersion": since,
            "timeoutSeconds": str(whole),
        }
        request = Request("GET", self._path(kind, selection.namespace), parameters, kind=kind)
        with self._http.lines(request, quiet_seconds=whole + _GRACE_SECONDS) as lines:
            for line in lines:
                try:
                    change = json.loads(line)
                    type, found = change["type"], change["object"]
                except (ValueError, LookupError, TypeError):
                    raise self._http.strange() from None
                if type == "ERROR":
                    raise errors.error_of_status(int(found.get("code") or 0), found)
                yield Change(type, found)

    def create(self, kind: Kind, object: Object, *, dry_run: bool = False) -> Object:
        """Create the object. Unknown fields are refused, as by `kubectl create`."""
        parameters = {"fieldManager": FIELD_MANAGER, "fieldValidation": "Strict"}
        if dry_run:
            parameters["dryRun"] = "All"
        path = self._path(kind, object.get("metadata", {}).get("namespace", ""))
        return self._http.object(Request("POST", path, parameters, object, kind=kind))

    def patch(self, kind: Kind, name: str, change: Object, *, subresource: str = "", namespace: str = "") -> Object:
        """Apply a JSON merge patch."""
        path = self._path_of(kind, name, namespace, subresource)
        return self._http.object(
            Request("PATCH", path, {"fieldManager": FIELD_MANAGER}, change, MERGE_PATCH, kind=kind)
        )

    def delete(self, kind: Kind, name: str, namespace: str = "") -> None:
        """Begin to delete an object."""
        path = self._path_of(kind, name, namespace)
        self._http.object(Request("DELETE", path, {"propagationPolicy": "Background"}, kind=kind))

    def log(self, pod: str, options: LogOptions, namespace: str = "") -> Iterator[str]:
        """Yield the lines of a container's log."""
        parameters = {
            "container": options.container,
            "follow": "true" if options.follow else "",
            "previous": "true" if options.previous else "",
            "timestamps": "true" if options.timestamps else "",
            "tailLines": "" if options.tail is None else str(options.tail),
            "sinceSeconds": "" if options.since_seconds is None else str(options.since_seconds),
            "sinceTime": options.since_time,
        }
        given = {key: value for key, value in parameters.items() if value}
        request = Request("GET", self._path_of(PODS, pod, namespace, "log"), given, kind=PODS)
        # A worker may be silent for as long as it likes.
        with self._http.lines(request, quiet_seconds=None if options.follow else ANSWER_SECONDS) as lines:
            yield from lines

    def proxy(self, pod: str, port: int, path: str, namespace: str = "") -> str:
        """Return what a pod's HTTP server answers."""
        return self.read(f"{self._path_of(PODS, pod, namespace)}:{port}/proxy/{path.lstrip('/')}")

    def read(self, path: str) -> str:
        """Return the answer to a GET as text."""
        return self._http.text(Request("GET", path, accept="*/*"))

    def _path(self, kind: Kind, namespace: str) -> str:
        """Return the path of a collection."""
        return kind.path(None if namespace == ALL_NAMESPACES else namespace or self.namespace)

    def _path_of(self, kind: Kind, name: str, namespace: str, subresource: str = "") -> str:
        """Return the path of one object, and never that of the collection: a DELETE of it deletes every object."""
        return kind.path(namespace or self.namespace, name, subresource)


def _selectors(selection: Selection) -> dict[str, str]:
    found = {"labelSelector": selection.labels, "fieldSelector": selection.fields}
    return {key: value for key, value in found.items() if value}


def _table(answer: Object) -> Table:
    """Return the cells of a `Table` object, without the columns that `kubectl get` shows only with `-o wide`.

    https://kubernetes.io/docs/reference/using-api/api-concepts/#receiving-resources-as-tables
    """
    definitions = answer.get("columnDefinitions") or []
    shown = [index for index, column in enumerate(definitions) if not column.get("priority")]
    rows = answer.get("rows") or []
    metadata = [row["object"]["metadata"] for row in rows]
    return Table(
        columns=[definitions[index]["name"] for index in shown],
        rows=[[_cell(row["cells"][index]) for index in shown] for row in rows],
        names=[(str(each.get("namespace", "")), str(each["name"])) for each in metadata],
    )


def _cell(value: Any) -> str:
    return "<none>" if value is None else str(value)
