"""Opens the session of one worker: etcd, secret, peer server, process group, membership.

    def prepare(config: Config) -> Content: ...         # model, optimizer, and what must be equal in all workers

    with open_session(config, prepare) as opened:
        warm_up(opened.session)                         # alone in its group
        opened.join()                                   # the others know of this worker from now on
        while meeting := opened.session.meet(): ...

Quick checks that can fail come first (etcd's endpoints, whether the job is finished). Then comes what takes long and
disturbs no other worker (imports, data, warm-up). Only then is this worker announced to the others.
"""

from __future__ import annotations

import hashlib
import os
import queue
import secrets
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import TYPE_CHECKING

from tidewater.contract import exit_codes, keys
from tidewater.elastic.addresses import Address
from tidewater.elastic.config import Config
from tidewater.elastic.errors import ConfigError, GroupBroken, Refused, StoreError
from tidewater.elastic.etcd.client import EtcdStore
from tidewater.elastic.etcd.probe import WHERE, first_contact
from tidewater.elastic.etcd.secret import obtain, restore
from tidewater.elastic.launch.limit import known, noting
from tidewater.elastic.launch.signals import asked_by_signals
from tidewater.elastic.observe.log import Lasting, Log, Value
from tidewater.elastic.observe.metrics import Metrics, open_metrics
from tidewater.elastic.peer.handshake import Identity
from tidewater.elastic.training import AnyTraining

if TYPE_CHECKING:
    import torch

    from tidewater.elastic.group.group import Group
    from tidewater.elastic.group.replica import Replica
    from tidewater.elastic.membership.coordinator import Coordinator
    from tidewater.elastic.membership.evidence import Evidence, Probe
    from tidewater.elastic.membership.rules import Seat, View
    from tidewater.elastic.membership.traits import Traits
    from tidewater.elastic.peer.heartbeat import Heartbeat
    from tidewater.elastic.peer.silence import Silence
    from tidewater.elastic.session.session import Session
    from tidewater.elastic.session.state import State
    from tidewater.elastic.session.worker import Worker

_FIRST_VIEW_SECONDS = 5.0
_RETRY_SECONDS = 0.3


class Ended(Exception):
    """The worker ends before it has joined, with ``code``: the job has finished, this worker was asked to leave, or it
    can't make a group."""

    def __init__(self, code: int) -> None:
        super().__init__(f"exit code {code}")
        self.code = code


@dataclass(frozen=True)
class Content:
    """What is trained."""

    training: AnyTraining
    device: torch.device
    """Of the model."""
    data: str
    """Identifies the data: a state is only loaded for the same one."""
    alike: Mapping[str, Value]
    """What must be equal in all workers, in addition to the model and the runtime's code, by names for a person."""
    code: tuple[Traversable, ...] = ()
    """Further code that must be equal in all workers."""
    samples: Mapping[str, Probe] = field(default_factory=dict)
    """A few samples, which must be like those of the other workers, by names for a person."""
    about: Mapping[str, Value] = field(default_factory=dict)
    """Further fields of the event ``prepared``."""
    replica: Replica | None = None
    """The processes that divide the model; None if this one has it alone."""
    session: Callable[[Config, Worker, Log], Session] | None = None
    """What opens the session of such a process."""
    coordinator: Callable[..., Coordinator] | None = None  # what makes that of one that isn't the first


@dataclass(frozen=True)
class Opened:
    """The session of a worker that is alone in its group, and has not joined the others."""

    session: Session
    join: Callable[[], None]
    """Lets the others know of this worker. It raises Ended if this worker was asked to leave before, and ConfigError if
    it can't train with the others; says what."""
    leave: Callable[[], None]
    """Asks this worker to leave at the next step boundary, as SIGTERM does."""


@contextmanager
def open_session(config: Config, prepare: Callable[[Config], Content]) -> Iterator[Opened]:
    """Give the session of this worker, which has not joined the others yet.

    At the end, withdraw from the job, and wait for the checkpoint in progress.
    After SIGTERM, Ctrl-C or SIGHUP the worker leaves at the next step boundary. At the end these signals have the
    handlers of the script again.

    Args:
        config: Of this worker.
        prepare: Loads and builds what is trained. It may start processes: there are no other threads or sockets yet
            that they could inherit.

    Raises:
        Ended: The job had finished before, this worker was asked to leave, or it can't sum.
        ConfigError: Something is wrong here; says what.
        RecordError: A record in etcd or a checkpoint is of another version of the code.
    """
    metrics = open_metrics(config.metrics_port, job=config.job, worker=config.worker)
    log = Log(config.process, debug=config.debug, listener=metrics.event)
    # Not an Event: a second SIGTERM that interrupts `set` would wait for the lock that the first one holds.
    asked_to_leave: queue.SimpleQueue[None] = queue.SimpleQueue()
    with asked_by_signals(asked_to_leave) as ask_again:
        log.event("started", job=config.job, pid=os.getpid(), etcd=",".join(config.etcd))
        assembly = _Assembly(config, log, metrics)
        if assembly.is_finished():
            log.event("finished", reason="the job had finished before this worker started")
            raise Ended(exit_codes.FINISHED)
        if not assembly.learn_secret(wanted=asked_to_leave.empty):
            log.event("left", reason="asked to leave before etcd answered")
            raise Ended(exit_codes.LEFT)
        with _ends_with_its_device(log), ends_without_a_group(log):
            session = assembly.session(prepare)

        def leave_when_asked() -> None:
            asked_to_leave.get()
            session.leave()

        def join() -> None:
            assembly.prepared(session)
            ask_again()  # the script may have set handlers of its own
            if not asked_to_leave.empty():
                log.event("left", reason="asked to leave before it had joined")
                raise Ended(exit_codes.LEFT)
            # Not in the signal handler: `leave` writes to etcd and acquires locks that the interrupted code may hold.
            threading.Thread(target=leave_when_asked, name="leave", daemon=True).start()
            assembly.announce(session)

        try:
            with _ends_with_its_device(log, assembly.give_up), noting(config.limit, log):
                yield Opened(session, join, lambda: asked_to_leave.put(None))
        finally:
            assembly.close(session.flush_until())


@contextmanager
def _ends_with_its_device(log: Log, withdraw: Callable[[], None] = lambda: None) -> Iterator[None]:
    """End the process at once if an error of its device is raised: with such a GPU, what is left may hang or crash.
    ``withdraw`` is called before, so that the others go on."""
    try:
        yield
    except Exception as error:
        from tidewater.elastic.launch.device import failure_of_own_gpu  # with torch
        from tidewater.elastic.machine_errors import device_failure

        reason = device_failure(error) or failure_of_own_gpu()
        if not reason:
            raise
        log.event("device_failed", reason=reason)
        traceback.print_exception(error)
        print(f"trainer: this process can't use its GPU any more, and ends: {reason}", file=sys.stderr)
        withdraw()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(exit_codes.DEVICE_FAILED)


@contextmanager
def ends_without_a_group(log: Log) -> Iterator[None]:
    """Raise Ended if even a group of this worker alone breaks: with others it would, too."""
    try:
        yield
    except GroupBroken as error:
        log.event("unconnected", reason=f"a group of this worker alone failed: {error}")
        raise Ended(exit_codes.UNCONNECTED) from error


class _Assembly:
    """Assembles one worker, in an order that logs early and disturbs other workers late."""

    def __init__(self, config: Config, log: Log, metrics: Metrics) -> None:
        from tidewater.elastic.checkpoint import Checkpoints, places

        self._config, self._log, self._metrics = config, log, metrics
        self._away = Lasting(log, "etcd_unreachable")
        self._started = time.monotonic()
        self._host = config.address
        self._store = EtcdStore(config.etcd, access=config.etcd_access)
        self._checkpoints = Checkpoints(places(config.checkpoints), keep=config.keep_checkpoints, log=log)
        self._member_id = f"{config.worker}-{_token(config)}"
        self._content: Content
        self._identity: Identity
        self._traits: Traits
        self._asked: dict[str, Traits] = {}
        """What members have answered, by their ids."""
        self._heartbeat: Heartbeat
        self._coordinator: Coordinator
        self._group: Group
        self._silence: Silence

    def is_finished(self) -> bool:
        """Return whether the job is finished, according to the checkpoints or to etcd (if it answers soon)."""
        if self._checkpoints.finished():
            return True
        try:
            first_contact(self._store, self._config.job, time.monotonic())
            return bool(self._store.read(keys.finished(self._config.job)).entries)
        except StoreError as error:
            self._away.say(error=str(error))
            return False

    def learn_secret(self, wanted: Callable[[], bool]) -> bool:
        """Learn the job's secret. Return False if ``wanted`` returns False before etcd answers."""
        key = keys.secret(self._config.job)
        secret = self._config.secret.encode()
        while not secret and wanted():
            try:
                secret = obtain(self._store, key)
            except Refused as error:
                raise ConfigError(f"{error}. {WHERE}") from error
            except StoreError as error:
                self._away.say(error=str(error))
                time.sleep(_RETRY_SECONDS)
        self._identity = Identity(secret, self._member_id)
        return bool(secret)

    def session(self, prepare: Callable[[Config], Content]) -> Session:
        """Prepare what is trained, and all that a session needs. The other workers don't know of this one yet."""
        self._content = prepare(self._config)
        return self._assemble(self._content)

    def prepared(self, session: Session) -> None:
        """Note what has to be equal in all workers, now that the script's code has run once."""
        content = self._content
        self._traits = session.worker.server.traits = replace(self._traits, evidence=_evidence(content))
        self._checkpoints.prepare()
        seconds = time.monotonic() - self._started
        self._log.event("prepared", seconds=seconds, device=str(content.device), **content.about)

    def _assemble(self, content: Content) -> Session:
        from tidewater.elastic.group.group import open_group
        from tidewater.elastic.group.siblings import Siblings
        from tidewater.elastic.membership.coordinator import Coordinator
        from tidewater.elastic.membership.rules import Limits, Member, further
        from tidewater.elastic.membership.traits import Traits, code_digest
        from tidewater.elastic.peer.heartbeat import Heartbeat
        from tidewater.elastic.peer.server import PeerServer, ask_waits
        from tidewater.elastic.peer.silence import Asks, Place, Silence
        from tidewater.elastic.session.session import Session
        from tidewater.elastic.session.warmup import form_alone
        from tidewater.elastic.session.worker import Worker

        config, training = self._config, content.training
        code = code_digest(files("tidewater.contract"), files("tidewater.elastic"), *content.code)
        self._traits = Traits.of(training.model, self._identity.secret, **content.alike, code=code)
        server = PeerServer(self._identity, self._traits)
        server.start()
        replica = content.replica
        mine = Address(self._host, server.port, self._member_id)
        places = [Address(*each) for each in replica.each(mine)] if replica else [mine]
        # Where one process of a worker gives a generation up, the others must not wait in its sums.
        siblings = Siblings.of_parts(_token(config), self._identity, config.index, places) if replica else None
        self._group = open_group(self._host, content.device, config.group_timeout_seconds, server, siblings)
        form_alone(self._group)
        signature = self._traits.digest()
        me = Member(self._member_id, config.worker, *places[0][:2], signature, 0, **further(places))
        limits = Limits(config.least_members, config.most_members, config.peer_timeout_seconds)
        self._coordinator = (content.coordinator or Coordinator)(
            self._store, config.job, me, limits=limits, lease_seconds=config.lease_seconds, log=self._log
        )
        self._checkpoints.on_saved = self._coordinator.saved
        self._heartbeat = Heartbeat(
            self._identity,
            timeout=config.heartbeat_seconds,
            since=lambda: session.waiting_since,
            on_silent=lambda member: session.peer_silent(member),
        )
        worker = Worker(
            member_id=self._member_id,
            training=training,
            state=_state(config, content),
            group=self._group,
            coordinator=self._coordinator,
            server=server,
            heartbeat=self._heartbeat,
            checkpoints=self._checkpoints,
            metrics=self._metrics,
            refusal=self._refusal,
            writes=not config.index,
        )
        session = (content.session or Session)(config, worker, self._log)
        # Already now: if the rehearsal holds up this process's threads, it may do so to those of the others.
        self._heartbeat.start()
        server.waits, server.hear, server.pass_on = session.waits, self._coordinator.hear, self._coordinator.pass_on
        self._silence = Silence(
            Place(self._member_id, lambda: self._coordinator.view, config.least_members),
            config.silent_seconds + config.min_step_seconds,
            self._log,
            self._metrics,
            Asks(session.waits, lambda member: ask_waits(self._identity, member.address)),
        )
        return session

    def announce(self, session: Session) -> None:
        """Announce this worker: from now on it may become a member. Raise ConfigError if it never can."""
        from tidewater.elastic.membership.hooks import Hooks
        from tidewater.elastic.peer import server, votes

        def return_secret() -> None:
            if not self._config.secret:
                restore(self._store, keys.secret(self._config.job), self._identity.secret)

        if self._config.index:  # the first process of the worker does it for all of them
            self._coordinator.start(Hooks(session.membership_changed))
            return
        hooks = Hooks(
            session.membership_changed,
            is_dead=lambda member: member.id in self._heartbeat.silent() or server.is_gone(member.address),
            look=lambda member: server.look(self._identity, member.address),
            unreachable=self._heartbeat.silent,
            send_votes=partial(votes.send, self._identity, self._heartbeat.silent),
            returning=return_secret,
        )
        self._coordinator.start(hooks)
        self._coordinator.wait(lambda view: True, time.monotonic() + _FIRST_VIEW_SECONDS)
        if reason := self._refusal(self._coordinator.view):
            raise ConfigError(reason)
        self._coordinator.announce()
        if self._config.silent_seconds:
            self._silence.start()

    def give_up(self) -> None:
        """Let the others go on without this worker, which ends now."""
        self._coordinator.stop(gives_up=True)

    def close(self, flush_until: float) -> None:
        """Withdraw from the job, end pending communication, and wait for the checkpoint that is being written until
        that monotonic time."""
        self._silence.stop()
        self._coordinator.stop()
        self._heartbeat.stop()
        self._group.close()
        self._checkpoints.close(flush_until)

    def _refusal(self, view: View) -> str | None:
        from tidewater.elastic.membership.traits import refusal
        from tidewater.elastic.peer.server import ask_traits

        def ask(member: Seat) -> Traits | None:
            if found := self._asked.get(member.id) or ask_traits(self._identity, member.address):
                self._asked[member.id] = found
            return found

        return refusal(view, self._member_id, self._traits, ask)


def _token(config: Config) -> str:
    """Return what tells this process from the one before it: the same in all processes that divide a model."""
    if not config.meeting:
        return secrets.token_hex(4)
    return hashlib.sha256(config.meeting.encode()).hexdigest()[:8]


def _evidence(content: Content) -> Evidence:
    from tidewater.elastic.membership import modules
    from tidewater.elastic.membership.evidence import Evidence

    sources = modules.own_sources()
    return Evidence(modules.digests(sources), modules.versions(sources), content.samples)


def _state(config: Config, content: Content) -> State:
    import torch

    from tidewater.elastic.session.state import State, kind_of

    kind = kind_of(content.training.model, data=content.data, seed=config.seed)
    scaler = torch.amp.GradScaler(content.device.type, enabled=config.amp == "fp16")
    state = State(content.training, kind, scaler, fresh_optimizer=config.fresh_optimizer, outer=config.outer)
    state.micro_batch = min(filter(None, (config.micro_batch, known(config.limit))), default=0)
    return state
