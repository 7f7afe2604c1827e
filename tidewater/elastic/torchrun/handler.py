"""torch's RendezvousHandler on etcd v3: applies the decisions of ``rounds``.

torchrun's agent calls ``next_rendezvous`` before it starts workers, and ``num_nodes_waiting`` several times a second
while they run. It stops its workers before it calls ``next_rendezvous`` again. The rest happens in threads: the mirror
follows etcd and renews the lease, and a small server shows other nodes that this process is alive. At the server of
rank 0 the nodes of a round meet, and authenticate with a secret that is in etcd.

Every node creates its own torch store for each round, and the store of rank 0 serves the round: the agents use it with
a prefix, the workers as MASTER_ADDR and MASTER_PORT. So keys of earlier rounds are never found. torch gives this store
no authentication: anyone who reaches its port can read and write.
"""

from __future__ import annotations

import atexit
import contextlib
import secrets
import socket
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, wait
from datetime import timedelta

import torch.distributed as dist
from torch._C._distributed_c10d import PrefixStore, TCPStore
from torch.distributed.elastic.rendezvous.api import (
    RendezvousClosedError,
    RendezvousConnectionError,
    RendezvousHandler,
    RendezvousInfo,
    RendezvousParameters,
    RendezvousStateError,
    RendezvousStoreInfo,
    RendezvousTimeoutError,
)
from torch.distributed.elastic.utils.logging import get_logger

from tidewater.contract import keys
from tidewater.elastic.addresses import Address, bare, everywhere, route_to
from tidewater.elastic.errors import ConfigError, GroupBroken, RecordError, StoreError
from tidewater.elastic.etcd.access import Access
from tidewater.elastic.etcd.client import EtcdStore, Store
from tidewater.elastic.etcd.mirror import Entries, Mirror
from tidewater.elastic.etcd.secret import obtain
from tidewater.elastic.group import rendezvous
from tidewater.elastic.peer.handshake import Identity
from tidewater.elastic.peer.server import PeerServer, is_gone
from tidewater.elastic.torchrun import rounds
from tidewater.elastic.torchrun.options import Options
from tidewater.elastic.torchrun.rounds import Inputs, Kind, Limits, Node, Round, View

NAME = "etcd-v3"
CLOSED_SECONDS = 3600
"""Time for which the id of a finished run can't be used again, so that late nodes learn that it is finished."""

_MEET_SECONDS = 30.0
_STORE_TIMEOUT = timedelta(seconds=300)  # torch's own default
_PROBE_SECONDS = 0.2

log = get_logger(__name__)  # logs to the same place as torchrun, with its LOGLEVEL
_SLICE_SECONDS = 0.2
_TIMEOUT = timedelta(seconds=1)


def create(params: RendezvousParameters) -> RendezvousHandler:
    """Return the handler for ``--rdzv-backend=etcd-v3``. Raise ConfigError for invalid options."""
    options = Options.parse(params.endpoint, params.config)
    if not params.run_id or "/" in params.run_id:
        raise ConfigError(f"--rdzv-id {params.run_id!r} must be a name without a slash")
    limits = Limits(params.min_nodes, params.max_nodes, options.last_call_seconds, options.patience_seconds)
    store = EtcdStore(options.endpoints, access=Access(context=options.tls()))
    return EtcdRendezvous(store, params.run_id, limits, options, host=params.local_addr or "")


class EtcdRendezvous(RendezvousHandler):
    """The part of one agent in the rendezvous of one run."""

    def __init__(self, store: Store, run_id: str, limits: Limits, options: Options, *, host: str = "") -> None:
        self._store, self._run_id, self._limits, self._options, self._host = store, run_id, limits, options, host
        self._me: Node | None = None
        self._joined: Round | None = None
        self._server: TCPStore | None = None
        self._peers: PeerServer | None = None
        self._mirror = Mirror(store, keys.rendezvous(run_id), lease_seconds=options.lease_seconds)
        self._arrivals: tuple[frozenset[str], float] = (frozenset(), 0.0)
        self._break: tuple[int, float] | None = None

    def get_backend(self) -> str:
        """See base class."""
        return NAME

    def get_run_id(self) -> str:
        """See base class."""
        return self._run_id

    @property
    def use_agent_store(self) -> bool:
        """Whether workers use the store of rank 0's agent. They do, so no free port has to be guessed."""
        return True

    def next_rendezvous(self) -> RendezvousInfo:
        """See base class. May be called repeatedly; the node is in one round at a time.

        Raises:
            RendezvousConnectionError: etcd did not answer within ``connect_seconds``.
            RendezvousTimeoutError: No round with this node was formed within ``join_seconds``.
            RendezvousClosedError: The run is finished.
            RendezvousStateError: The records are from another version of this code.
        """
        deadline = time.monotonic() + self._options.join_seconds
        try:
            self._announce()
            while True:
                found = self._wait_for_round(deadline)
                try:
                    info = self._enter(found, deadline)
                except GroupBroken as error:
                    log.warning("Round %d of %s broke before it began: %s", found.number, self._run_id, error)
                    self._announce()
                    continue
                self._joined = found
                return info
        except RecordError as error:
            raise RendezvousStateError(str(error)) from error

    def is_closed(self) -> bool:
        """See base class."""
        return self._view().closed

    def set_closed(self) -> None:
        """See base class. The id can be used again an hour later."""
        try:
            lease = self._store.grant(CLOSED_SECONDS)
            self._store.put(keys.rendezvous_closed(self._run_id), b"{}", lease)
        except StoreError as error:
            log.warning("The rendezvous %s could not be closed: %s", self._run_id, error)

    def num_nodes_waiting(self) -> int:
        """See base class. Also greater than 0 when a node of the round is lost: the agent then restarts its workers."""
        if self._me is None or self._joined is None:
            return 0
        try:
            return rounds.nodes_waiting(self._view(), self._me.id, self._joined.number, self._limits)
        except RecordError as error:
            log.warning("%s", error)
            return 0

    def shutdown(self) -> bool:
        """See base class. Close the run if this node's workers have succeeded; a node that failed, or that only waited
        in line, just leaves.

        torch's launcher calls this in a ``finally``, without the result of the workers: it raises an exception at the
        same time if they failed.
        """
        succeeded = sys.exc_info()[0] is None
        if succeeded and self._joined is not None and self._view().number == self._joined.number:
            self.set_closed()
        self._withdraw()
        return True

    def _announce(self) -> None:
        """Publish that no worker runs here, and that a new torch store is ready for the next round."""
        if self._me is None:
            self._connect()
        self._learn_secret()
        server = TCPStore(everywhere(), 0, is_master=True, wait_for_workers=False, timeout=_STORE_TIMEOUT)
        self._publish(server.port)
        self._server = server  # the previous record names the previous store, so keep that one until now

    def _connect(self) -> None:
        self._mirror.start()
        atexit.register(self._withdraw)  # an agent that gets SIGTERM ends without a call of shutdown
        if not self._mirror.wait(lambda _: True, time.monotonic() + self._options.connect_seconds):
            raise RendezvousConnectionError(
                f"etcd has not answered within {self._options.connect_seconds:g} s: {self._mirror.error}. "
                "Look at --rdzv-endpoint (http:// or https://, the client port), "
                "and for TLS at --rdzv-conf cacert=,cert=,key="
            )
        host = bare(self._host) or route_to(self._options.endpoints[0])
        node_id = f"{socket.gethostname()}-{secrets.token_hex(4)}"
        self._peers = PeerServer(Identity(secrets.token_bytes(), node_id))
        self._peers.start()
        self._me = Node(node_id, host, self._peers.port, store_port=0, done_with=0)

    def _learn_secret(self) -> None:
        """Learn the run's secret, before each round: after a loss of etcd's data there is another one."""
        peers, node_id = self._serving(), self._mine().id
        try:
            peers.identity = Identity(obtain(self._store, keys.rendezvous_secret(self._run_id)), node_id)
        except StoreError as error:
            log.warning("The secret of %s could not be read, the last one is used: %s", self._run_id, error)

    def _publish(self, store_port: int) -> None:
        me = self._mine()
        number = max(self._view().number, self._joined.number if self._joined else 0, me.done_with)
        self._me = Node(me.id, me.host, me.peer_port, store_port, done_with=number)
        self._mirror.publish(keys.rendezvous_node(self._run_id, me.id), rounds.node_to_json(self._me))

    def _withdraw(self) -> None:
        atexit.unregister(self._withdraw)
        self._mirror.stop()

    def _mine(self) -> Node:
        if self._me is None:
            raise RendezvousStateError("next_rendezvous has not been called yet")
        return self._me

    def _serving(self) -> PeerServer:
        if self._peers is None:
            raise RendezvousStateError("next_rendezvous has not been called yet")
        return self._peers

    def _view(self) -> View:
        view = view_of(self._mirror.entries, self._run_id)
        found = view.node(self._me.id) if self._me else None
        if found is None or self._me is None:
            return view
        # The last record that this node has written counts, even if etcd has not sent it back yet.
        mine = Node(**{**self._me.__dict__, "age": found.age})
        others = tuple(node for node in view.nodes if node.id != mine.id)
        return View(view.round, view.round_revision, (*others, mine), view.closed)

    def _wait_for_round(self, deadline: float) -> Round:
        while True:
            entries, view, now = self._mirror.entries, self._view(), time.monotonic()
            action = self._action(view, now)
            if action.kind is Kind.GIVE_UP:
                raise RendezvousClosedError(
                    f"the run {self._run_id!r} is finished; use another --rdzv-id, or wait an hour"
                )
            if action.kind is Kind.ENTER and action.round:
                return action.round
            if now > deadline:
                raise RendezvousTimeoutError(
                    f"no round of {self._run_id!r} had room for this node within {self._options.join_seconds:g} s: "
                    f"{len(rounds.ready(view))} nodes are ready, {len(rounds.busy(view))} are busy, "
                    f"--nnodes={self._limits.min_nodes}:{self._limits.max_nodes}"
                )
            if action.kind is Kind.PROPOSE and action.round:
                self._propose(action.round, view)
            elif self._mine().done_with < view.number:
                self._publish(self._mine().store_port)  # in line: ready for the next round too
            wake_at = min(deadline, action.wake_at or deadline, time.monotonic() + self._slice(view))
            self._mirror.wait_for_news(entries, max(wake_at, time.monotonic() + 0.01))

    def _slice(self, view: View) -> float:
        """Return the longest wait for news: busy nodes of a broken round are checked often, as they may have ended."""
        return _PROBE_SECONDS if rounds.is_broken(view) else 5.0

    def _action(self, view: View, now: float) -> rounds.Action:
        self._note(view, now)
        broken_at = self._break[1] if self._break else now
        inputs = Inputs(self._mine().id, self._limits, arrived_at=self._arrivals[1], broken_at=broken_at)
        action = rounds.decide(view, inputs, now)
        asked: list[Node] = []
        if action.kind is Kind.WAIT and rounds.is_broken(view):
            asked = rounds.busy(view)
        elif action.kind is Kind.PROPOSE and action.round:
            asked = [node for node in action.round.nodes if node.id != inputs.me]
        dead = frozenset(node.id for node in asked if is_gone(node.address))
        if not dead:
            return action
        return rounds.decide(view, Inputs(**{**inputs.__dict__, "dead": dead}), now)

    def _note(self, view: View, now: float) -> None:
        """Note since when these nodes are ready, and since when the round is broken."""
        standing = frozenset(node.id for node in rounds.ready(view))
        if standing != self._arrivals[0]:
            self._arrivals = (standing, now)
        if not rounds.is_broken(view):
            self._break = None
        elif self._break is None or self._break[0] != view.number:
            self._break = (view.number, now)

    def _propose(self, proposal: Round, view: View) -> None:
        """Compare-and-set the next round. The mirror shows whether that succeeded."""
        try:
            key = keys.rendezvous_round(self._run_id)
            self._store.put_if(key, rounds.round_to_json(proposal), view.round_revision)
        except StoreError as error:
            log.warning("etcd did not accept the next round of %s: %s", self._run_id, error)

    def _enter(self, found: Round, deadline: float) -> RendezvousInfo:
        """Meet the other nodes at rank 0's store. Raise GroupBroken if one is lost before all have arrived."""
        me = self._mine()
        rank, first = found.rank(me.id) or 0, found.nodes[0]
        check, until = self._still_holds(found), min(deadline, time.monotonic() + _MEET_SECONDS)
        peers = self._serving()
        board = peers.board.at(found.number)
        met = board if rank == 0 else rendezvous.join(peers.identity, first.address, found.number, check, until)
        # The check covers the case that the round is superseded.
        rendezvous.MeetingStore(met, check, until).assemble(rank, len(found.nodes), superseded=lambda: False)
        server = self._server if rank == 0 and self._server else None
        server = server or join(first.host, first.store_port, check, until)
        server.set_timeout(_STORE_TIMEOUT)
        log.info("Round %d of %s: rank %d of %d", found.number, self._run_id, rank, len(found.nodes))
        self._server = server
        store = PrefixStore("agents", server)
        return RendezvousInfo(store, rank, len(found.nodes), RendezvousStoreInfo(first.host, first.store_port))

    def _still_holds(self, found: Round) -> Callable[[], None]:
        def check() -> None:
            view = self._view()
            if view.number != found.number or rounds.is_broken(view):
                raise GroupBroken("a node was lost, or there is a newer round")

        return check


def view_of(entries: Entries, run_id: str) -> View:
    """Return the records as one view. Raise RecordError for records of another version of this code."""
    found = entries.get(keys.rendezvous_round(run_id))
    nodes = tuple(
        rounds.node_from_json(entry.value, age=entry.create_revision)
        for key, entry in entries.items()
        if key.startswith(keys.rendezvous_nodes(run_id))
    )
    return View(
        round=rounds.round_from_json(found.value) if found else None,
        round_revision=found.mod_revision if found else 0,
        nodes=nodes,
        closed=keys.rendezvous_closed(run_id) in entries,
    )


def join(host: str, port: int, wanted: Callable[[], None], deadline: float) -> TCPStore:
    """Return a client of another process's torch store. Raise GroupBroken after the (monotonic) deadline, and whatever
    ``wanted`` raises."""

    def check() -> None:
        wanted()
        if time.monotonic() > deadline:
            raise GroupBroken(f"the store of rank 0 at {Address(host, port)} does not answer")

    while True:
        check()
        with contextlib.suppress(dist.DistNetworkError, dist.DistStoreError):
            return _connected(host, port, check)


def _connected(host: str, port: int, check: Callable[[], None]) -> TCPStore:
    """Connect in another thread. Stop waiting when ``check`` raises."""
    answer: Future[TCPStore] = Future()

    def connect() -> None:
        try:
            store = TCPStore(host, port, is_master=False, wait_for_workers=False, timeout=_TIMEOUT)
            answer.set_result(store)
        except BaseException as error:
            answer.set_exception(error)

    threading.Thread(target=connect, name="agent-store", daemon=True).start()
    while not answer.done():
        check()
        wait([answer], _SLICE_SECONDS)
    return answer.result()
