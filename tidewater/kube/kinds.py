"""Kinds of objects, and their paths on the API server.

PODS.path("training", "digits-worker-0", "log")    # api/v1/namespaces/training/pods/digits-worker-0/log
"""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import quote

from tidewater.kube.errors import MissingKind, Refused

DNS_LABEL = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
"""Regular expression of a label of DNS (RFC 1123)."""

LONGEST_LABEL = 63
"""Characters of a label of DNS."""


@dataclass(frozen=True)
class Kind:
    """A kind of object: `api_version` and `kind` of its manifests, and its place in the API's paths.

    `install` says what to do if the API server does not know the kind.
    """

    api_version: str
    kind: str
    plural: str
    namespaced: bool = True
    install: str = ""

    @property
    def group(self) -> str:
        """Return the API group; empty for the core group."""
        return self.api_version.rpartition("/")[0]

    def path(self, namespace: str | None = None, name: str | None = None, subresource: str | None = None) -> str:
        """Return the path below the API server's address.

        Args:
            namespace: None or empty for objects of all namespaces, and for kinds without namespaces.
            name: one object; None for the collection.
            subresource: such as `status`; only with a name.

        Raises:
            Refused: no object can have the name: the path would be that of the collection, or of another object.
        """
        place = f"/namespaces/{_segment('Namespace', namespace)}" if self.namespaced and namespace else ""
        path = f"{root(self.api_version)}{place}/{self.plural}"
        if name is None:
            return path
        return f"{path}/{_segment(self.kind, name)}" + (f"/{subresource}" if subresource else "")


def root(api_version: str) -> str:
    """Return the path of a group version: `apis/apps/v1`, `api/v1`."""
    return f"apis/{api_version}" if "/" in api_version else f"api/{api_version}"


def missing(kind: Kind) -> MissingKind:
    """Return the error for a kind that the API server does not know."""
    definition = f"its CRD ({kind.plural}.{kind.group}) is not installed"
    return MissingKind(f"this cluster has no {kind.kind}: {definition}", kind.install, status=404)


def _segment(kind: str, name: str) -> str:
    """Return a name as one segment of a path."""
    if name in ("", ".", ".."):
        raise Refused(f"{name!r} is no name of a {kind}", "Use a name that `kubectl get` prints.")
    return quote(name, safe="")


PODS = Kind("v1", "Pod", "pods")
SERVICES = Kind("v1", "Service", "services")
SERVICE_ACCOUNTS = Kind("v1", "ServiceAccount", "serviceaccounts")
CONFIG_MAPS = Kind("v1", "ConfigMap", "configmaps")
CLAIMS = Kind("v1", "PersistentVolumeClaim", "persistentvolumeclaims")
EVENTS = Kind("v1", "Event", "events")
NODES = Kind("v1", "Node", "nodes", namespaced=False)
NAMESPACES = Kind("v1", "Namespace", "namespaces", namespaced=False)
DEPLOYMENTS = Kind("apps/v1", "Deployment", "deployments")
LEASES = Kind("coordination.k8s.io/v1", "Lease", "leases")
PRIORITY_CLASSES = Kind("scheduling.k8s.io/v1", "PriorityClass", "priorityclasses", namespaced=False)
DEFINITIONS = Kind("apiextensions.k8s.io/v1", "CustomResourceDefinition", "customresourcedefinitions", namespaced=False)
ACCESS_REVIEWS = Kind(
    "authorization.k8s.io/v1", "SelfSubjectAccessReview", "selfsubjectaccessreviews", namespaced=False
)
