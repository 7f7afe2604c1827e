"""The launcher of a machine does what the first one says, and kills its processes when it is cut off."""

from __future__ import annotations

import io
import select
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.elastic.workers import SECRET
from tests.processes import eventually
from tidewater.contract import env, exit_codes
from tidewater.elastic.config import Config
from tidewater.elastic.errors import ConfigError
from tidewater.elastic.launch import limit
from tidewater.elastic.launch.nodes import machine as module
from tidewater.elastic.launch.nodes.link import Gate, Link, Mailbox, call
from tidewater.elastic.launch.nodes.machine import First, Further, Machine
from tidewater.elastic.launch.nodes.messages import End, Ended, Hello, Idle, Leave, Message, Ping, Start, Stop, Taken
from tidewater.elastic.launch.nodes.starts import MACHINES_SECONDS
from tidewater.elastic.launch.units import Child, Unit
from tidewater.elastic.observe.log import Log, parse
from tidewater.elastic.peer.handshake import Identity
from tidewater.elastic.peer.keyvalue import Place

PROGRAM = """
import os, sys, time
from pathlib import Path
here = Path(sys.argv[1])
(here / "draft").write_text(os.environ["TIDEWATER_LOCAL_MEETING"])
(here / "draft").rename(here / "started")
while not (here / "end").exists():
    time.sleep(0.01)
sys.exit(int((here / "end").read_text()))
"""


class Lookup:
    """Finds nothing: a test gives the launcher what it is to find."""

    trouble = "it has not written its address to etcd"

    def __init__(self, *_: Any) -> None:
        self.wanted = False

    def want(self, on: bool) -> None:
        self.wanted = on


class Launched:
    """A launcher with a process that ends as the test asks; the test has the other end of its link."""

    def __init__(self, node: int, here: Path) -> None:
        given = ["--job=digits", "--etcd=http://127.0.0.1:1", "--checkpoints=/here", "--host=127.0.0.1", "--shard=2"]
        given += ["--shard-nodes=2", f"--shard-node={node}", "--replica=a-0"]
        self.here, self.stream, self.heard = here, io.StringIO(), list[Message]()
        config = Config.parse(given, {env.WORKER: f"a-{node}"})
        kind: type[Machine] = Further if node else First
        command = [sys.executable, "-c", PROGRAM, str(here)]
        self.unit = Unit([Child(0, {}, None)], here)
        self.machine = kind(config, self.unit, command, Log(f"a-{node}", stream=self.stream))
        self.far: Link

    def turn(self, *numbers: signal.Signals) -> None:
        """Let it do what there is to do."""
        self.machine._turn(numbers, [each.fileno() for each in self.machine.links if readable(each)])

    def until_cut_off(self) -> None:
        """End the link, and let it turn until none of its processes runs."""
        self.far.close()

        def is_cut_off() -> bool:
            self.turn()
            return not list(self.machine.links) and not self.unit.runs

        eventually(is_cut_off)
        self.turn()

    def events(self, name: str) -> list[dict[str, str]]:
        return [line for line in map(parse, self.stream.getvalue().splitlines()) if line.get("event") == name]

    def until(self, happens: Callable[[], object]) -> None:
        """Let it turn until that happens, and read what it sends."""

        def does() -> bool:
            self.turn()
            if readable(self.far):
                self.heard += [each for each in self.far.receive() if each != Ping()]
            return bool(happens())

        eventually(does)

    def end(self, code: int) -> None:
        (self.here / "end.draft").write_text(str(code))
        (self.here / "end.draft").rename(self.here / "end")


def readable(link: Link) -> bool:
    return link.fileno() >= 0 and bool(select.select([link.fileno()], [], [], 0.005)[0])


@pytest.fixture
def gate() -> Iterator[Gate]:
    gate = Gate(Identity(SECRET, "first"), "127.0.0.1", Mailbox())
    yield gate
    gate.close()


@pytest.fixture(params=[0, 1])
def any_node(request: pytest.FixtureRequest) -> int:
    found: int = request.param
    return found


@pytest.fixture
def launched(gate: Gate, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[int], Launched]]:
    """Return what makes the launcher of a machine, connected with the other one."""
    monkeypatch.setattr(module, "Lookup", Lookup)
    made: list[Launched] = []

    def make(node: int) -> Launched:
        made.append(Launched(node, tmp_path))
        one = made[-1]
        further = call(SECRET, gate.place.address, Hello(1, 2, 2, "a-1", 0))
        ((hello, first),) = eventually(gate._mailbox.take)
        if node:
            one.machine.mailbox.put(further)
            one.far = first
        else:
            one.machine.mailbox.put(gate)
            one.machine.mailbox.put((hello, first))
            one.far = further
        return one

    yield make
    for each in made:
        each.unit.send(signal.SIGKILL)
        each.far.close()


def started(one: Launched) -> None:
    """Let the processes start."""
    if isinstance(one.machine, Further):
        one.far.send(Start(77, 4))
    one.until(lambda: (one.here / "started").exists())


def test_a_further_machine_starts_its_processes_at_the_first_ones_keys_and_limit(
    launched: Callable[[int], Launched], gate: Gate
) -> None:
    one = launched(1)
    started(one)
    assert Place.of((one.here / "started").read_text()) == gate.place._replace(number=77)
    assert limit.known(one.unit.limit) == 4
    assert not one.machine.lookup.wanted  # type: ignore[attr-defined]


def test_a_further_machine_reports_the_end_of_its_processes_and_ends_with_the_code_that_it_gets(
    launched: Callable[[int], Launched],
) -> None:
    one = launched(1)
    started(one)
    one.end(7)
    one.until(lambda: len(one.heard) == 2)
    assert one.heard == [Ended(7, 1), Idle(4)]
    one.far.send(End(7))
    one.until(lambda: one.machine.code == 7)


def test_the_first_machine_starts_all_and_ends_all(launched: Callable[[int], Launched]) -> None:
    one = launched(0)
    started(one)
    one.until(lambda: one.heard)
    (order,) = one.heard
    assert isinstance(order, Start)
    place = Place.of((one.here / "started").read_text())
    assert place
    assert place.number == order.meeting
    assert not one.machine.lookup.wanted  # type: ignore[attr-defined]  # etcd may be away while processes run
    one.far.send(Ended(exit_codes.USAGE, 1))
    one.far.send(Idle(0))
    one.until(lambda: one.machine.code is not None)
    assert not one.unit.runs
    assert one.machine.code == exit_codes.USAGE
    one.until(lambda: one.heard[-1] == End(exit_codes.USAGE))
    assert one.heard[1] == Stop(0.0)


def test_a_machine_that_is_cut_off_kills_its_processes_and_looks_for_the_other_one(
    any_node: int, launched: Callable[[int], Launched]
) -> None:
    one = launched(any_node)
    started(one)
    one.until_cut_off()
    assert one.machine.lookup.wanted  # type: ignore[attr-defined]
    (lost,) = one.events("machine_lost")
    assert lost["number"] == str(1 - any_node)
    assert one.machine.code is None


def test_a_machine_that_is_silent_is_lost_but_not_while_this_one_stood_still_itself(
    any_node: int, launched: Callable[[int], Launched], monkeypatch: pytest.MonkeyPatch
) -> None:
    one = launched(any_node)
    one.turn()
    now, seconds = time.monotonic(), one.machine._silent_seconds
    monkeypatch.setattr(module, "time", _Clock(now))
    for link in one.machine.links:
        link.heard_at = now
    _Clock.now = now + 10 * seconds  # stopped meanwhile
    one.turn()
    assert one.events("machine_lost") == []
    for part in range(1, 5):
        _Clock.now = now + 10 * seconds + part * seconds / 3
        one.turn()
        assert len(one.events("machine_lost")) == (part == 4)


class _Clock:
    """The time that the test sets."""

    now = 0.0

    def __init__(self, now: float) -> None:
        _Clock.now = now

    def monotonic(self) -> float:
        return _Clock.now


def test_a_machine_that_is_asked_to_leave_asks_the_first_one_and_both_signal_their_processes(
    any_node: int, launched: Callable[[int], Launched]
) -> None:
    one = launched(any_node)
    started(one)
    one.turn(signal.SIGTERM)
    one.until(lambda: Leave() in one.heard)
    if any_node:
        assert one.unit.runs
        one.far.send(Leave())
    one.until(lambda: not one.unit.runs)
    assert one.unit.code == exit_codes.LEFT


def test_machines_that_wait_leave_at_once_and_a_second_interrupt_kills(launched: Callable[[int], Launched]) -> None:
    one = launched(1)
    started(one)
    one.turn(signal.SIGINT)
    assert one.unit.runs
    one.turn(signal.SIGINT)
    one.until(lambda: not one.unit.runs)
    assert one.unit.code == exit_codes.KILLED


def test_a_further_machine_that_waits_leaves_by_itself(launched: Callable[[int], Launched]) -> None:
    one = launched(1)
    started(one)
    one.until_cut_off()
    one.turn(signal.SIGTERM)
    assert one.machine.code == exit_codes.LEFT


@pytest.mark.parametrize("asked", ["here", "by the first machine"])
def test_a_further_machine_that_is_cut_off_while_all_leave_ends_as_killed(
    asked: str, launched: Callable[[int], Launched], monkeypatch: pytest.MonkeyPatch
) -> None:
    one = launched(1)
    started(one)
    monkeypatch.setattr(one.unit, "send", lambda number: None)  # a process that doesn't leave
    if asked == "here":
        one.turn(signal.SIGTERM)
    else:
        one.far.send(Leave())
        one.until(lambda: one.machine._leaving)  # type: ignore[attr-defined]
    monkeypatch.undo()
    one.until_cut_off()
    assert one.machine.code == exit_codes.KILLED


def test_the_first_machine_refuses_other_settings_and_a_number_that_is_taken(
    launched: Callable[[int], Launched], gate: Gate
) -> None:
    one = launched(0)
    started(one)
    for hello, answer in (
        (Hello(1, 3, 2, "a-1", 0), "--shard-nodes and --shard are (3, 2) on machine 1, a-1, and (2, 2) on the first"),
        (Hello(1, 2, 4, "a-1", 0), "--shard-nodes and --shard are (2, 4) on machine 1, a-1, and (2, 2) on the first"),
        (Hello(1, 2, 2, "a-7", 0), ""),
    ):
        stranger = call(SECRET, gate.place.address, hello)
        ((_, link),) = eventually(gate._mailbox.take)
        stranger._connection.shutdown(socket.SHUT_WR)
        one.machine.mailbox.put((hello, link))
        one.turn()
        (*orders,) = stranger.receive()
        assert [order.code for order in orders if isinstance(order, End)] == ([exit_codes.USAGE] if answer else [])
        assert orders[:1] == [Taken("a-1")] or answer
        assert all(answer in order.reason for order in orders if isinstance(order, End))
    assert len(list(one.machine.links)) == 1
    assert one.unit.runs
    assert [line["machine"] for line in one.events("machine_joined")] == ["a-1"]


def test_a_wait_is_said_after_a_while_and_ends_after_an_hour(
    any_node: int, launched: Callable[[int], Launched], monkeypatch: pytest.MonkeyPatch
) -> None:
    one = launched(any_node)
    one.turn()
    one.until_cut_off()
    now = time.monotonic()
    monkeypatch.setattr(module, "time", _Clock(now))
    for seconds in (20.0, 40.0, 3000.0, MACHINES_SECONDS + 60):
        assert one.machine.code is None
        _Clock.now = now + seconds
        one.turn()
    line, *_ = one.events("waiting")
    assert (line["reason"], line["waits_for"], line["error"]) == ("machines", f"a-{1 - any_node}", Lookup.trouble)
    assert one.machine.code == exit_codes.UNCONNECTED


def test_a_machine_that_was_frozen_for_hours_waits_for_the_others_then(
    any_node: int, launched: Callable[[int], Launched], monkeypatch: pytest.MonkeyPatch
) -> None:
    one = launched(any_node)
    started(one)
    now = time.monotonic() + 2 * MACHINES_SECONDS
    monkeypatch.setattr(module, "time", _Clock(now))
    one.until_cut_off()
    assert one.machine.lookup.wanted  # type: ignore[attr-defined]
    assert one.machine.code is None


def test_a_machine_with_a_number_that_is_taken_says_so_and_ends_after_an_hour(
    launched: Callable[[int], Launched], gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = launched(1)
    one.turn()
    now = time.monotonic()
    monkeypatch.setattr(module, "time", _Clock(now))
    for seconds in (20.0, 40.0, 3000.0, MACHINES_SECONDS + 60):  # it comes again all the time
        assert one.machine.code is None
        _Clock.now = now + seconds
        one.far.send(Taken("b-1"))
        one.until_cut_off()
        further = call(SECRET, gate.place.address, Hello(1, 2, 2, "a-1", 0))
        ((_, one.far),) = eventually(gate._mailbox.take)
        one.machine.mailbox.put(further)
        one.turn()
    line, *_ = one.events("waiting")
    assert line["error"] == "b-1 is there with --shard-node 1, which this machine has too"
    assert one.events("machine_lost") == []
    assert one.machine.code == exit_codes.UNCONNECTED


def test_a_machine_with_other_settings_is_refused_with_a_sentence(launched: Callable[[int], Launched]) -> None:
    one = launched(1)
    one.far.send(End(exit_codes.USAGE, "--shard is 4"))
    with pytest.raises(ConfigError, match="--shard is 4"):
        one.until(lambda: False)


def test_an_error_of_the_lookup_ends_the_launcher(any_node: int, launched: Callable[[int], Launched]) -> None:
    one = launched(any_node)
    one.machine.mailbox.put(ZeroDivisionError())
    with pytest.raises(ZeroDivisionError):
        one.turn()


def test_machines_that_wait_end_with_a_finished_job(any_node: int, launched: Callable[[int], Launched]) -> None:
    one = launched(any_node)
    if any_node:
        one.machine.mailbox.take()
    else:
        gate, _ = one.machine.mailbox.take()
        one.machine.mailbox.put(gate)
    one.machine.mailbox.put(End(exit_codes.FINISHED))
    one.turn()
    assert one.machine.code == exit_codes.FINISHED
