"""Leader election with a Lease: of several replicas of the controller, one acts.

    election = Election(server, LeaseName("tidewater-system", "elasticjob-controller"), identity, fence=fence)
    await election.acquire()          # waits until this process is the leader
    try:
        await election.hold()         # renews; returns when this process may no longer act
    finally:
        await election.release()      # so that the next leader need not wait

The holder renews every `Terms.renew_seconds`. Another process takes the Lease when it has seen no renewal for
`Terms.duration_seconds`, measured on its own clock from when it saw the last one; clocks of different machines are
never compared. The holder's `fence` closes earlier, `Terms.fence_seconds` after it sent the last renewal that arrived.
Every write of the Lease names the resourceVersion that was read, so of two that take it one gets a Conflict.

From the death of a leader to the next one: at most `duration_seconds` + `poll_seconds` + the time of three requests.

https://kubernetes.io/docs/concepts/architecture/leases/
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum

from tidewater.controller.cluster.client import Cluster, Manifest, Ref
from tidewater.controller.cluster.fence import Fence
from tidewater.kube.errors import ClusterError, NotFound
from tidewater.kube.kinds import LEASES

RETRY_SECONDS = 0.5
"""Pause after a renewal that failed."""


@dataclass(frozen=True)
class Terms:
    """Times of the election, in seconds. ``fence_seconds`` must be less than ``duration_seconds``."""

    duration_seconds: int = 10
    fence_seconds: float = 7.0
    renew_seconds: float = 2.0
    poll_seconds: float = 1.5


@dataclass(frozen=True)
class LeaseName:
    """Where the Lease is."""

    namespace: str
    name: str

    @property
    def ref(self) -> Ref:
        """The Lease's place in the API."""
        return Ref(LEASES, self.namespace, self.name)


@dataclass(frozen=True)
class Seen:
    """A Lease as this process last read it.

    Args:
        manifest: The object.
        since: When this process first read this resourceVersion, on its own clock.
    """

    manifest: Manifest
    since: float

    @property
    def version(self) -> str:
        """The Lease's resourceVersion."""
        return str(self.manifest["metadata"]["resourceVersion"])

    @property
    def holder(self) -> str:
        """Identity of the process that holds it; empty after a release."""
        return str((self.manifest.get("spec") or {}).get("holderIdentity") or "")

    @property
    def duration(self) -> float:
        """Seconds that it lasts after a renewal, as its holder wrote it."""
        return float((self.manifest.get("spec") or {}).get("leaseDurationSeconds") or Terms.duration_seconds)


class Step(Enum):
    """What to do about the Lease."""

    CREATE = "create it"
    TAKE = "write this process into it"
    RENEW = "write the time into it"
    WAIT = "read it again later"


def decide(seen: Seen | None, identity: str, now: float) -> Step:
    """Return what the process `identity` does about the Lease; `seen` is None if there is none."""
    if seen is None:
        return Step.CREATE
    if seen.holder == identity:
        return Step.RENEW
    if not seen.holder or now - seen.since >= seen.duration:
        return Step.TAKE
    return Step.WAIT


def written(seen: Seen | None, place: LeaseName, identity: str, duration: int, now: datetime) -> Manifest:
    """Return the Lease to send.

    Args:
        seen: The Lease as last read; None to create it.
        place: Where it is.
        identity: The new holder; empty to release it.
        duration: Seconds that it lasts.
        now: The time for people to read; no decision depends on it.
    """
    stamp = now.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    before: Manifest = {} if seen is None else dict(seen.manifest.get("spec") or {})
    taken = identity and (seen is None or seen.holder != identity)
    spec: Manifest = {
        **before,
        "holderIdentity": identity,
        "leaseDurationSeconds": duration,
        "renewTime": stamp,
        "acquireTime": stamp if taken else before.get("acquireTime", stamp),
        "leaseTransitions": int(before.get("leaseTransitions") or 0) + (1 if taken and seen is not None else 0),
    }
    meta: Manifest = {"name": place.name, "namespace": place.namespace}
    if seen is not None:
        meta = {**seen.manifest["metadata"], "resourceVersion": seen.version}
    return {"apiVersion": LEASES.api_version, "kind": LEASES.kind, "metadata": meta, "spec": spec}


class Election:
    """One process's part in the election. ``fence`` is open while it may act.

    Args:
        cluster: Where the Lease is; not a fenced one.
        place: Namespace and name of the Lease.
        identity: Differs between all processes that ever take part; a restarted one has a new identity.
        fence: Opened and closed here.
        terms: The times.
        report: Called with what kept this process from reading or writing the Lease.
    """

    def __init__(
        self,
        cluster: Cluster,
        place: LeaseName,
        identity: str,
        *,
        fence: Fence,
        terms: Terms | None = None,
        report: Callable[[Exception], None] = lambda error: None,
    ) -> None:
        self._cluster = cluster
        self._place = place
        self._identity = identity
        self._fence = fence
        self._terms = terms or Terms()
        self._report = report
        self._seen: Seen | None = None
        self._doubtful = False  # a write failed: it may have arrived all the same

    @property
    def holder(self) -> str:
        """Identity of the leader as last read; empty if there is none."""
        return self._seen.holder if self._seen else ""

    async def acquire(self) -> None:
        """Wait until this process is the leader. Errors of the API server are reported and tried again."""
        while not await self._took():
            await asyncio.sleep(self._terms.poll_seconds * random.uniform(0.8, 1.0))

    async def hold(self) -> None:
        """Renew the Lease until this process may no longer act. Afterwards the fence is closed."""
        pause = self._terms.renew_seconds
        try:
            while self._fence.open and self.holder == self._identity:
                await asyncio.sleep(min(pause, self._fence.left))
                # Not after the fence has closed: a process that was frozen must first stop what it was doing.
                if self._fence.open:
                    pause = self._terms.renew_seconds if await self._renewed() else RETRY_SECONDS
        finally:
            self._fence.close()

    async def release(self) -> None:
        """Give the Lease back if this process has it. Everything that acts must have stopped before."""
        self._fence.close()
        if self.holder != self._identity:
            return
        try:
            # One second, as Kubernetes' own components write it: no process waits for a Lease without a holder.
            await self._write("", 1)
        except ClusterError as error:
            self._report(error)  # the others wait until the Lease has expired

    async def _took(self) -> bool:
        """Read the Lease and take it if it is free. Return whether this process has it now."""
        try:
            await self._look()
            now = self._fence.now()
            if decide(self._seen, self._identity, now) is Step.WAIT:
                return False
            await self._write(self._identity, self._terms.duration_seconds)
        except ClusterError as error:
            self._report(error)
            return False
        self._fence.open_until(now + self._terms.fence_seconds)
        return True

    async def _renewed(self) -> bool:
        """Renew the Lease once. Return False if that failed or another process has it."""
        began = self._fence.now()
        try:
            async with asyncio.timeout(self._fence.left):
                if self._doubtful:
                    await self._look()
                if self.holder != self._identity:
                    return False
                await self._write(self._identity, self._terms.duration_seconds)
        except (ClusterError, TimeoutError) as error:
            self._report(error)
            self._doubtful = True
            return False
        self._fence.open_until(began + self._terms.fence_seconds)
        return True

    async def _look(self) -> None:
        """Read the Lease."""
        try:
            found = await self._cluster.get(self._place.ref)
        except NotFound:
            self._seen = None
        else:
            if self._seen is None or self._seen.version != found["metadata"]["resourceVersion"]:
                self._seen = Seen(found, self._fence.now())
        self._doubtful = False

    async def _write(self, identity: str, duration: int) -> None:
        """Write the Lease. Raise Conflict or Exists if another process was faster."""
        manifest = written(self._seen, self._place, identity, duration, datetime.now(UTC))
        if self._seen is None:
            found = await self._cluster.create(LEASES, manifest)
        else:
            found = await self._cluster.replace(LEASES, manifest)
        self._seen = Seen(found, self._fence.now())
