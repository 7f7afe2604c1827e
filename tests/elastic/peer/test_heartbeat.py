"""Peers that do not answer are detected in time, and no other peer is reported."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.elastic.workers import CHECKOUT, SECRET, free_port
from tidewater.elastic.membership.rules import Member
from tidewater.elastic.peer import heartbeat as heartbeat_module
from tidewater.elastic.peer import neighbours
from tidewater.elastic.peer.handshake import HELLO, Identity, Responder
from tidewater.elastic.peer.heartbeat import LATE_SECONDS, Heartbeat
from tidewater.elastic.peer.patience import LEAST
from tidewater.elastic.peer.server import PONG, PeerServer

TIMEOUT = 3.0
"""A peer that is only slow must answer in this time."""
SLACK = 30.0
"""For a busy machine."""
SHORT = 0.5
"""The time of a peer that is not to answer; also a wait for what would happen at once, and must not."""

Start = Callable[..., Heartbeat]


def member(name: str, port: int) -> Member:
    return Member(name, name, "127.0.0.1", port, "", 0)


def living(name: str) -> Member:
    server = PeerServer(Identity(SECRET, name))
    server.start()
    return member(name, server.port)


@pytest.fixture
def start() -> Iterator[Start]:
    started = []

    def start_heartbeat(*, timeout: float = TIMEOUT, **more: object) -> Heartbeat:
        heartbeat = Heartbeat(Identity(SECRET, "me"), interval=0.1, timeout=timeout, **more)  # type: ignore[arg-type]
        heartbeat.start()
        started.append(heartbeat)
        return heartbeat

    yield start_heartbeat
    for heartbeat in started:
        heartbeat.stop()


@pytest.fixture
def frozen() -> Iterator[tuple[Member, subprocess.Popen[str]]]:
    """Yield a peer's process that can be stopped; its kernel continues to accept connections."""
    code = (
        "import time\nfrom tidewater.elastic.peer.server import PeerServer\n"
        f"from tidewater.elastic.peer.handshake import Identity\nserver = PeerServer(Identity({SECRET!r}, 'b'))\n"
        "server.start()\nprint(server.port, flush=True)\ntime.sleep(600)\n"
    )
    process = subprocess.Popen([sys.executable, "-c", code], cwd=CHECKOUT, stdout=subprocess.PIPE, text=True)
    assert process.stdout
    yield member("b", int(process.stdout.readline())), process
    process.kill()
    process.wait()


class Deaf:
    """A peer that answers until it is disconnected; connections to it stay open."""

    def __init__(self, name: str = "b") -> None:
        self.reachable, self._name = True, name
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            connection, _ = self._listener.accept()
            threading.Thread(target=self._answer, args=(connection,), daemon=True).start()

    def _answer(self, connection: socket.socket) -> None:
        responder = Responder(Identity(SECRET, self._name))
        with contextlib.suppress(OSError):  # the heartbeat may end it at any time
            connection.sendall(responder.challenge)
            connection.sendall(responder.answer(connection.recv(HELLO))[0])
            while connection.recv(4096):
                if self.reachable:
                    connection.sendall(PONG)


def until(condition: Callable[[], object], seconds: float = TIMEOUT + SLACK) -> float:
    began = time.monotonic()
    while not condition():
        assert time.monotonic() - began < seconds
        time.sleep(0.01)
    return time.monotonic() - began


def stays(condition: Callable[[], object], seconds: float = SHORT) -> None:
    began = time.monotonic()
    while time.monotonic() - began < seconds:
        assert condition()
        time.sleep(0.05)


def test_a_stopped_process_is_silent_until_it_continues(
    start: Start, frozen: tuple[Member, subprocess.Popen[str]]
) -> None:
    peer, process = frozen
    accused: list[str] = []
    heartbeat = start(on_silent=lambda each: accused.append(each.id))
    heartbeat.watch([peer, living("c")])
    heartbeat.tense(True)
    stays(lambda: not heartbeat.silent())
    os.kill(process.pid, signal.SIGSTOP)
    assert until(lambda: heartbeat.silent() == {"b"}) > LEAST * TIMEOUT / 2
    until(lambda: accused == ["b"])
    heartbeat.tense(False)
    stays(lambda: heartbeat.silent() == {"b"})
    os.kill(process.pid, signal.SIGCONT)
    until(lambda: not heartbeat.silent())
    assert accused == ["b"]


class Sleeper:
    """The clock of a heartbeat, and its selector, which sees no event: it only sleeps, and may oversleep."""

    def __init__(self) -> None:
        self.now, self.late = 1000.0, 0.0

    def monotonic(self) -> float:
        return self.now

    def select(self, seconds: float | None) -> list[Any]:
        self.now += (3600.0 if seconds is None else seconds) + self.late
        return []


@pytest.fixture
def sleeper(monkeypatch: pytest.MonkeyPatch) -> Sleeper:
    sleeper = Sleeper()
    monkeypatch.setattr(heartbeat_module, "time", sleeper)
    return sleeper


def asleep(sleeper: Sleeper, **more: Any) -> Heartbeat:
    heartbeat: Any = Heartbeat(Identity(SECRET, "me"), timeout=TIMEOUT, **more)
    heartbeat._selector.select = sleeper.select
    return heartbeat  # type: ignore[no-any-return]


def silent_after(heartbeat: Heartbeat, sleeper: Sleeper) -> float:
    """Return the seconds that a peer gets which accepts a connection and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        heartbeat.watch([member("b", listener.getsockname()[1])])
        heartbeat.tense(True)
        began = sleeper.now
        while not heartbeat.silent():
            heartbeat._turn()
        return sleeper.now - began


def test_a_worker_whose_timers_are_on_time_gives_a_peer_the_least_time_from_the_first_one_on(sleeper: Sleeper) -> None:
    """How long it had no peers before says nothing about how long they may take."""
    heartbeat = asleep(sleeper)
    for _ in range(100):
        heartbeat._turn()
    assert LEAST * TIMEOUT <= silent_after(heartbeat, sleeper) < LEAST * TIMEOUT + 2 * SHORT


def test_a_worker_whose_timers_came_late_before_it_had_peers_gives_them_the_most_time(sleeper: Sleeper) -> None:
    heartbeat = asleep(sleeper)
    sleeper.late = TIMEOUT
    heartbeat._turn()
    sleeper.late = 0.0
    assert TIMEOUT <= silent_after(heartbeat, sleeper) < TIMEOUT + 2 * SHORT


def test_without_peers_a_long_step_does_not_keep_the_thread_busy(sleeper: Sleeper) -> None:
    """A worker that trains alone has no peer to ping, however long its step takes."""
    began = sleeper.now
    heartbeat = asleep(sleeper, since=lambda: began)
    heartbeat.watch([member("me", 1)])
    sleeper.now += 2 * LATE_SECONDS
    for _ in range(10):
        before = sleeper.now
        heartbeat._turn()
        assert sleeper.now > before


@pytest.fixture
def unreachable() -> Iterator[Member]:
    """Yield a peer with a full queue: connections are neither accepted nor refused, as if the first packet was lost."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        port = listener.getsockname()[1]
        waiting = [socket.socket() for _ in range(3)]
        for each in waiting:
            each.setblocking(False)
            each.connect_ex(("127.0.0.1", port))
        yield member("b", port)
        for each in waiting:
            each.close()


def test_an_unreachable_peer_is_silent_since_the_first_attempt(start: Start, unreachable: Member) -> None:
    heartbeat = start(timeout=SHORT)
    heartbeat.watch([unreachable])
    heartbeat.tense(True)
    assert until(lambda: heartbeat.silent() == {"b"}) > LEAST * SHORT / 2


def test_a_lost_first_packet_of_a_connection_is_no_reason_to_give_a_peer_up(
    sleeper: Sleeper, unreachable: Member
) -> None:
    """TCP would send it again after a second, which may be longer than the peer has."""
    heartbeat: Any = asleep(sleeper)
    heartbeat.watch([unreachable])
    heartbeat.tense(True)
    heartbeat._turn()
    first, began = heartbeat._peers["b"].connection, sleeper.now
    while heartbeat._peers["b"].connection is first:
        assert not heartbeat.silent()
        heartbeat._turn()
    assert sleeper.now - began <= 0.8 * LEAST * TIMEOUT


def test_a_disconnected_peer_is_silent_although_its_connection_is_open(start: Start) -> None:
    deaf = Deaf()
    heartbeat = start()
    heartbeat.watch([member("b", deaf.port)])
    heartbeat.tense(True)
    stays(lambda: not heartbeat.silent())
    deaf.reachable = False
    until(lambda: heartbeat.silent() == {"b"})
    deaf.reachable = True
    until(lambda: not heartbeat.silent())


def test_a_process_that_has_ended_is_not_waited_for(start: Start) -> None:
    heartbeat = start(timeout=60)
    heartbeat.watch([member("b", free_port())])
    heartbeat.tense(True)
    until(lambda: heartbeat.silent() == {"b"}, 30)


def test_another_process_on_the_same_port_does_not_answer_for_the_peer(start: Start) -> None:
    heartbeat = start(timeout=SHORT)
    stranger = living("b-of-today")
    heartbeat.watch([member("b-of-yesterday", stranger.peer_port)])
    heartbeat.tense(True)
    until(lambda: heartbeat.silent())


def test_a_peer_in_one_long_step_answers(start: Start) -> None:
    peer, done = living("b"), threading.Event()

    def work() -> None:
        while not done.is_set():
            sum(range(10_000))

    heartbeat = start()
    heartbeat.watch([peer])
    heartbeat.tense(True)
    threading.Thread(target=work, daemon=True).start()
    try:
        stays(lambda: not heartbeat.silent(), 1.2 * TIMEOUT)
    finally:
        done.set()


def test_no_peer_is_pinged_before_a_step_is_late(start: Start) -> None:
    began: list[float] = []
    heartbeat = start(since=lambda: began[-1] if began else None)
    heartbeat.watch([member("b", free_port())])
    stays(lambda: not heartbeat.silent())
    began.append(time.monotonic())
    assert until(lambda: heartbeat.silent()) >= LATE_SECONDS - 0.05


def test_in_a_new_generation_no_member_counts_as_silent(start: Start) -> None:
    gone = member("b", free_port())
    heartbeat = start()
    heartbeat.watch([gone])
    heartbeat.tense(True)
    until(lambda: heartbeat.silent() == {"b"})
    heartbeat.watch([gone])
    assert heartbeat.silent() == {"b"}
    heartbeat.watch([living("c")])
    assert heartbeat.silent() == set()
    stays(lambda: not heartbeat.silent())


def test_a_worker_does_not_ping_itself(start: Start) -> None:
    heartbeat = start()
    heartbeat.watch([member("me", free_port())])
    heartbeat.tense(True)
    stays(lambda: not heartbeat.silent())


def test_in_a_large_job_a_worker_pings_some_and_the_others_when_one_of_those_is_silent(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If each pinged all, a step that is late would be a million pings of a thousand workers."""
    monkeypatch.setattr(neighbours, "of", lambda rank, number: {number - 1})
    first, last = Deaf("a"), Deaf("d")
    members = [member("a", first.port), *(living(name) for name in "bc"), member("me", 1), member("d", last.port)]
    heartbeat = start(timeout=SHORT)
    heartbeat.watch(members)
    heartbeat.tense(True)
    first.reachable = False
    stays(lambda: not heartbeat.silent(), 4 * SHORT)
    last.reachable = False
    until(lambda: heartbeat.silent() == {"a", "d"})


def test_those_that_decide_in_a_large_job_ping_all(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """They must know which of those that say nothing are dead."""
    monkeypatch.setattr(neighbours, "_FEW", 1)
    heartbeat = start()
    heartbeat.watch([living("a"), member("me", 1), *(living(name) for name in "bc"), member("d", free_port())])
    heartbeat.tense(True)
    until(lambda: heartbeat.silent() == {"d"})


def test_a_worker_with_another_rank_among_the_same_pings_as_that_rank_does(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that was left out comes back with the last rank, and those that decide are others."""
    monkeypatch.setattr(neighbours, "of", lambda rank, number: {0} if rank else {1, 2})
    a, gone, me = living("a"), member("b", free_port()), member("me", 1)
    heartbeat = start()
    heartbeat.watch([a, gone, me])
    heartbeat.tense(True)
    stays(lambda: not heartbeat.silent())
    heartbeat.watch([me, a, gone])
    until(lambda: heartbeat.silent() == {"b"})


def test_a_worker_that_was_stopped_reports_no_peer_as_silent(frozen: tuple[Member, subprocess.Popen[str]]) -> None:
    """The watching process and its peer are both stopped, and a ping is under way. Neither counts as silent then."""
    peer, peer_process = frozen
    code = (
        "import sys, time\nfrom tidewater.elastic.peer.heartbeat import Heartbeat\n"
        "from tidewater.elastic.membership.rules import Member\n"
        "from tidewater.elastic.peer.handshake import Identity\n"
        f"heartbeat = Heartbeat(Identity({SECRET!r}, 'me'), interval=0.1, timeout={TIMEOUT},"
        " on_silent=lambda member: print('silent', flush=True))\n"
        f"heartbeat.start()\nheartbeat.watch([Member('b', 'b', '127.0.0.1', {peer.peer_port}, '', 0)])\n"
        "heartbeat.tense(True)\nprint('watching', flush=True)\ntime.sleep(600)\n"
    )
    watcher = subprocess.Popen([sys.executable, "-c", code], cwd=CHECKOUT, stdout=subprocess.PIPE, text=True)
    try:
        assert watcher.stdout
        assert watcher.stdout.readline() == "watching\n"
        for process in (peer_process, watcher):
            time.sleep(SHORT)
            os.kill(process.pid, signal.SIGSTOP)
        time.sleep(1.2 * TIMEOUT)
        for process in (watcher, peer_process):
            os.kill(process.pid, signal.SIGCONT)
        time.sleep(2 * SHORT)
        watcher.kill()
        assert watcher.stdout.read() == ""
    finally:
        watcher.kill()
        watcher.wait()
