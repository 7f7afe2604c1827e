"""A master that kills itself at a named point, for tests: what it runs is the real one, between a store and a service
that look whether it is time.

    python -m tests.elasticdl.master.crashing POINT COUNT ADDRESS NAME ETCD JOB_ARGS

POINT is `before-store`, `after-store` (when the record is in etcd, and nobody has heard of it) or `before-answer` (when
a call is done, but not answered). COUNT says at which arrival at the point; 0: never.
"""

from __future__ import annotations

import itertools
import os
import signal
import sys
import threading
from collections.abc import Callable
from typing import Any

import grpc

from elasticdl.job import JobArgs
from elasticdl.master.program import Place, run
from elasticdl.master.telling import log_to
from trainer.etcd.client import EtcdStore

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


class FusedService(grpc.ServerInterceptor):  # type: ignore[misc] # grpc has no types
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


def main(point: str, count: str, address: str, name: str, etcd: str, job_args: str) -> int:
    """Run a master."""
    log_to(sys.stdout, "INFO")
    fuse = Fuse(point, int(count))
    place = Place(address, name, interceptors=(FusedService(fuse),))
    return run(JobArgs.from_json(job_args), place, FusedStore(etcd, fuse))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
