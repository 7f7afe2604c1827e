"""Finds peers that are frozen or cut off, within seconds; gloo's time-out would take much longer.

    heartbeat = Heartbeat(identity, interval=0.25, timeout=1.5, since=loop.waiting_since, on_silent=give_up)
    heartbeat.start()
    heartbeat.watch(generation.members)       # from now on, watch these
    heartbeat.tense(True); …                  # a generation is being formed: ping all the time
    heartbeat.silent()                        # ids of the members that do not answer

A dead process is noticed at once, because its sockets are reset. A stopped one (SIGSTOP, a hung machine, a broken
cable) sends nothing. So while a step is late, or a generation is being formed, one thread with one selector pings its
peers, each over a persistent connection, which begins with a handshake (see ``handshake``). A thread of the peer's
``PeerServer`` answers, so a peer also answers during a long step. While steps are on time, no pings are sent.

In a large job a thousand members that ping one another would be a million pings. So each pings some, its neighbours
(see there), and all others, too, as soon as one of those is silent: one that gives a generation up ends it for all.

A silent peer stays silent, and is pinged again, until it answers or other members are watched. How long a peer may
leave a ping unanswered depends on the answers before, and on how late this thread itself was (see ``patience``). A
process that was stopped itself does not blame its peers: after such a gap each peer gets the full time again.
"""

from __future__ import annotations

import contextlib
import errno
import math
import selectors
import socket
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from tidewater.elastic.addresses import resolve
from tidewater.elastic.membership.rules import Seat
from tidewater.elastic.peer import neighbours, patience, server
from tidewater.elastic.peer.handshake import Identity, Initiator

LATE_SECONDS = 0.25
"""A step that waits longer for its peers is late, so they are pinged."""
_TICK_SECONDS = 0.1
"""Nothing wakes the thread when a step begins to wait."""
_MOST_READ = 4096


@dataclass
class _Peer:
    member: Seat
    near: bool
    """Whether it is pinged although no other one is silent."""
    connection: socket.socket | None = None
    connected: bool = False
    handshake: Initiator | None = None
    opened_at: float = 0.0
    asked_at: float | None = None
    """When the oldest unanswered ping was sent."""
    answered: bool = False
    """Whether pings are sent on this connection."""
    silent: bool = False
    received: bytearray = field(default_factory=bytearray)


class Heartbeat:
    """Pings peers when a step is late or a generation is being formed. Methods may be called from any thread."""

    def __init__(
        self,
        me: Identity,
        *,
        interval: float = 0.25,
        timeout: float = 1.5,
        since: Callable[[], float | None] = lambda: None,
        on_silent: Callable[[Seat], None] = lambda member: None,
    ) -> None:
        """Durations are in seconds.

        Args:
            me: This worker, which is not pinged.
            interval: The time between two pings of the same peer.
            timeout: A peer that leaves a ping unanswered for this time, or a part of it (see ``patience``), is silent.
            since: Returns the monotonic time since which a step waits for peers; None while nothing waits.
            on_silent: Called once when a peer becomes silent. It runs in the pinging thread, so it must be quick.
        """
        self._me, self._interval, self._timeout = me, interval, timeout
        self._since, self._on_silent = since, on_silent
        self._lock = threading.Lock()
        self._watched: list[str] = []
        """The ids of the members, in order of rank."""
        self._peers: dict[str, _Peer] = {}
        self._retired: list[_Peer] = []
        self._tense = False
        self._stopping = False
        self._delay = patience.Delay()
        self._ticked_at = time.monotonic()
        self._round_at = 0.0
        self._selector = selectors.DefaultSelector()
        self._waker, self._woken = socket.socketpair()

    def start(self) -> None:
        """Start the thread. Before ``watch`` it only finds out how late this process's threads come."""
        self._woken.setblocking(False)
        self._waker.setblocking(False)
        self._selector.register(self._woken, selectors.EVENT_READ)
        threading.Thread(target=self._run, name="heartbeat", daemon=True).start()

    def stop(self) -> None:
        """End the thread and close the connections. Safe to call twice."""
        self._stopping = True
        self._wake()

    def watch(self, members: Iterable[Seat]) -> None:
        """Watch exactly these members, in order of rank. If they or their order differ from the previous ones, all
        count as answering again."""
        wanted = list(members)
        names = [each.id for each in wanted]
        rank = names.index(self._me.id) if self._me.id in names else -1
        near = neighbours.of(rank, len(wanted))
        after = [*range(rank + 1, len(wanted)), *range(rank)]
        with self._lock:
            if names != self._watched:
                self._retired += self._peers.values()
                self._watched = names
                self._peers = {names[each]: _Peer(wanted[each], near=each in near) for each in after}
        self._wake()

    def tense(self, on: bool) -> None:
        """Ping all the time from now on if ``on``; otherwise only while a step is late according to ``since``."""
        if self._tense != on:
            self._tense = on
            self._wake()

    def silent(self) -> frozenset[str]:
        """Return the ids of members that did not answer in time or have ended, until they answer."""
        with self._lock:
            return frozenset(member_id for member_id, peer in self._peers.items() if peer.silent)

    def _wake(self) -> None:
        with contextlib.suppress(OSError):  # the buffer already has a wake-up call, or the thread has ended
            self._waker.send(b"!")

    def _run(self) -> None:
        while not self._stopping:
            self._turn()
        for peer in [*self._retired, *self._peers.values()]:
            self._close(peer)

    def _turn(self) -> None:
        with self._lock:
            retired, self._retired = self._retired, []
            peers = list(self._peers.values())
        for peer in retired:
            self._close(peer)
        for key, _ in self._selector.select(self._rest(peers)):
            if isinstance(key.data, _Peer):
                self._advance(key.data)
            else:
                with contextlib.suppress(OSError):
                    self._woken.recv(_MOST_READ)
        self._judge(peers)
        self._ask(peers)

    def _rest(self, peers: list[_Peer]) -> float:
        """Return the time to sleep. It is short also without peers: how late the thread then comes counts."""
        began = self._since()
        late_at = began + LATE_SECONDS if peers and began is not None else math.inf
        return min(max((self._round_at if self._due(peers) else late_at) - time.monotonic(), 0.0), _TICK_SECONDS)

    def _due(self, peers: list[_Peer]) -> list[_Peer]:
        """Return the peers to ping in this round."""
        began = self._since()
        late = began is not None and time.monotonic() - began > LATE_SECONDS
        if not (self._tense or late):
            return [peer for peer in peers if peer.silent]
        everyone = any(peer.silent for peer in peers)
        return [peer for peer in peers if peer.near or everyone]

    def _ask(self, peers: list[_Peer]) -> None:
        now = time.monotonic()
        due = self._due(peers)
        if not due or now < self._round_at:
            return
        self._round_at = now + self._interval
        for peer in due:
            # TCP sends a lost packet again at growing intervals, and the first one only after a second, when the peer
            # may have been given up. A new connection works at once.
            most = self._timeout if peer.connected else patience.LEAST * self._timeout / 2
            if peer.connection and peer.asked_at is not None and now - peer.opened_at > most:
                self._close(peer)
            if not peer.connection:
                self._open(peer, now)
            elif peer.asked_at is None:
                self._ping(peer, now)

    def _judge(self, peers: list[_Peer]) -> None:
        now = time.monotonic()
        gap, self._ticked_at = now - self._ticked_at, now
        self._delay = patience.noted(self._delay, gap - _TICK_SECONDS, now)
        limit = patience.limit(self._timeout, self._delay)
        stood_still = gap > limit / 2
        for peer in peers:
            if peer.asked_at is None:
                continue
            if stood_still:
                peer.asked_at = now
            elif now - peer.asked_at >= limit:
                self._accuse(peer)

    def _accuse(self, peer: _Peer) -> None:
        with self._lock:
            news = not peer.silent and self._peers.get(peer.member.id) is peer
            peer.silent = True
        if news:
            self._on_silent(peer.member)

    def _open(self, peer: _Peer, now: float) -> None:
        peer.connected, peer.answered, peer.opened_at = False, False, now
        peer.asked_at = now if peer.asked_at is None else peer.asked_at
        peer.handshake = Initiator(self._me, peer.member.id)
        peer.received.clear()
        try:
            family, place = resolve(peer.member.host, peer.member.peer_port)
            connection = peer.connection = socket.socket(family, socket.SOCK_STREAM)
        except OSError:  # the name can't be resolved, or no file descriptor is left: treat it as no answer
            return
        connection.setblocking(False)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        error = connection.connect_ex(place)
        if error in (0, errno.EINPROGRESS):
            self._selector.register(connection, selectors.EVENT_WRITE, peer)
        else:
            self._fail(peer, error)

    def _advance(self, peer: _Peer) -> None:
        """Handle an event on a peer's connection."""
        connection = peer.connection
        if connection is None:
            return
        if not peer.connected:
            error = connection.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if error:
                return self._fail(peer, error)
            peer.connected = True
            self._selector.modify(connection, selectors.EVENT_READ, peer)
            return None
        try:
            data = connection.recv(_MOST_READ)
        except OSError:
            data = b""
        peer.received += data
        if not data or len(peer.received) > _MOST_READ:
            self._closed(peer)
        elif peer.handshake:
            self._authenticate(peer, connection, peer.handshake)
        elif server.PONG in peer.received:
            peer.received.clear()
            if peer.asked_at is not None:
                now = time.monotonic()
                self._delay = patience.noted(self._delay, now - peer.asked_at, now)
            peer.asked_at, peer.answered = None, True
            with self._lock:
                peer.silent = False
        return None

    def _authenticate(self, peer: _Peer, connection: socket.socket, handshake: Initiator) -> None:
        """Continue the handshake with what has arrived, and send the first ping at its end."""
        try:
            while handshake.needs and len(peer.received) >= handshake.needs:
                part = bytes(peer.received[: handshake.needs])
                del peer.received[: len(part)]
                connection.send(handshake.advance(part))
        except OSError:  # another process, or one with another secret
            return self._closed(peer)
        if not handshake.needs:
            peer.handshake = None
            self._ping(peer, time.monotonic())
        return None

    def _closed(self, peer: _Peer) -> None:
        """Reconnect: the peer has closed an idle connection, or has ended."""
        trusted = peer.answered
        self._close(peer)
        if trusted and peer.asked_at is not None:
            self._open(peer, time.monotonic())

    def _ping(self, peer: _Peer, now: float) -> None:
        if peer.asked_at is None:
            peer.asked_at = now
        try:
            if peer.connection:
                peer.connection.send(server.PING)
        except OSError:
            self._closed(peer)

    def _fail(self, peer: _Peer, error: int) -> None:
        self._close(peer)
        if error in server.GONE:  # the process has ended
            self._accuse(peer)

    def _close(self, peer: _Peer) -> None:
        if peer.connection:
            with contextlib.suppress(KeyError):  # never registered, if the connection was refused at once
                self._selector.unregister(peer.connection)
            peer.connection.close()
            peer.connection = None
