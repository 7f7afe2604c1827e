"""A master that kills itself at a named point, for tests: what it runs is the real one, between a store and a service
that look whether it is time.

    process = start(Arguments(...), point="after-store", count=3)

A point is `before-store`, `after-store` (when the record is in etcd, and no other process knows that) or
`before-answer` (when a call is done, but not answered). Processes are forked from one that has imported
everything: that takes seconds.
"""

from __future__ import annotations

import itertools
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.context import ForkServerProcess
from typing import Any

import grpc
from elasticdl.job import JobArgs
from elasticdl.master.program import Place, run
from elasticdl.master.progress_log import log_to

from tidewater.elastic.etcd.client import EtcdStore

POINTS = ("before-store", "after-store", "before-answer")
CALLS = ("/elasticdl.Master/GetTask", "/elasticdl.Master/ReportTask")


class Fuse:
    """Kills the process at the n-th arrival at a point."""

    def __init__(self, point: str, count: int) -> None:
        self._point, self._count = point, count
        self._arrivals = itertools.count(1)
        self._lock = threading.Lock()

    def at(self, point: str) -> None:
        """Arrive at a point."""
        if point != self._point:
            return
        with self._lock:
            if next(self._arrivals) == self._count:
                os.kill(os.getpid(), signal.SIGKILL)


class FusedStore(EtcdStore):
    """etcd's client, with the points before and after a record is written."""

    def __init__(self, url: str, fuse: Fuse) -> None:
        super().__init__((url,))
        self._fuse = fuse

    def put_if(self, key: str, value: bytes, mod_revision: int) -> bool:
        self._fuse.at("before-store")
        written = super().put_if(key, value, mod_revision)
        self._fuse.at("after-store")
        return written


class FusedService(grpc.ServerInterceptor):
    """The service, with the point before its answers."""

    def __init__(self, fuse: Fuse) -> None:
        self._fuse = fuse

    def intercept_service(self, continuation: Callable[[Any], Any], details: Any) -> Any:
        handler = continuation(details)
        if details.method not in CALLS:
            return handler

        def answer(request: Any, context: grpc.ServicerContext) -> Any:
            reply = handler.unary_unary(request, context)
            self._fuse.at("before-answer")
            return reply

        return grpc.unary_unary_rpc_method_handler(answer, handler.request_deserializer, handler.response_serializer)


@dataclass(frozen=True)
class Arguments:
    """What a master is started with."""

    log: str
    """File of its log."""
    address: str
    name: str
    etcd: str
    job_args: str


def start(arguments: Arguments, point: str, count: int) -> ForkServerProcess:
    """Start a master that kills itself at the count-th arrival at a point; 0: never."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    process = context.Process(target=_run, args=(arguments, point, count), daemon=True)
    process.start()
    return process


def _run(arguments: Arguments, point: str, count: int) -> None:
    with open(arguments.log, "a", buffering=1) as log:
        log_to(log, "INFO")
        fuse = Fuse(point, count)
        place = Place(arguments.address, arguments.name, interceptors=(FusedService(fuse),))
        sys.exit(run(JobArgs.from_json(arguments.job_args), place, FusedStore(arguments.etcd, fuse)))
