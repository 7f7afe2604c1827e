"""The API server as short programs see it. Objects are plain dicts, as in JSON.

    for pod in cluster.list(PODS, Selection(labels="job-name=digits")).items: ...

Programs take a `Cluster`, a Protocol, so that tests run them against a fake that keeps state. It is synchronous: a
command does one thing at a time, and those that follow several streams use one thread for each. Every method may be
called from any thread. Every method raises `errors.ClusterError` and nothing else when the cluster does not answer
or refuses.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from tidewater.kube.kinds import Kind

Object = dict[str, Any]

ALL_NAMESPACES = "*"
"""As a namespace: the objects of all of them. Only for `list`, `watch` and `table`."""


@dataclass(frozen=True)
class Selection:
    """Which objects of a kind: a namespace (empty: the cluster's own default), label and field selectors."""

    namespace: str = ""
    labels: str = ""
    fields: str = ""


EVERYTHING = Selection()


@dataclass(frozen=True)
class Listing:
    """Objects, and the resource version from which a watch goes on."""

    items: Sequence[Object]
    version: str


@dataclass(frozen=True)
class Change:
    """One event of a watch: ADDED, MODIFIED or DELETED, and the object."""

    type: str
    object: Object


@dataclass(frozen=True)
class Table:
    """Objects as `kubectl get` prints them: the API server makes the cells from the CRD's printer columns."""

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    names: Sequence[tuple[str, str]]
    """Namespace and name of the object of each row."""


@dataclass(frozen=True)
class LogOptions:
    """Which part of a container's log. None: no such limit."""

    container: str = ""
    follow: bool = False
    tail: int | None = None
    since_seconds: int | None = None
    since_time: str = ""
    """RFC 3339."""
    previous: bool = False
    """The log of the container's last run, before the kubelet restarted it."""
    timestamps: bool = False
    """Begin each line with its time, RFC 3339, and a space."""


class Cluster(Protocol):
    """One cluster, with the rights of one user. An empty `namespace` means `self.namespace`."""

    @property
    def namespace(self) -> str:
        """Return the namespace of the flag, else of the kubeconfig's context, else `default`."""

    @property
    def server(self) -> str:
        """Return the URL of the API server, for messages."""

    def get(self, kind: Kind, name: str, namespace: str = "") -> Object:
        """Return an object. Raises: NotFound."""

    def list(self, kind: Kind, selection: Selection = EVERYTHING) -> Listing:
        """Return the selected objects."""

    def table(self, kind: Kind, selection: Selection = EVERYTHING) -> Table:
        """Return the selected objects as a table."""

    def watch(self, kind: Kind, selection: Selection, since: str, seconds: float) -> Iterator[Change]:
        """Yield changes after resource version `since`; end after `seconds`, or earlier when the server ends it.

        Raises:
            Gone: the version is too old. The caller lists again.
        """

    def create(self, kind: Kind, object: Object, *, dry_run: bool = False) -> Object:
        """Create the object (in its own namespace, else in the default one) and return what the server stored."""

    def patch(self, kind: Kind, name: str, change: Object, *, subresource: str = "", namespace: str = "") -> Object:
        """Apply a JSON merge patch; return the object, or the subresource that was changed."""

    def delete(self, kind: Kind, name: str, namespace: str = "") -> None:
        """Begin to delete an object; what it owns is deleted by Kubernetes afterwards."""

    def log(self, pod: str, options: LogOptions, namespace: str = "") -> Iterator[str]:
        """Yield the lines of a container's log, without line ends."""

    def proxy(self, pod: str, port: int, path: str, namespace: str = "") -> str:
        """Return what a pod's HTTP server answers, asked through the API server. It needs `get` on `pods/proxy`."""

    def read(self, path: str) -> str:
        """Return the API server's answer to a GET of a path that is no object: `/version`, `/readyz`."""
