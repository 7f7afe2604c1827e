"""Named moments at which a process can be killed, and the marks that arm them.

    arm(folder, "master: a checkpoint is written")
    watch("master", folder)       # in the process, before it begins

A process that comes to an armed moment takes the mark away and ends at once, as by SIGKILL. Of several processes only
one takes it.
"""

from __future__ import annotations

import functools
import os
import signal
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Point:
    """A moment: before or after a method of a class, in one kind of process."""

    name: str
    kind: str
    module: str
    method: str
    after: bool


_MASTER = "elasticdl.master.service.MasterService"
_STORE = "elasticdl.master.store.EtcdStateStore"
_SERVERS = "elasticdl.master.servers.Servers"
_SERVER = "elasticdl.ps.service.ParameterServer"
_WORKER = "elasticdl.worker.master.Master"
_REMOTE = "elasticdl.worker.remote.Remote"

POINTS = (
    Point("the record is to be stored", "master", _STORE, "save", False),
    Point("the record is stored, and no other process knows", "master", _STORE, "save", True),
    Point("a task is chosen, and the worker isn't told", "master", _MASTER, "GetTask", True),
    Point("a report has come, and nothing is saved", "master", _MASTER, "ReportTask", False),
    Point("a task is counted, and the worker isn't told", "master", _MASTER, "ReportTask", True),
    Point("a worker's stream has come", "master", "elasticdl.master.coordinator.Coordinator", "attend", True),
    Point("an evaluation is to begin", "master", _SERVERS, "take_snapshot", False),
    Point("the servers have a snapshot", "master", _SERVERS, "take_snapshot", True),
    Point("a checkpoint is written", "master", _SERVERS, "save", True),
    Point("gradients have come", "ps", _SERVER, "PushGradients", False),
    Point("gradients are applied, and the worker isn't told", "ps", _SERVER, "PushGradients", True),
    Point("rows are wanted", "ps", _SERVER, "PullRows", False),
    Point("a snapshot is taken", "ps", _SERVER, "TakeSnapshot", True),
    Point("a part of a checkpoint is to be written", "ps", _SERVER, "Save", False),
    Point("a part of a checkpoint is written", "ps", _SERVER, "Save", True),
    Point("a task has come", "worker", _WORKER, "task", True),
    Point("a minibatch is to be pushed", "worker", _REMOTE, "push", False),
    Point("a minibatch is pushed", "worker", _REMOTE, "push", True),
    Point("a task is done and not reported", "worker", _WORKER, "report", False),
    Point("a task is reported", "worker", _WORKER, "report", True),
)
BY_NAME = {f"{point.kind}: {point.name}": point for point in POINTS}


def arm(folder: Path, name: str) -> None:
    """Have the next process that comes to a moment killed there."""
    _mark(folder, BY_NAME[name]).touch()


def disarm(folder: Path, name: str) -> bool:
    """Take a mark away; return whether no process had."""
    try:
        _mark(folder, BY_NAME[name]).unlink()
    except FileNotFoundError:
        return False
    return True


def watch(kind: str, folder: Path) -> None:
    """Look for marks at all moments of this kind of process."""
    for point in POINTS:
        if point.kind == kind:
            module, _, cls = point.module.rpartition(".")
            owner = getattr(__import__(module, fromlist=[cls]), cls)
            setattr(owner, point.method, _struck(getattr(owner, point.method), point, _mark(folder, point)))


def _struck(method: Callable[..., Any], point: Point, mark: Path) -> Callable[..., Any]:
    @functools.wraps(method)
    def wrapped(*arguments: Any, **named: Any) -> Any:
        if not point.after:
            _strike(mark)
        result = method(*arguments, **named)
        if point.after:
            _strike(mark)
        return result

    return wrapped


def _strike(mark: Path) -> None:
    if mark.exists():
        try:
            mark.unlink()
        except FileNotFoundError:  # another process was there first
            return
        os.kill(os.getpid(), signal.SIGKILL)


def _mark(folder: Path, point: Point) -> Path:
    return folder / f"{POINTS.index(point):02d}.armed"
