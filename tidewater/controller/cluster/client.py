"""What the controller asks of an API server, as a small protocol.

    page = await cluster.list(Source(PODS, selector="group-name=elastic.pytorch.org"))
    pod = await cluster.create(PODS, manifest)

Objects are plain dicts in Kubernetes' own form. ``http.ApiServer`` is the real implementation; the tests have one that
keeps its objects in memory.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from tidewater.elasticjob import names
from tidewater.kube.kinds import Kind

Manifest = dict[str, Any]

FIELD_MANAGER = names.FIELD_MANAGER
"""Owner of the fields that the controller writes, in ``metadata.managedFields``."""


NODE_CLAIMS = Kind("karpenter.sh/v1", "NodeClaim", "nodeclaims", namespaced=False)
NODE_POOLS = Kind("karpenter.sh/v1", "NodePool", "nodepools", namespaced=False)
NODE_CLASSES = Kind("karpenter.k8s.aws/v1", "EC2NodeClass", "ec2nodeclasses", namespaced=False)


@dataclass(frozen=True)
class Source:
    """Which objects to list and watch: a kind, in one namespace or in all (None), with label and field selectors.

    ``optional``: the controller works without these objects if the API server forbids to read them.
    """

    kind: Kind
    namespace: str | None = None
    selector: str = ""
    optional: bool = False
    fields: str = ""


def within(source: Source, namespaces: Sequence[str]) -> tuple[Source, ...]:
    """Return what to list and watch for the objects of these namespaces; none of them stands for all."""
    return tuple(replace(source, namespace=each) for each in namespaces) or (source,)


@dataclass(frozen=True)
class Ref:
    """One object of a kind, by namespace (None for kinds without) and name."""

    kind: Kind
    namespace: str | None
    name: str

    @property
    def path(self) -> str:
        """The object's path below the API server's address."""
        return self.kind.path(self.namespace, self.name)


@dataclass(frozen=True)
class Page:
    """A part of a list: its objects, the list's resourceVersion, and the token of the next part (empty: the last)."""

    items: list[Manifest]
    version: str
    token: str = ""


@dataclass(frozen=True)
class WatchEvent:
    """One event of a watch: ADDED, MODIFIED, DELETED or BOOKMARK, and the object."""

    type: str
    object: Manifest


class Cluster(Protocol):
    """An API server. Every method raises a ``ClusterError``; see ``tidewater.kube.errors`` for what each kind means."""

    async def list(self, source: Source, token: str = "") -> Page:
        """Return the first part of a list, or the one that ``token`` names. Raise Gone if the token has expired."""

    def watch(self, source: Source, version: str) -> AsyncGenerator[WatchEvent, None]:
        """Yield the events after a resourceVersion until the API server ends the watch.

        With an empty version, the objects that exist come first, as ADDED.

        Raise Gone if the version is too old, and Unavailable if nothing at all arrives for longer than the API server
        may be silent: the connection is dead.
        """

    async def get(self, ref: Ref) -> Manifest:
        """Return an object."""

    async def create(self, kind: Kind, manifest: Manifest) -> Manifest:
        """Create an object and return it as stored. Raise Exists if there is one of that name."""

    async def replace(self, kind: Kind, manifest: Manifest) -> Manifest:
        """Replace an object. Raise Conflict if it no longer has the manifest's resourceVersion."""

    async def patch(self, ref: Ref, change: Manifest, subresource: str | None = None) -> Manifest:
        """Apply a JSON merge patch and return the object.

        Raise Conflict if the patch contains ``metadata.resourceVersion`` and the object has another.
        """

    async def delete(self, ref: Ref, *, uid: str, grace: int | None = None) -> Manifest | None:
        """Delete an object, and return it if the API server returns it.

        Args:
            ref: The object.
            uid: Raise Conflict if the object of that name has another uid.
            grace: Seconds for the containers to end; None: what the object says.
        """
