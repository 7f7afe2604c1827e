"""Runs the training of a training script, from the command line to the exit code.

    raise SystemExit(run(training))                        # training(config) -> Training
       raise SystemExit(run(training, flags=add_my_flags))    # their values are in config.user

Quick checks that can fail come first (command line, etcd's endpoints, whether the job is finished). Then comes what
takes long and disturbs nobody (imports, data, warm-up). Only then is this worker announced to the others.
"""

from __future__ import annotations

import hashlib
import inspect
import os
import queue
import secrets
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable, Sequence
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from tidewater.contract import exit_codes, keys
from tidewater.elastic.config import AddFlags, Config, no_flags
from tidewater.elastic.errors import ConfigError, Diverged, Drifted, RecordError, Refused, StoreError, TrainerError
from tidewater.elastic.etcd.client import EtcdStore
from tidewater.elastic.etcd.probe import WHERE, first_contact
from tidewater.elastic.etcd.secret import obtain, restore
from tidewater.elastic.group.addresses import route_to
from tidewater.elastic.launch import launcher
from tidewater.elastic.observe.log import Log
from tidewater.elastic.observe.metrics import Metrics, open_metrics
from tidewater.elastic.peer.handshake import Identity
from tidewater.elastic.training import Training

if TYPE_CHECKING:
    from tidewater.elastic.data.loader import Loader
    from tidewater.elastic.group.group import Group
    from tidewater.elastic.loop import Loop
    from tidewater.elastic.membership.coordinator import Coordinator
    from tidewater.elastic.membership.rules import View
    from tidewater.elastic.membership.traits import Traits
    from tidewater.elastic.peer.heartbeat import Heartbeat

_FIRST_VIEW_SECONDS = 5.0
_RETRY_SECONDS = 0.3
_COMPLAIN_SECONDS = 10.0

Build = Callable[[Config], Training]


def run(build: Build, argv: Sequence[str] | None = None, *, flags: AddFlags = no_flags) -> int:
    """Train as one worker until the job is finished, or until SIGTERM. Return a code of ``contract.exit_codes``.

    Args:
        build: Called once in each process, with the same settings in all workers of a job.
        argv: The command line without the program's name; the process's own if None.
        flags: Adds the script's own flags to an argparse group.
    """
    try:
        config = Config.parse(sys.argv[1:] if argv is None else argv, os.environ, flags)
        if config.local_rank is None:
            planned = launcher.plan(config.processes, os.environ)
            if planned.processes > 1:
                return launcher.launch(config, planned)
        return _train(launcher.share(config), build)
    except (ConfigError, RecordError, Diverged, Drifted) as error:
        print(f"trainer: {error}", file=sys.stderr)
        return exit_codes.USAGE
    except TrainerError as error:
        print(f"trainer: {error}", file=sys.stderr)
        return exit_codes.FAILED


def _train(config: Config, build: Build) -> int:
    metrics = open_metrics(config.metrics_port, job=config.job, worker=config.worker)
    log = Log(config.worker, debug=config.debug, listener=metrics.event)
    # Not an Event: a second SIGTERM that interrupts `set` would wait for the lock that the first one holds.
    asked_to_leave: queue.SimpleQueue[None] = queue.SimpleQueue()
    signal.signal(signal.SIGTERM, lambda *_: asked_to_leave.put(None))
    log.event("started", job=config.job, pid=os.getpid(), etcd=",".join(config.etcd))
    worker = _Worker(config, log, metrics)
    if worker.is_finished():
        log.event("finished", reason="the job had finished before this worker started")
        return exit_codes.FINISHED
    if not worker.learn_secret(wanted=asked_to_leave.empty):
        log.event("left", reason="asked to leave before etcd answered")
        return exit_codes.LEFT
    loop = worker.prepare(build)

    def leave_when_asked() -> None:
        asked_to_leave.get()
        loop.leave()

    try:
        if not asked_to_leave.empty():
            log.event("left", reason="asked to leave before it had joined")
            return exit_codes.LEFT
        # Not in the signal handler: `leave` writes to etcd and acquires locks that the interrupted code may hold.
        threading.Thread(target=leave_when_asked, name="leave", daemon=True).start()
        worker.announce(loop)
        return loop.run()
    finally:
        worker.close(loop.flush_until())


class _Worker:
    """Assembles one worker, in an order that logs early and disturbs other workers late."""

    def __init__(self, config: Config, log: Log, metrics: Metrics) -> None:
        from tidewater.elastic.checkpoint import Checkpoints, places

        self._config, self._log, self._metrics = config, log, metrics
        self._started = time.monotonic()
        self._host = config.host or route_to(config.etcd[0])
        self._store = EtcdStore(config.etcd, access=config.etcd_access)
        self._checkpoints = Checkpoints(places(config.checkpoints), keep=config.keep_checkpoints, log=log)
        self._member_id = f"{config.worker}-{secrets.token_hex(4)}"
        self._identity: Identity
        self._loader: Loader
        self._traits: Traits
        self._heartbeat: Heartbeat
        self._coordinator: Coordinator
        self._group: Group

    def is_finished(self) -> bool:
        """Return whether the job is finished, according to the checkpoints or to etcd (if it answers soon)."""
        if self._checkpoints.finished():
            return True
        try:
            first_contact(self._store, self._config.job, time.monotonic())
            return bool(self._store.read(keys.finished(self._config.job)).entries)
        except StoreError as error:
            self._log.event("etcd_unreachable", error=str(error))
            return False

    def learn_secret(self, wanted: Callable[[], bool]) -> bool:
        """Learn the job's secret. Return False if ``wanted`` returns False before etcd answers."""
        key, complained = keys.secret(self._config.job), time.monotonic()
        secret = self._config.secret.encode()
        while not secret and wanted():
            try:
                secret = obtain(self._store, key)
            except Refused as error:
                raise ConfigError(f"{error}. {WHERE}") from error
            except StoreError as error:
                if time.monotonic() - complained > _COMPLAIN_SECONDS:
                    self._log.event("etcd_unreachable", error=str(error))
                    complained = time.monotonic()
                time.sleep(_RETRY_SECONDS)
        self._identity = Identity(secret, self._member_id)
        return bool(secret)

    def prepare(self, build: Build) -> Loop:
        """Import torch, load the data, build and warm up the model. The other workers don't know of this one yet."""
        # Otherwise torch logs two warnings each time this worker checks whether a peer has arrived.
        os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
        import torch  # by far the slowest import, so after the first log line

        from tidewater.elastic.data.loader import LoaderSettings
        from tidewater.elastic.data.stream import length, open_loader
        from tidewater.elastic.method.checks import check

        # A kernel with one input channel has two equivalent descriptions of its strides; DDP warns about that
        # needlessly.
        warnings.filterwarnings("ignore", message="Grad strides do not match bucket view strides")
        config = self._config
        torch.set_num_threads(config.threads)
        torch.manual_seed(config.seed)
        device = torch.device("cuda", 0) if torch.cuda.is_available() else torch.device("cpu")
        training = build(config)
        check(training, config)
        settings = LoaderSettings(config.seed, config.data_workers, config.prefetch)
        # Before all threads and sockets, because it forks the processes that prepare data.
        self._loader = open_loader(training, settings, device)
        training.model.to(device).train()
        loop = self._assemble(training, device)
        self._checkpoints.prepare()
        samples = length(training.dataset)
        self._log.event(
            "prepared",
            seconds=time.monotonic() - self._started,
            device=str(device),
            samples="unknown" if samples is None else samples,
        )
        return loop

    def _assemble(self, training: Training, device: Any) -> Loop:
        from tidewater.elastic.data.stream import length
        from tidewater.elastic.group.group import open_group
        from tidewater.elastic.loop import Loop
        from tidewater.elastic.membership.coordinator import Coordinator
        from tidewater.elastic.membership.rules import Limits, Member
        from tidewater.elastic.parts import Parts
        from tidewater.elastic.passes.warmup import warm_up
        from tidewater.elastic.peer.heartbeat import Heartbeat
        from tidewater.elastic.peer.server import PeerServer

        config = self._config
        self._traits = _traits(config, training, self._identity.secret)
        server = PeerServer(self._identity, self._traits)
        server.start()
        group = self._group = open_group(self._host, device, config.group_timeout_seconds, server)
        me = Member(
            id=self._member_id,
            worker=config.worker,
            host=self._host,
            peer_port=server.port,
            signature=self._traits.digest(),
            ready_after=0,
        )
        limits = Limits(config.least_members, config.most_members, config.peer_timeout_seconds)
        self._coordinator = Coordinator(
            self._store, config.job, me, limits=limits, lease_seconds=config.lease_seconds, log=self._log
        )
        state, stepper = _state(config, training, group)
        self._heartbeat = Heartbeat(
            self._identity,
            timeout=config.heartbeat_seconds,
            since=lambda: loop.waiting_since,
            on_silent=lambda member: loop.peer_silent(member),
        )
        parts = Parts(
            member_id=self._member_id,
            training=training,
            total=length(training.dataset),
            state=state,
            stepper=stepper,
            loader=self._loader,
            group=group,
            coordinator=self._coordinator,
            server=server,
            heartbeat=self._heartbeat,
            checkpoints=self._checkpoints,
            metrics=self._metrics,
            refusal=self._refusal,
        )
        loop = Loop(config, parts, self._log)
        warm_up(parts, self._log, most=config.step_size(1))
        return loop

    def announce(self, loop: Loop) -> None:
        """Announce this worker: from now on it may become a member. Raise ConfigError if it never can."""
        from tidewater.elastic.membership.coordinator import Hooks
        from tidewater.elastic.peer.server import is_gone, look

        def is_dead(member: Any) -> bool:
            return member.id in self._heartbeat.silent() or is_gone(member.address)

        def sign_of(member: Any) -> Any:
            return look(self._identity, member.address)

        def return_secret() -> None:
            if not self._config.secret:
                restore(self._store, keys.secret(self._config.job), self._identity.secret)

        self._heartbeat.start()
        hooks = Hooks(loop.membership_changed, is_dead, sign_of, self._heartbeat.silent, return_secret)
        self._coordinator.start(hooks)
        self._coordinator.wait(lambda view: True, time.monotonic() + _FIRST_VIEW_SECONDS)
        reason = self._refusal(self._coordinator.view)
        if reason:
            raise ConfigError(reason)
        self._coordinator.announce()

    def close(self, flush_until: float) -> None:
        """Withdraw from the job, end pending communication, and wait for the checkpoint that is being written until
        that monotonic time."""
        self._coordinator.stop()
        self._heartbeat.stop()
        self._group.close()
        self._checkpoints.close(flush_until)
        self._loader.close()

    def _refusal(self, view: View) -> str | None:
        from tidewater.elastic.membership.traits import refusal
        from tidewater.elastic.peer.server import ask_traits

        return refusal(view, self._member_id, self._traits, lambda member: ask_traits(self._identity, member.address))


def _traits(config: Config, training: Training, secret: bytes) -> Traits:
    """Return the traits that must be equal in all workers that train together."""
    from tidewater.elastic.membership.traits import Traits, code_digest

    names = (
        *("epochs", "max_steps", "batch_size", "batch_policy", "micro_batch", "seed", "amp", "fresh_optimizer"),
        *("compare_every", "on_drift"),
    )
    common = {name: getattr(config, name) for name in names}
    said = {f"--{name.replace('_', '-')}": str(value) for name, value in [*common.items(), *vars(config.user).items()]}
    return Traits.of(
        training.model,
        secret,
        **{
            "the dataset": _data_digest(training),
            "the optimizer": _classes(training.optimizer),
            "the scheduler": _classes(training.scheduler),
        },
        **said,
        **{"the script": _script_digest()},
        code=code_digest(files("tidewater.contract"), files("tidewater.elastic")),
    )


def _classes(given: Any) -> str:
    from tidewater.elastic.method.optimizers import several

    return ", ".join(type(each).__name__ for each in several(given)) or "none"


def _script_digest() -> str:
    """Return a digest of the source of the started program, which may be in a zip file."""
    try:
        source = inspect.getsource(sys.modules["__main__"])
    except (OSError, TypeError):  # not started from a file
        return ""
    return hashlib.sha256(source.encode()).hexdigest()[:16]


def _state(config: Config, training: Training, group: Any) -> tuple[Any, Any]:
    import torch

    from tidewater.elastic.state import State, kind_of
    from tidewater.elastic.step import Stepper

    kind = kind_of(training.model, data=_data_digest(training), seed=config.seed)
    scaler = torch.amp.GradScaler(group.device.type, enabled=config.amp == "fp16")
    state = State(training, kind, scaler, fresh_optimizer=config.fresh_optimizer)
    state.micro_batch = config.micro_batch
    return state, Stepper(training, state, group, amp=config.amp, seed=config.seed)


def _data_digest(training: Training) -> str:
    """Return what identifies the dataset: its ``digest`` if it has one, otherwise its length (and a stream's class)."""
    from tidewater.elastic.data.stream import is_stream, length

    dataset = training.dataset
    known = str(length(dataset))
    return str(getattr(dataset, "digest", f"{type(dataset).__name__} {known}" if is_stream(dataset) else known))
