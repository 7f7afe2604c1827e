"""Stops the writes of a process that may no longer be the leader.

    fence = Fence()
    cluster = Fenced(server, fence)
    fence.open_until(clock() + 7)
    await cluster.create(PODS, manifest)    # raises NotLeader 7 seconds later

The leader opens the fence for some seconds with every renewal of its Lease, for less time than the Lease lasts. A
process that was frozen, or that can't renew it, therefore stops by itself before another can become the
leader. A request that is already on its way then can't be recalled; it does no harm, since pods have fixed names and
deletions and statuses name the uid or resourceVersion that they are about.
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Callable

from tidewater.controller.cluster.client import Cluster, Manifest, Page, Ref, Source, WatchEvent
from tidewater.kube.errors import ClusterError
from tidewater.kube.kinds import Kind


class NotLeader(ClusterError):
    """The request was not sent, since this process may no longer be the leader."""


def uptime() -> float:
    """Return seconds since the machine started. Goes on while the process or the machine is suspended."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Fence:
    """Open until a moment that the leader moves on. Closed at first.

    Args:
        clock: Returns seconds that never go back.
    """

    def __init__(self, clock: Callable[[], float] = uptime) -> None:
        self._clock = clock
        self._until = float("-inf")

    def now(self) -> float:
        """Return the time on the fence's clock."""
        return self._clock()

    @property
    def open(self) -> bool:
        """Return whether this process is the leader for certain."""
        return self._clock() < self._until

    @property
    def left(self) -> float:
        """Return for how many seconds the fence is still open; 0 if it is closed."""
        return max(0.0, self._until - self._clock())

    def open_until(self, moment: float) -> None:
        """Open the fence until `moment` on its clock."""
        self._until = moment

    def close(self) -> None:
        """Close the fence now."""
        self._until = float("-inf")

    def check(self) -> None:
        """Raise NotLeader if the fence is closed."""
        if not self.open:
            raise NotLeader("the Lease was not renewed in time: another replica may be the leader")


class Fenced:
    """A ``Cluster`` that sends writes only while the fence is open. Reads are always sent."""

    def __init__(self, cluster: Cluster, fence: Fence) -> None:
        self._cluster = cluster
        self._fence = fence

    async def list(self, source: Source, token: str = "") -> Page:
        """See ``Cluster.list``."""
        return await self._cluster.list(source, token)

    def watch(self, source: Source, version: str) -> AsyncGenerator[WatchEvent, None]:
        """See ``Cluster.watch``."""
        return self._cluster.watch(source, version)

    async def get(self, ref: Ref) -> Manifest:
        """See ``Cluster.get``."""
        return await self._cluster.get(ref)

    async def create(self, kind: Kind, manifest: Manifest) -> Manifest:
        """See ``Cluster.create``."""
        self._fence.check()
        return await self._cluster.create(kind, manifest)

    async def replace(self, kind: Kind, manifest: Manifest) -> Manifest:
        """See ``Cluster.replace``."""
        self._fence.check()
        return await self._cluster.replace(kind, manifest)

    async def patch(self, ref: Ref, change: Manifest, subresource: str | None = None) -> Manifest:
        """See ``Cluster.patch``."""
        self._fence.check()
        return await self._cluster.patch(ref, change, subresource)

    async def delete(self, ref: Ref, *, uid: str, grace: int | None = None) -> Manifest | None:
        """See ``Cluster.delete``."""
        self._fence.check()
        return await self._cluster.delete(ref, uid=uid, grace=grace)
