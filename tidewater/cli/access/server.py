"""Requests to the API server and what its answers mean. Implements `tidewater.cli.kube.Cluster` with httpx2.

connect(Access(namespace="training")).get(JOBS, "digits")
"""

from __future__ import annotations

import json
import os
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from urllib.parse import quote

import httpx2

from tidewater.cli.access import answers, kubeconfig
from tidewater.cli.access.client import ANSWER_SECONDS, CONNECT_SECONDS, client
from tidewater.cli.errors import REACH, ClusterError, LoginFailed, Unreachable
from tidewater.cli.kube import (
    ALL_NAMESPACES,
    EVERYTHING,
    NAMESPACES,
    PODS,
    Access,
    Change,
    Kind,
    Listing,
    LogOptions,
    Object,
    Selection,
    Table,
)

FIELD_MANAGER = "tidewater"

_AS_TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
_MERGE_PATCH = "application/merge-patch+json"
_UNAUTHORIZED = 401
_GRACE_SECONDS = 10.0
_PAGE = 500
_STRANGE = "it does not answer as a Kubernetes API server does"


def connect(access: Access, environment: Mapping[str, str] | None = None) -> Server:
    """Return the cluster that the flags and the kubeconfig name. Nothing is sent yet.

    Raises:
        NoKubeconfig: there is none, or it is wrong.
    """
    return Server(kubeconfig.load(access, os.environ if environment is None else environment))


class Server:
    """One API server, and the user of one context. See `tidewater.cli.kube.Cluster`."""

    def __init__(self, connection: kubeconfig.Connection) -> None:
        self._connection = connection
        self._http = client(connection)
        name = connection.cluster.get("tls-server-name")
        self._extensions: dict[str, Any] = {"sni_hostname": str(name)} if name else {}

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
        return self._object("GET", self._path_of(kind, name, namespace), kind=kind)

    def list(self, kind: Kind, selection: Selection = EVERYTHING) -> Listing:
        """Return the selected objects, read in pages."""
        parameters = {**_selectors(selection), "limit": str(_PAGE)}
        items: list[Object] = []
        while True:
            page = self._object("GET", self._path(kind, selection.namespace), parameters, kind=kind)
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
        return answers.table(self._object("GET", path, parameters, kind=kind, accept=_AS_TABLE))

    def watch(self, kind: Kind, selection: Selection, since: str, seconds: float) -> Iterator[Change]:
        """Yield changes after `since`."""
        whole = max(1, round(seconds))
        parameters = {
            **_selectors(selection),
            "watch": "true",
            "resourceVersion": since,
            "timeoutSeconds": str(whole),
        }
        path = self._path(kind, selection.namespace)
        with self._stream(path, parameters, kind=kind, quiet_seconds=whole + _GRACE_SECONDS) as lines:
            for line in lines:
                try:
                    change = json.loads(line)
                    type, found = change["type"], change["object"]
                except (ValueError, LookupError, TypeError):
                    raise self._unreachable(_STRANGE) from None
                if type == "ERROR":
                    raise answers.refused(answers.answer_of(found))
                yield Change(type, found)

    def create(self, kind: Kind, object: Object, *, dry_run: bool = False) -> Object:
        """Create the object. Unknown fields are refused, as by `kubectl create`."""
        parameters = {"fieldManager": FIELD_MANAGER, "fieldValidation": "Strict"}
        if dry_run:
            parameters["dryRun"] = "All"
        path = self._path(kind, object.get("metadata", {}).get("namespace", ""))
        return self._object("POST", path, parameters, kind=kind, body=object)

    def patch(self, kind: Kind, name: str, change: Object, *, subresource: str = "", namespace: str = "") -> Object:
        """Apply a JSON merge patch."""
        path = self._path_of(kind, name, namespace) + (f"/{subresource}" if subresource else "")
        return self._object("PATCH", path, {"fieldManager": FIELD_MANAGER}, kind=kind, body=change)

    def delete(self, kind: Kind, name: str, namespace: str = "") -> None:
        """Begin to delete an object."""
        self._object("DELETE", self._path_of(kind, name, namespace), {"propagationPolicy": "Background"}, kind=kind)

    def log(self, pod: str, options: LogOptions, namespace: str = "") -> Iterator[str]:
        """Yield the lines of a container's log."""
        parameters = {
            "container": options.container,
            "follow": "true" if options.follow else "",
            "timestamps": "true" if options.timestamps else "",
            "tailLines": "" if options.tail is None else str(options.tail),
            "sinceSeconds": "" if options.since_seconds is None else str(options.since_seconds),
            "sinceTime": options.since_time,
        }
        given = {key: value for key, value in parameters.items() if value}
        path = f"{self._path_of(PODS, pod, namespace)}/log"
        # A worker may be silent for as long as it likes.
        quiet = None if options.follow else ANSWER_SECONDS
        with self._stream(path, given, kind=PODS, quiet_seconds=quiet) as lines:
            yield from lines

    def proxy(self, pod: str, port: int, path: str, namespace: str = "") -> str:
        """Return what a pod's HTTP server answers."""
        return self.read(f"{self._path_of(PODS, pod, namespace)}:{port}/proxy/{path.lstrip('/')}")

    def read(self, path: str) -> str:
        """Return the answer to a GET as text."""
        return self._send(self._request("GET", path, accept="*/*")).text

    def _path(self, kind: Kind, namespace: str) -> str:
        """Return the path of a collection."""
        root = f"/apis/{kind.group}/{kind.version}" if kind.group else f"/api/{kind.version}"
        everywhere = not kind.namespaced or namespace == ALL_NAMESPACES
        where = "" if everywhere else f"/namespaces/{_segment(NAMESPACES, namespace or self.namespace)}"
        return f"{root}{where}/{kind.plural}"

    def _path_of(self, kind: Kind, name: str, namespace: str) -> str:
        """Return the path of one object, and never that of the collection: a DELETE of it deletes every object."""
        return f"{self._path(kind, namespace)}/{_segment(kind, name)}"

    def _object(
        self,
        method: str,
        path: str,
        parameters: Mapping[str, str] | None = None,
        *,
        kind: Kind,
        body: Object | None = None,
        accept: str = "application/json",
    ) -> Object:
        response = self._send(self._request(method, path, parameters, body=body, accept=accept), kind)
        try:
            found = response.json()
        except ValueError:
            raise self._unreachable(_STRANGE) from None
        if not isinstance(found, dict):
            raise self._unreachable(_STRANGE)
        return found

    def _request(
        self,
        method: str,
        path: str,
        parameters: Mapping[str, str] | None = None,
        *,
        body: Object | None = None,
        accept: str = "application/json",
    ) -> httpx2.Request:
        headers = {"Accept": accept}
        if body is not None:
            headers["Content-Type"] = _MERGE_PATCH if method == "PATCH" else "application/json"
        content = None if body is None else json.dumps(body).encode()
        return self._http.build_request(
            method, path, params=parameters, headers=headers, content=content, extensions=dict(self._extensions)
        )

    def _send(self, request: httpx2.Request, kind: Kind | None = None) -> httpx2.Response:
        """Send a request and return the whole answer, which is a success."""
        with self._reached():
            response = self._http.send(request)
        self._accepted(response, kind)
        return response

    @contextmanager
    def _stream(
        self, path: str, parameters: Mapping[str, str], *, kind: Kind, quiet_seconds: float | None
    ) -> Generator[Iterator[str]]:
        """Yield the lines of an answer as they come; no line for `quiet_seconds` is an error."""
        request = self._request("GET", path, parameters)
        timeout = httpx2.Timeout(ANSWER_SECONDS, connect=CONNECT_SECONDS, read=quiet_seconds)
        request.extensions["timeout"] = timeout.as_dict()
        with self._reached():
            response = self._http.send(request, stream=True)
            try:
                if response.is_error:
                    response.read()
                self._accepted(response, kind)
                yield _lines(response)
            finally:
                response.close()

    @contextmanager
    def _reached(self) -> Generator[None]:
        """Raise Unreachable for whatever goes wrong on the way."""
        try:
            yield
        except httpx2.ConnectTimeout:
            raise self._unreachable(f"no connection within {CONNECT_SECONDS:.0f} s") from None
        except httpx2.TimeoutException:
            raise self._unreachable("the answer takes too long") from None
        except httpx2.TransportError as error:
            raise self._unreachable(str(error) or type(error).__name__) from None

    def _accepted(self, response: httpx2.Response, kind: Kind | None) -> None:
        """Raise what a refusal means."""
        if response.status_code == _UNAUTHORIZED:
            raise LoginFailed(
                f"the API server {self.server} does not accept the credentials of context {self._connection.context}",
                "Log in again, or choose another context with --context.",
            )
        if not response.is_success:
            raise answers.error_of(response.status_code, response.text, kind)

    def _unreachable(self, reason: str) -> Unreachable:
        return Unreachable(
            f"the API server {self.server} of context {self._connection.context} can't be reached: {reason}", REACH
        )


def _lines(response: httpx2.Response) -> Iterator[str]:
    """Yield the lines of a stream as text, without their ends.

    Not by `iter_lines`: for that one a line also ends with a carriage return, as in a progress bar, and with U+0085 or
    U+2028, which JSON may hold.
    """
    rest: list[bytes] = []
    for chunk in response.iter_bytes():
        *complete, last = chunk.split(b"\n")
        for line in complete:
            yield _text(b"".join((*rest, line)))
            rest = []
        rest.append(last)
    if end := b"".join(rest):
        yield _text(end)


def _text(line: bytes) -> str:
    return line.decode(errors="replace").removesuffix("\r")


def _segment(kind: Kind, name: str) -> str:
    """Return a name as one segment of a path.

    Raises:
        ClusterError: no object can have the name, and the URL would name something else.
    """
    if name in ("", ".", ".."):
        raise ClusterError(f"{name!r} is no name of a {kind.name}", "Use a name that `kubectl get` prints.")
    return quote(name, safe="")


def _selectors(selection: Selection) -> dict[str, str]:
    found = {"labelSelector": selection.labels, "fieldSelector": selection.fields}
    return {key: value for key, value in found.items() if value}
