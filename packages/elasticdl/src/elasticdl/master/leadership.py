"""Which of several masters of a job leads: the one with the oldest record in etcd. A record ends with its lease.

    with Leadership(store, key, name="elasticdl-mnist-master") as leadership:
        leadership.wait()            # until this process leads
        leadership.lead              # False once another one does

A master that is started again under its own name leads at once: it takes over the record of the process before it. One
with another name waits until the lease of the first has ended. Safety does not depend on the lease: a master that is
cut off and doesn't know it yet can't write any more (see `store`).
"""

from __future__ import annotations

import json
import logging
import threading
import time
from types import TracebackType
from typing import Self

from elasticdl.master.store import Interrupted, Key
from tidewater.contract import keys
from tidewater.elastic.etcd import codec
from tidewater.elastic.etcd.client import Store
from tidewater.elastic.etcd.mirror import Entries, Mirror

log = logging.getLogger(__name__)

LEASE_SECONDS = 5
LOOK_SECONDS = 0.5
"""Between two looks whether this process is to end while it waits."""


class Leadership:
    """The candidacy of this process."""

    def __init__(self, store: Store, key: Key, name: str, *, lease_seconds: int = LEASE_SECONDS) -> None:
        self._key, self._name = key, name
        self._prefix = keys.elasticdl_masters(key.job, key.run)
        self._mirror = Mirror(store, self._prefix, lease_seconds=lease_seconds)
        self._interrupted = threading.Event()

    def __enter__(self) -> Self:
        self._mirror.start()
        record = codec.encode({"process": self._key.process}, version=keys.ELASTICDL_VERSION)
        self._mirror.publish(keys.elasticdl_master(self._key.job, self._key.run, self._name), record)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._mirror.stop()

    @property
    def lead(self) -> bool:
        """Return whether this process leads, as far as it knows."""
        return self._leads(self._mirror.entries)

    def interrupt(self) -> None:
        """End `wait` with Interrupted."""
        self._interrupted.set()

    def wait(self) -> None:
        """Return once this process leads."""
        told = False
        while not self._mirror.wait(self._leads, time.monotonic() + LOOK_SECONDS):
            if self._interrupted.is_set():
                raise Interrupted
            leader = _oldest(self._mirror.entries)
            if not told and (leader or self._mirror.error):
                told = True
                who = leader.removeprefix(self._prefix) if leader else ""
                log.info("Waiting for %s", f"master {who}, which leads" if who else f"etcd: {self._mirror.error}")

    def _leads(self, entries: Entries) -> bool:
        oldest = _oldest(entries)
        return bool(oldest) and json.loads(entries[oldest].value).get("process") == self._key.process


def _oldest(entries: Entries) -> str:
    """Return the key of the oldest record; empty if there is none."""
    return min(entries, key=lambda key: entries[key].create_revision, default="")
