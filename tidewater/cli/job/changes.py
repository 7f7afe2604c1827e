"""Objects now, and after each of their changes, for as long as a command waits for them.

for job in successive(cluster, clock, Watched(JOBS, selection("digits"), deadline)):
    if job is None or ready(job): break
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tidewater.cli.session import Clock
from tidewater.kube.cluster import Change, Cluster, Object, Selection
from tidewater.kube.errors import Gone, Unavailable
from tidewater.kube.kinds import Kind

WATCH_SECONDS = 240.0
"""A watch ends after this and another begins: some load balancers drop connections that are silent for 5 minutes."""

RETRY_SECONDS = 1.0
FOREVER = float("inf")

Snapshot = Mapping[str, Object]
"""Objects by uid."""


@dataclass(frozen=True)
class Watched:
    """Which objects, and until when (monotonic seconds)."""

    kind: Kind
    selection: Selection
    deadline: float = FOREVER


def named(name: str, namespace: str = "") -> Selection:
    """Return the selection of one object."""
    return Selection(namespace, fields=f"metadata.name={name}")


def successive(cluster: Cluster, clock: Clock, watched: Watched) -> Iterator[Object | None]:
    """Yield the one object that is selected, now and after each change; None while there is none. See `snapshots`."""
    for found in snapshots(cluster, clock, watched):
        yield next(iter(found.values()), None)


def snapshots(cluster: Cluster, clock: Clock, watched: Watched) -> Iterator[Snapshot]:
    """Yield the objects now and after each change; end at the deadline.

    An API server that later stops answering, or refuses everybody, is asked again until the deadline.

    Raises:
        ClusterError: the first answer is an error, or a later one refuses this user or this request.
    """
    begun = False
    while not begun or clock.monotonic() < watched.deadline:
        try:
            listing = cluster.list(watched.kind, watched.selection)
            begun = True
            found = {str(each["metadata"].get("uid", "")): each for each in listing.items}
            yield dict(found)
            for change in _changes(cluster, clock, watched, listing.version):
                found.pop(_uid(change), None)
                if change.type != "DELETED":
                    found[_uid(change)] = change.object
                yield dict(found)
        except Gone:
            continue
        except Unavailable:  # an API server that is restarted or overloaded refuses everyone, and may answer soon
            if not begun:
                raise
            clock.sleep(min(RETRY_SECONDS, max(0.0, watched.deadline - clock.monotonic())))


def _changes(cluster: Cluster, clock: Clock, watched: Watched, version: str) -> Iterator[Change]:
    """Yield changes since `version`, by one watch after another, until the deadline."""
    while (left := watched.deadline - clock.monotonic()) > 0:
        for change in cluster.watch(watched.kind, watched.selection, version, min(left, WATCH_SECONDS)):
            version = str(change.object["metadata"].get("resourceVersion", version))
            yield change


def _uid(change: Change) -> str:
    return str(change.object["metadata"].get("uid", ""))
