"""Where the master keeps what it must not forget: etcd, or memory.

    store = EtcdStateStore(EtcdStore(("http://etcd:2379",)), Key("mnist", run="7f3a", process="a81c"))
    fields = store.take_over()            # of the last save by any master of this run; None: there was none
    store.save({...})                     # Fenced if another master has taken over since

Fencing is by compare-and-set: every save is made on the condition that the record is still the one that this process
wrote last, and taking over rewrites the record. So of two masters, however slow or cut off, only the newest one writes.
Which one is to take over is decided in `leadership`, by a lease.
"""

from __future__ import annotations

import functools
import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from elasticdl.errors import ElasticDLError, InputError
from tidewater.contract import env, keys
from tidewater.elastic.errors import RecordError, Refused, StoreError
from tidewater.elastic.etcd import codec
from tidewater.elastic.etcd.client import Entry, Store

T = TypeVar("T")

log = logging.getLogger(__name__)

RETRY_SECONDS = 0.3
KEPT_SECONDS = 86400
"""For which the record of a run that has ended is kept: until then a master that is started again knows that it has."""
MAX_PART_BYTES = 1_400_000
"""etcd refuses requests over 1.5 MiB: https://etcd.io/docs/v3.5/dev-guide/limit/"""

Fields = Mapping[str, Any]


class Fenced(ElasticDLError):
    """Another master has taken over: this one must end and write nothing."""


class Interrupted(Exception):
    """The process is to end while etcd is waited for."""


class StateStore(Protocol):
    """What the coordinator needs. A method returns once what it wrote survives the loss of this process."""

    def take_over(self) -> dict[str, Any] | None:
        """Return what was saved last, and fence the process that saved it; None: nothing was saved."""
        ...

    def save(self, fields: Fields) -> None:
        """Replace what was saved last. Raise Fenced if another master has taken over."""
        ...

    def add_part(self, evaluation: int, task: int, data: bytes) -> None:
        """Keep the metrics of an evaluation task; the first ones count. Raise InputError if they are too large."""
        ...

    def parts(self, evaluation: int) -> dict[int, bytes]:
        """Return the metrics of an evaluation, by task."""
        ...

    def drop_parts(self, evaluation: int) -> None:
        """Forget the metrics of an evaluation."""
        ...

    def expire(self) -> None:
        """Let the record be forgotten after `KEPT_SECONDS`: the job has ended. It is tried once, and raises nothing."""
        ...


class MemoryStore:
    """Keeps everything as long as the process lives: a master that is killed starts from the beginning."""

    def __init__(self) -> None:
        self._fields: dict[str, Any] | None = None
        self._parts: dict[int, dict[int, bytes]] = {}

    def take_over(self) -> dict[str, Any] | None:
        """See StateStore."""
        return self._fields

    def save(self, fields: Fields) -> None:
        """See StateStore."""
        self._fields = dict(fields)

    def add_part(self, evaluation: int, task: int, data: bytes) -> None:
        """See StateStore."""
        self._parts.setdefault(evaluation, {}).setdefault(task, data)

    def parts(self, evaluation: int) -> dict[int, bytes]:
        """See StateStore."""
        return dict(self._parts.get(evaluation, {}))

    def drop_parts(self, evaluation: int) -> None:
        """See StateStore."""
        self._parts.pop(evaluation, None)

    def expire(self) -> None:
        """See StateStore."""


@dataclass(frozen=True)
class Key:
    """The job, its run and the process that a record belongs to."""

    job: str
    run: str
    process: str
    """A random id of this process."""


class EtcdStateStore:
    """Keeps everything in etcd. While etcd is away all methods but `expire` wait; `interrupt` ends the wait."""

    def __init__(self, store: Store, key: Key) -> None:
        self._store, self._key = store, key
        self._state = keys.elasticdl_state(key.job, key.run)
        self._revision = 0
        """Of the record as this process wrote it last."""
        self._serial = 0
        self._interrupted = threading.Event()

    def interrupt(self) -> None:
        """End all waits for etcd with Interrupted."""
        self._interrupted.set()

    def take_over(self) -> dict[str, Any] | None:
        """See StateStore."""
        while True:
            found = self._read()
            fields = _decoded(found.value)["state"] if found else None
            self._revision = found.mod_revision if found else 0
            if self._written({"state": fields}):
                return fields

    def save(self, fields: Fields) -> None:
        """See StateStore."""
        if not self._written({"state": fields}):
            raise Fenced(
                f"another master of job {self._key.job} has taken over",
                "This one ends; the other one goes on.",
            )

    def add_part(self, evaluation: int, task: int, data: bytes) -> None:
        """See StateStore."""
        if len(data) > MAX_PART_BYTES:
            raise InputError(
                f"the metrics of evaluation task {task} take {len(data)} bytes, and etcd takes {MAX_PART_BYTES}",
                "Let state() of the model's own metrics return less, or give a smaller --num_minibatches_per_task.",
            )
        key = keys.elasticdl_part(self._key.job, self._key.run, evaluation, task)
        self._patiently(lambda: self._store.put_if(key, data, 0))

    def parts(self, evaluation: int) -> dict[int, bytes]:
        """See StateStore."""
        return {int(entry.key.rpartition("/")[2]): entry.value for entry in self._parts_of(evaluation)}

    def drop_parts(self, evaluation: int) -> None:
        """See StateStore."""
        for entry in self._parts_of(evaluation):
            self._patiently(functools.partial(self._store.delete, entry.key))

    def expire(self) -> None:
        """See StateStore."""
        try:
            for entry in self._store.read(self._state).entries:
                if entry.key == self._state and entry.mod_revision == self._revision:
                    self._store.put_if(self._state, entry.value, self._revision, self._store.grant(KEPT_SECONDS))
        except StoreError as error:
            log.warning("The record of this job in etcd, %s, does not expire: %s", self._state, error)

    def _parts_of(self, evaluation: int) -> tuple[Entry, ...]:
        prefix = keys.elasticdl_parts(self._key.job, self._key.run, evaluation)
        return self._patiently(lambda: self._store.read(prefix)).entries

    def _written(self, content: Fields) -> bool:
        """Write the record if it is still the one of `_revision`; return whether it was."""
        self._serial += 1
        # Process and serial make each value unlike any other, so that it is recognised when it is read back.
        value = codec.encode(
            {"leader": self._key.process, "serial": self._serial, **content}, version=keys.ELASTICDL_VERSION
        )
        while True:
            try:
                self._store.put_if(self._state, value, self._revision)
            except Refused as error:
                raise _refused(error) from error
            except StoreError:
                pass  # it may have been written nevertheless
            found = self._read()
            if found is not None and found.value == value:
                self._revision = found.mod_revision
                return True
            if (found.mod_revision if found else 0) != self._revision:
                return False

    def _read(self) -> Entry | None:
        entries = self._patiently(lambda: self._store.read(self._state)).entries
        return next((entry for entry in entries if entry.key == self._state), None)

    def _patiently(self, call: Callable[[], T]) -> T:
        while True:
            try:
                return call()
            except Refused as error:
                raise _refused(error) from error
            except StoreError:
                if self._interrupted.wait(RETRY_SECONDS):
                    raise Interrupted from None


def _decoded(value: bytes) -> dict[str, Any]:
    remedy = "give the job a new name, or submit it again"
    try:
        return codec.decode(value, "master's", version=keys.ELASTICDL_VERSION, reader="master", remedy=remedy)
    except RecordError as error:
        raise ElasticDLError(str(error), remedy) from error


def _refused(error: Refused) -> ElasticDLError:
    return ElasticDLError(
        f"{error}", f"The user's role must grant readwrite on the prefix {keys.ELASTICDL_ROOT}/. See {env.ETCD_USER}."
    )
