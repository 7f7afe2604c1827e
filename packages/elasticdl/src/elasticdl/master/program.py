"""The process of the master.

    python3 -m elasticdl.master --job mnist --etcd http://etcd:2379 --ps_addrs mnist-ps-0:2222 --job_args JSON

It ends with 0 when the job has succeeded, 1 when it has failed, and 2 when its input is wrong. Without --etcd the state
is in memory, and a master that is started again begins the job anew.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import logging
import os
import queue
import secrets
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Self

from elasticdl.errors import ElasticDLError, InputError, in_one_line
from elasticdl.job import JobArgs, log_to
from elasticdl.master.coordinator import Coordinator
from elasticdl.master.executor import Actor, Checkpoints
from elasticdl.master.progress_log import Teller, tell_end
from elasticdl.master.resume import Job, prepared, resumed
from elasticdl.master.servers import Servers
from elasticdl.master.service import MasterService, serve
from elasticdl.master.store import EtcdStateStore, Fenced, Interrupted, Key, MemoryStore, StateStore
from elasticdl.master.tasks.state import Stage
from elasticdl.ps import checkpoint
from tidewater.contract import env, exit_codes, keys
from tidewater.elastic.errors import ConfigError
from tidewater.elastic.etcd import codec
from tidewater.elastic.etcd.access import Access
from tidewater.elastic.etcd.client import EtcdStore, Store
from tidewater.elastic.etcd.mirror import Entries, Mirror

log = logging.getLogger(__name__)

TICK_SECONDS = 1.0
LINGER_SECONDS = 30.0
"""How long the master waits, after the job, for the workers to learn of its end: on a slow machine one may be in a
minibatch for seconds. The job's result does not depend on it."""
GRACE_SECONDS = 2.0
LEASE_SECONDS = 5
LOOK_SECONDS = 0.5
"""Between two looks whether this process is to end while it waits."""


@dataclass(frozen=True)
class Place:
    """Where this master is, and where the others are."""

    address: str
    """`host:port` on which it listens."""
    name: str
    """The same for a master that is started again; another one for another pod."""
    servers: tuple[str, ...] = ()
    process: str = field(default_factory=lambda: secrets.token_hex(8))


def main(argv: Sequence[str] | None = None) -> int:
    """Run a master; return its exit code."""
    given = _parser().parse_args(argv)
    try:
        args = JobArgs.from_json(given.job_args)
        log_to(sys.stdout, args.log_level)
        name, servers = given.name or socket.gethostname(), _parts(given.ps_addrs)
        place = Place(f"{given.host}:{given.port}", name, servers)
        store = EtcdStore(_parts(given.etcd), access=_access(os.environ)) if given.etcd else None
        return run(args, place, store)
    except InputError as error:
        log.error("%s", in_one_line(error))
        return exit_codes.USAGE
    except ConfigError as error:
        log.error("%s", error)
        return exit_codes.USAGE


def run(args: JobArgs, place: Place, etcd: Store | None) -> int:
    """Run the master of a job until it has ended; return the exit code.

    Raises:
        InputError: a flag, the zoo or the data is wrong; nothing was written.
    """
    job = prepared(args, len(place.servers))
    key = Key(args.job_name, args.run_id, place.process)
    with contextlib.ExitStack() as stack:
        store: StateStore = MemoryStore()
        halts: list[Callable[[], None]] = []
        if etcd is not None:
            leadership = stack.enter_context(Leadership(etcd, key, place.name))
            state_store = store = EtcdStateStore(etcd, key)
            halts += [leadership.interrupt, state_store.interrupt]
        ending = threading.Event()
        halts.append(ending.set)
        stack.enter_context(_on_sigterm(halts))
        try:
            if etcd is not None:
                leadership.wait()
            return _lead(args, place, job, store, Watch(ending, lambda: etcd is None or leadership.lead))
        except (Fenced, Interrupted) as error:
            log.error("This master ends, and the job goes on under another one: %s", error or "it got SIGTERM")
            return exit_codes.LEFT
        except InputError:
            raise
        except ElasticDLError as error:
            log.error("%s", in_one_line(error))
            return exit_codes.FAILED


@dataclass(frozen=True)
class Watch:
    """What ends a master before its job has ended."""

    ending: threading.Event
    """Set by SIGTERM."""
    leads: Callable[[], bool]


def _lead(args: JobArgs, place: Place, job: Job, store: StateStore, watch: Watch) -> int:
    fields = store.take_over()
    if fields is None and job.setup.rules.checkpoint_steps:
        checkpoint.check_unused(args.checkpoint_dir, args.run)
    state, plans = resumed(fields, job)
    coordinator = Coordinator(job.setup, plans, store, state)
    with contextlib.ExitStack() as stack:
        servers = None
        if job.setup.rules.servers:
            servers = stack.enter_context(Servers(place.servers, args.relaunch_timeout_worker))
        service = MasterService(coordinator, args, servers)
        server = serve(service, place.address, workers=args.num_workers)
        stack.callback(lambda: server.stop(GRACE_SECONDS).wait())
        log.info("Master of job %s listens on %s", args.job_name, place.address)
        stack.enter_context(_ticking(coordinator, Teller(coordinator.progress), watch))
        checkpoints = Checkpoints(args.checkpoint_dir, args.keep_checkpoint_max, args.run)
        Actor(coordinator, store, servers, job.setup.scores, checkpoints).run()
        service.stop()
        for worker in coordinator.wait_until_all_are_gone(time.monotonic() + LINGER_SECONDS):
            log.warning("%s has not left in the %.0f s after the end of the job", worker, LINGER_SECONDS)
        tell_end(coordinator.state)
        store.expire()
    return exit_codes.FAILED if coordinator.state.stage is Stage.FAILED else exit_codes.FINISHED


@contextlib.contextmanager
def _ticking(coordinator: Coordinator, teller: Teller, watch: Watch) -> Iterator[None]:
    """Tell the coordinator that time passes, and the log how far the job is; end a master that is to end."""
    stopped = threading.Event()

    def tick() -> None:
        while not stopped.wait(TICK_SECONDS):
            if watch.ending.is_set():
                coordinator.end_with(Interrupted())
            elif not watch.leads():
                coordinator.end_with(Fenced("another master leads", "This one ends."))
            with contextlib.suppress(ElasticDLError, Interrupted):  # the actor ends the process for it
                coordinator.tick()
            teller.tell()

    thread = threading.Thread(target=tick, name="ticks", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stopped.set()
        thread.join()
        teller.tell()


@contextlib.contextmanager
def _on_sigterm(halts: Sequence[Callable[[], None]]) -> Iterator[None]:
    """Let SIGTERM call all of these, where signals can be handled: in the main thread."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    # A handler interrupts the main thread anywhere, also where it holds the lock of an event: only this queue is safe.
    bell: queue.SimpleQueue[None] = queue.SimpleQueue()

    def listen() -> None:
        bell.get()
        for halt in halts:
            halt()

    threading.Thread(target=listen, name="sigterm", daemon=True).start()
    before = signal.signal(signal.SIGTERM, lambda *_: bell.put(None))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python3 -m elasticdl.master", description=__doc__, allow_abbrev=False)
    parser.add_argument("--job", help="name of the job; the one in --job_args counts")
    parser.add_argument("--name", default="", help="name of this master; default: that of the host")
    parser.add_argument("--host", default="[::]", help="address on which to listen; default: all")
    parser.add_argument("--port", type=int, default=50001)
    parser.add_argument("--ps_addrs", default="", help="host:port of each parameter server, in their order")
    parser.add_argument("--job_args", required=True, help="JSON of elasticdl.job.JobArgs")
    parser.add_argument("--etcd", default=os.environ.get(env.ETCD, ""), help="client URLs")
    return parser


def _access(environ: Mapping[str, str]) -> Access:
    """Return the credentials for etcd that the environment has."""
    variables = {
        "user": env.ETCD_USER,
        "password": env.ETCD_PASSWORD,
        "cacert": env.ETCD_CACERT,
        "cert": env.ETCD_CERT,
        "key": env.ETCD_KEY,
    }
    return Access.of(**{name: environ.get(variable, "") for name, variable in variables.items()})


def _parts(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


class Leadership:
    """The candidacy of this process: the master with the oldest record in etcd leads. A record ends with its lease.

    A master that is started again under its own name leads at once: it takes over the record of the process before it.
    One with another name waits until the lease of the first has ended. Safety does not depend on the lease: a master
    that is cut off and doesn't know it yet can't write any more (see `store`).
    """

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

    def __exit__(self, *_: object) -> None:
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
