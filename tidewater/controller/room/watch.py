"""Keeps nodes, pods and priority classes of the cluster current while a job waits for room.

    watch = RoomWatch(cluster, changed)
    watch.want(True)                 # a job of a queue is short
    await watch.run()                # a task of its own
    watch.room()                     # a Room, or None if it can't be known

Other pods take room too, so all of the cluster's are watched, in one request; of each only what it holds of its node is
kept. While no job waits, nothing is watched. After the API server has forbidden a request, the room is not known until
all is listed anew, which is tried every few minutes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, NamedTuple

from tidewater.controller.cluster.client import Cluster, Manifest, Source
from tidewater.controller.cluster.mirror import FORBIDDEN_SECONDS, Change, Mirror, Report
from tidewater.controller.room.packing import Held, Room
from tidewater.controller.room.placement import Node, read_node
from tidewater.controller.room.requests import requested
from tidewater.elasticjob import names
from tidewater.kube.errors import ClusterError, Refused
from tidewater.kube.kinds import NODES, PODS, PRIORITY_CLASSES


class PriorityClass(NamedTuple):
    """What a priority class says. `preempts`: its pods displace those of a lower priority."""

    value: int
    preempts: bool
    default: bool


class RoomWatch:
    """The room on the nodes, while it is wanted.

    Args:
        cluster: Where to list and watch.
        changed: Called when the room may have changed.
        report: Called when a watch has ended.
    """

    def __init__(
        self, cluster: Cluster, changed: Callable[[], None], report: Report = lambda plural, error: None
    ) -> None:
        self._cluster = cluster
        self._changed = changed
        self._report = report
        self._wanted = asyncio.Event()
        self._unwanted = asyncio.Event()
        self._permitted = True  # as far as is known
        self._room: Room | None = None  # until something changes
        self._begin()

    def want(self, wanted: bool) -> None:
        """Begin to watch, or end it."""
        (self._wanted if wanted else self._unwanted).set()
        (self._unwanted if wanted else self._wanted).clear()

    def room(self) -> Room | None:
        """Return the room on the nodes; None if this controller may not know it."""
        if not self._permitted:
            return None
        if self._room is None:
            mirrors = (self._nodes, self._pods, self._classes)
            known = self._wanted.is_set() and all(mirror.synced.is_set() for mirror in mirrors)
            self._room = self._found() if known else Room(known=False)
        return self._room

    async def run(self) -> None:
        """Watch whenever it is wanted, for ever."""
        while True:
            await self._wanted.wait()
            watching = asyncio.create_task(self._watch())
            ended = asyncio.create_task(self._unwanted.wait())
            try:
                await asyncio.wait((watching, ended), return_when=asyncio.FIRST_COMPLETED)
            finally:
                watching.cancel()
                ended.cancel()
                await asyncio.gather(watching, ended, return_exceptions=True)
            if watching.cancelled():
                self._permitted = True
            else:
                watching.result()
            self._begin()

    async def _watch(self) -> None:
        """Watch until it is time to begin anew, because a request was refused a while ago."""
        mirrors = (self._nodes, self._pods, self._classes)
        async with asyncio.TaskGroup() as tasks:
            running = [tasks.create_task(mirror.run()) for mirror in mirrors]
            for mirror in mirrors:
                await mirror.synced.wait()
            self._permitted = not self._refused.is_set()
            self._note()
            await self._refused.wait()
            await asyncio.sleep(FORBIDDEN_SECONDS)
            for each in running:
                each.cancel()

    def _begin(self) -> None:
        """Forget everything: what is watched again later is listed anew."""
        self._refused = asyncio.Event()
        self._room = None
        nodes, pods, classes = ([Source(kind, optional=True)] for kind in (NODES, PODS, PRIORITY_CLASSES))
        self._nodes = Mirror[Node](self._cluster, nodes, read_node, self._note, self._ended)
        self._pods = Mirror[Held | None](self._cluster, pods, read_held, self._note, self._ended)
        self._classes = Mirror[PriorityClass](self._cluster, classes, read_class, self._note, self._ended)

    def _note(self, change: Change[Any] | None = None) -> None:
        """Note that something may have changed: not if a pod has no node before and after."""
        values = () if change is None else [each.value for each in (change.old, change.new) if each is not None]
        if change is not None and all(value is None for value in values):
            return
        self._room = None
        self._changed()

    def _ended(self, plural: str, error: ClusterError | None) -> None:
        if isinstance(error, Refused):
            self._permitted = False
            self._refused.set()
            self._changed()
        self._report(plural, error)

    def _found(self) -> Room:
        classes = [(key.name, each.value) for key, each in self._classes.entries.items() if each.value.preempts]
        default = next((each.value for each in self._classes.entries.values() if each.value.default), None)
        values = {name: found.value for name, found in classes}
        if default is None or default.preempts:
            values[""] = 0 if default is None else default.value
        held = (entry.value for entry in self._pods.entries.values())
        return Room(
            nodes={key.name: entry.value for key, entry in sorted(self._nodes.entries.items())},
            held=tuple(each for each in held if each is not None),
            classes=values,
        )


def read_held(manifest: Manifest) -> Held | None:
    """Return what a pod holds of its node; None if it has none yet, or has ended."""
    metadata, spec, status = manifest["metadata"], manifest.get("spec") or {}, manifest.get("status") or {}
    if not spec.get("nodeName") or status.get("phase") in ("Succeeded", "Failed"):
        return None
    owners: list[Manifest] = metadata.get("ownerReferences") or []
    owner = next((each for each in owners if each.get("controller")), {})
    return Held(
        node=spec["nodeName"],
        amounts=requested(spec),
        owner=owner.get("uid", ""),
        type=(metadata.get("labels") or {}).get(names.LABEL_REPLICA_TYPE, ""),
        priority=spec.get("priority") or 0,
        ending=bool(metadata.get("deletionTimestamp")),
        fixed=owner.get("kind") == "DaemonSet",
    )


def read_class(manifest: Manifest) -> PriorityClass:
    """Return what a priority class says."""
    preempts = manifest.get("preemptionPolicy") != "Never"
    return PriorityClass(manifest.get("value") or 0, preempts, manifest.get("globalDefault") is True)
