"""Makes the crew of a script: settings, secret, peer server, process group and membership, in the trainer's order."""

from __future__ import annotations

import os
import queue
import secrets
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Any

import torch
from torch.optim.lr_scheduler import LRScheduler

from elasticdl.allreduce.settings import NEVER, PATIENCE_SECONDS, job_id
from elasticdl.api.crew import Crew
from elasticdl.api.environment import Environment
from elasticdl.job import JobArgs
from tidewater import Config, ConfigError, Training
from tidewater.contract import keys
from tidewater.elastic.checkpoint import Checkpoints, places
from tidewater.elastic.data.loader import Loader, LoaderSettings
from tidewater.elastic.errors import Refused, StoreError
from tidewater.elastic.etcd.client import EtcdStore
from tidewater.elastic.etcd.probe import WHERE
from tidewater.elastic.etcd.secret import obtain, restore
from tidewater.elastic.group.addresses import Address, route_to
from tidewater.elastic.group.group import Group, open_group
from tidewater.elastic.membership.coordinator import Coordinator, Hooks
from tidewater.elastic.membership.rules import Limits, Member, View
from tidewater.elastic.membership.traits import Traits, code_digest, refusal
from tidewater.elastic.observe.log import Log
from tidewater.elastic.observe.metrics import open_metrics
from tidewater.elastic.parts import Parts
from tidewater.elastic.peer.handshake import Identity
from tidewater.elastic.peer.heartbeat import Heartbeat
from tidewater.elastic.peer.server import PeerServer, ask_traits, is_gone, look
from tidewater.elastic.state import State, kind_of
from tidewater.elastic.step import Stepper

_RETRY_SECONDS = 0.3
_FIRST_VIEW_SECONDS = 5.0
_FORM_SECONDS = 20.0


@dataclass(frozen=True)
class Content:
    """What all workers of a script have alike."""

    model: torch.nn.Module
    optimizer: torch.optim.Optimizer
    scheduler: LRScheduler | tuple[()] = ()
    stateful: Mapping[str, Any] = field(default_factory=dict)
    """Further objects with `state_dict` and `load_state_dict` that a newcomer gets from the others."""


@contextmanager
def open_crew(environment: Environment, content: Content) -> Iterator[Crew]:
    """Give the crew; its worker has not joined the others yet, and leaves them at the end.

    Raise ConfigError if the environment is wrong, or if this worker can't train with the others.
    """
    with tempfile.TemporaryDirectory(prefix="elasticdl-") as scratch:
        config = Config.parse(flags_of(environment.args, environment.worker, scratch), os.environ)
        made = _Assembly(config, content)
        crew = made.crew()
        asked: queue.SimpleQueue[None] = queue.SimpleQueue()
        # Not in the signal handler: `leave` writes to etcd and acquires locks that the interrupted code may hold.
        threading.Thread(target=_leave_when_asked, args=(asked, crew), name="leave", daemon=True).start()
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, lambda *_: asked.put(None))
        try:
            made.announce(crew)
            yield crew
        finally:
            made.close()


def flags_of(args: JobArgs, worker: str, scratch: str) -> list[str]:
    """Return the trainer's command line for a script of this job."""
    checkpoints = f"{args.checkpoint_dir.rstrip('/')}/{job_id(args)}" if args.checkpoint_dir else scratch
    values: dict[str, object] = {
        "--job": job_id(args),
        "--worker": worker,
        "--seed": args.seed,
        "--checkpoints": checkpoints,
        "--checkpoint-every": args.checkpoint_steps or NEVER,
        "--keep-checkpoints": args.keep_checkpoint_max or NEVER,
        "--group-timeout-seconds": PATIENCE_SECONDS,
    }
    return [word for flag, value in values.items() for word in (flag, str(value))]


class _Assembly:
    """The parts of one worker."""

    def __init__(self, config: Config, content: Content) -> None:
        self._config = config
        self._metrics = open_metrics(config.metrics_port, job=config.job, worker=config.worker)
        self._log = Log(config.worker, debug=config.debug, listener=self._metrics.event)
        self._store = EtcdStore(config.etcd, access=config.etcd_access)
        self._member_id = f"{config.worker}-{secrets.token_hex(4)}"
        self._identity = Identity(config.secret.encode() or self._secret(), self._member_id)
        self._device = next(content.model.parameters()).device
        self._training = Training(
            model=content.model,
            optimizer=content.optimizer,
            scheduler=content.scheduler,
            dataset=_NoData(),
            loss=_no_loss,
            stateful=content.stateful,
        )
        self._traits = Traits.of(
            content.model,
            self._identity.secret,
            optimizer=type(content.optimizer).__name__,
            kept=", ".join(sorted(content.stateful)),
            code=code_digest(files("tidewater.contract"), files("tidewater.elastic"), files("elasticdl")),
        )
        self._checkpoints = Checkpoints(places(config.checkpoints), keep=config.keep_checkpoints, log=self._log)
        self._loader = Loader(_NoData(), LoaderSettings(config.seed), collate=None, device=self._device)
        self._group: Group
        self._coordinator: Coordinator
        self._heartbeat: Heartbeat

    def crew(self) -> Crew:
        """Return the crew."""
        config, training = self._config, self._training
        host = config.host or route_to(config.etcd[0])
        server = PeerServer(self._identity, self._traits)
        server.start()
        self._group = open_group(host, self._device, config.group_timeout_seconds, server)
        # A group of one first: torch tells the peers of a new group apart by the groups in which they were before.
        alone = (Address("localhost", 0),)
        self._group.form(secrets.randbits(48), 0, alone, time.monotonic() + _FORM_SECONDS)
        me = Member(self._member_id, config.worker, host, server.port, self._traits.digest(), ready_after=0)
        limits = Limits(config.least_members, config.most_members, config.peer_timeout_seconds)
        self._coordinator = Coordinator(
            self._store, config.job, me, limits=limits, lease_seconds=config.lease_seconds, log=self._log
        )
        kind = kind_of(training.model, data="shards", seed=config.seed)
        state = State(training, kind, torch.amp.GradScaler(self._device.type, enabled=False))
        self._heartbeat = Heartbeat(
            self._identity,
            timeout=config.heartbeat_seconds,
            since=lambda: crew.waiting_since,
            on_silent=lambda member: crew.peer_silent(member),
        )
        self._checkpoints.prepare()
        parts = Parts(
            member_id=self._member_id,
            training=training,
            total=None,
            state=state,
            stepper=Stepper(training, state, self._group, amp="off"),
            loader=self._loader,
            group=self._group,
            coordinator=self._coordinator,
            server=server,
            heartbeat=self._heartbeat,
            checkpoints=self._checkpoints,
            metrics=self._metrics,
            refusal=self._refusal,
        )
        crew = Crew(config, parts, self._log)
        return crew

    def announce(self, crew: Crew) -> None:
        """Announce this worker. Raise ConfigError if it can never train with the others."""
        hooks = Hooks(
            crew.membership_changed,
            lambda member: member.id in self._heartbeat.silent() or is_gone(member.address),
            lambda member: look(self._identity, member.address),
            self._heartbeat.silent,
            self._return_secret,
        )
        self._heartbeat.start()
        self._coordinator.start(hooks)
        self._coordinator.wait(lambda view: True, time.monotonic() + _FIRST_VIEW_SECONDS)
        reason = self._refusal(self._coordinator.view)
        if reason:
            raise ConfigError(reason)
        self._coordinator.announce()

    def close(self) -> None:
        """Withdraw from the job."""
        self._coordinator.stop()
        self._heartbeat.stop()
        self._group.close()
        self._checkpoints.close(time.monotonic() + PATIENCE_SECONDS)
        self._loader.close()

    def _refusal(self, view: View) -> str | None:
        ask: Callable[[Member], Traits | None] = lambda member: ask_traits(self._identity, member.address)  # noqa: E731
        return refusal(view, self._member_id, self._traits, ask)

    def _return_secret(self) -> None:
        if not self._config.secret:
            restore(self._store, keys.secret(self._config.job), self._identity.secret)

    def _secret(self) -> bytes:
        """Return the job's secret, from etcd; wait for etcd."""
        while True:
            try:
                return obtain(self._store, keys.secret(self._config.job))
            except Refused as error:
                raise ConfigError(f"{error}. {WHERE}") from error
            except StoreError as error:
                self._log.event("etcd_unreachable", error=str(error))
                time.sleep(_RETRY_SECONDS)


def _leave_when_asked(asked: queue.SimpleQueue[None], crew: Crew) -> None:
    asked.get()
    crew.leave()


class _NoData(torch.utils.data.Dataset[None]):
    """In place of the dataset that the trainer would read: the script reads its own."""

    def __len__(self) -> int:
        return 1

    def __getitem__(self, index: int) -> None:
        return None


def _no_loss(model: torch.nn.Module, batch: Any) -> torch.Tensor:
    """Raise an error: the script computes its own loss."""
    raise NotImplementedError("the script computes the loss")
