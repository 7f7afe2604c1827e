"""The transfer of a state's outline between peers is complete or fails."""

from __future__ import annotations

import json
import math
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping

import pytest
import torch

from tests.elastic.workers import CHECKOUT, SECRET, free_port
from tidewater.elastic.addresses import Address
from tidewater.elastic.errors import ConfigError, GroupBroken, RecordError
from tidewater.elastic.membership.rules import Seat
from tidewater.elastic.membership.suspects import Sign
from tidewater.elastic.membership.traits import Traits
from tidewater.elastic.peer import outline as peer_outline
from tidewater.elastic.peer import server as peer_server
from tidewater.elastic.peer import votes
from tidewater.elastic.peer.handshake import HELLO, Identity, connect, exactly
from tidewater.elastic.peer.outline import Outline
from tidewater.elastic.peer.server import PeerServer, ask_traits, ask_waits, fetch, is_gone, look
from tidewater.elastic.tree import Tree

UUID = 7
ME = Identity(SECRET, "b-1")


@pytest.fixture
def server() -> PeerServer:
    server = PeerServer(Identity(SECRET, "a-1"), Traits((("seed", "1f"),)))
    server.start()
    return server


def at(port: int, member_id: str = "a-1") -> Address:
    return Address("127.0.0.1", port, member_id)


def get(port: int, *, uuid: int = UUID, wanted: Callable[[], None] = lambda: None, seconds: float = 60) -> Outline:
    return fetch(ME, at(port), uuid, wanted, time.monotonic() + seconds)


def offer(server: PeerServer, tree: Tree) -> list[torch.Tensor]:
    """Offer the outline of a state. Return its tensors."""
    outline, tensors = Outline.of(tree)
    server.offer(UUID, outline)
    return tensors


def filled(outline: Outline, tensors: list[torch.Tensor]) -> Tree:
    """Return the state with new tensors that have these values."""
    received = [layout.empty(tensor.device) for layout, tensor in zip(outline.layouts.values(), tensors, strict=True)]
    for mine, its in zip(received, tensors, strict=True):
        mine.copy_(its)
    return outline.join(received)


def equal(one: Tree, other: Tree) -> bool:
    if isinstance(one, torch.Tensor):
        same = one.dtype == other.dtype and one.shape == other.shape and one.stride() == other.stride()
        return same and torch.equal(one.nan_to_num(), other.nan_to_num())
    if isinstance(one, dict):
        return list(one) == list(other) and all(equal(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple):
        return type(one) is type(other) and len(one) == len(other) and all(map(equal, one, other))
    return type(one) is type(other) and (one == other or (one != one and other != other))


def test_a_tree_of_values_and_tensors_arrives_unchanged(server: PeerServer) -> None:
    tree = {
        "step": 3,
        "names": ["a", ("b", None, True)],
        "numbers": [2**70, 0.1, math.inf, math.nan],
        "by number": {0: {"exp_avg": torch.randn(3, 5)}, 7: {}},
        "types": [torch.ones(4, dtype=kind) for kind in (torch.bfloat16, torch.float64, torch.bool, torch.uint8)],
        "scalar": torch.tensor(3),
        "empty": torch.empty(0, 4),
        "channels last": torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last),
        "large": torch.arange(2_000_000, dtype=torch.int64),
        "parameter": torch.nn.Parameter(torch.randn(2)),
    }
    tensors = offer(server, tree)
    assert equal(filled(get(server.port), tensors), {**tree, "parameter": tree["parameter"].detach()})  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "tensor",
    [
        pytest.param(torch.arange(12).view(3, 4)[:, ::2], id="gaps"),
        pytest.param(torch.ones(1, 4).expand(3, 4), id="overlaps"),
        pytest.param(torch.arange(10)[5:], id="part-of-a-larger-one"),
        pytest.param(torch.arange(12).view(3, 4).t(), id="transposed"),
    ],
)
def test_a_view_of_any_kind_arrives_with_its_values(server: PeerServer, tensor: torch.Tensor) -> None:
    tensors = offer(server, [tensor])
    assert torch.equal(filled(get(server.port), tensors)[0], tensor)


def test_a_transferred_optimizer_state_can_be_loaded(server: PeerServer) -> None:
    model = torch.nn.Linear(3, 2)
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    tensors = offer(server, optimizer.state_dict())
    again = torch.optim.AdamW(model.parameters())
    again.load_state_dict(filled(get(server.port), tensors))
    assert equal(again.state_dict(), optimizer.state_dict())


def test_a_value_that_cannot_be_sent_is_named_with_its_path(server: PeerServer) -> None:
    with pytest.raises(ConfigError, match=r"builtins\.object at mine\.1"):
        offer(server, {"mine": [1, object()]})


def test_a_structure_that_no_receiver_would_read_is_not_offered(
    server: PeerServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peer_outline, "_MOST_TEXT", 1 << 20)
    with pytest.raises(ConfigError, match="has 2 MiB as JSON, and 1 MiB can be sent: make long lists"):
        offer(server, {"history": "x" * (2 << 20)})


def test_a_receiver_of_a_state_that_cannot_be_sent_learns_why_and_does_not_ask_again(server: PeerServer) -> None:
    server.refuse(UUID, "the state has a Thing at stateful.mine")
    with pytest.raises(ConfigError, match=r"has a Thing at stateful\.mine"):
        get(server.port)


@pytest.mark.parametrize(
    "found",
    [
        {"tree": {"what": 1}, "tensors": {}},
        {"tree": 1},
        {"tree": 1, "tensors": {"a": ["float9", [1], [1], "cpu"]}},
        {"tree": 1, "tensors": {"a": ["float32", [1], [1]]}},
    ],
)
def test_what_arrived_whole_and_cannot_be_read_is_not_asked_for_again(server: PeerServer, found: object) -> None:
    """It comes from another version of torch or of the code, so the next generation would have the same."""
    server._set(peer_server._Offer(UUID, json.dumps(found).encode()))
    with pytest.raises(RecordError):
        get(server.port).join([])


def test_an_early_request_waits_for_the_offer(server: PeerServer) -> None:
    threading.Timer(0.7, offer, (server, ["late"])).start()
    assert get(server.port).join([]) == ["late"]


def test_the_state_of_another_generation_is_not_accepted(server: PeerServer) -> None:
    server.offer(UUID + 1, Outline.of(["other"])[0])
    with pytest.raises(GroupBroken, match="in time"):
        get(server.port, seconds=0.5)


def test_a_newer_generation_ends_the_wait(server: PeerServer) -> None:
    def wanted() -> None:
        raise GroupBroken("a newer generation came up")

    with pytest.raises(GroupBroken, match="newer"):
        get(server.port, wanted=wanted)


class Proxy:
    """Forwards a transfer until ``spoil`` changes it."""

    def __init__(self, port: int, spoil: Callable[[bytearray, int, socket.socket], None]) -> None:
        self._target, self._spoil = port, spoil
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        caller, _ = self._listener.accept()
        with caller, socket.create_connection(("127.0.0.1", self._target)) as target:
            # The handshake and the request, unchanged.
            caller.sendall(exactly(target, 16, time.monotonic() + 10))
            target.sendall(exactly(caller, HELLO, time.monotonic() + 10))
            caller.sendall(exactly(target, 32, time.monotonic() + 10))
            target.sendall(caller.recv(4096))
            passed = 0
            target.settimeout(None)
            caller.settimeout(None)
            while data := bytearray(target.recv(65536)):
                self._spoil(data, passed, caller)
                passed += len(data)
                try:
                    caller.sendall(data)
                except OSError:
                    return


HALF = 5_000_000
"""Of the bytes of a large outline."""


def flip_at(place: int) -> Callable[[bytearray, int, socket.socket], None]:
    def flip(data: bytearray, passed: int, _: socket.socket) -> None:
        if passed <= place < passed + len(data):
            data[place - passed] ^= 1

    return flip


def cut(data: bytearray, passed: int, caller: socket.socket) -> None:
    if passed > HALF:
        caller.shutdown(socket.SHUT_RDWR)


def stall(data: bytearray, passed: int, _: socket.socket) -> None:
    if passed > HALF:
        time.sleep(20)


@pytest.mark.parametrize(
    ("spoil", "patience", "words"),
    [
        pytest.param(flip_at(HALF), 60.0, "checksum", id="a-flipped-bit"),
        pytest.param(flip_at(20), 60.0, "checksum", id="a-flipped-bit-in-the-structure"),
        pytest.param(cut, 60.0, "closed|reset", id="a-dead-source"),
        pytest.param(stall, 3.0, "sent nothing for 3 s", id="a-frozen-source"),
    ],
)
def test_a_corrupt_transfer_breaks_the_group(
    server: PeerServer,
    monkeypatch: pytest.MonkeyPatch,
    spoil: Callable[[bytearray, int, socket.socket], None],
    patience: float,
    words: str,
) -> None:
    monkeypatch.setattr(peer_server, "_STALL_SECONDS", patience)
    offer(server, "x" * 2 * HALF)
    with pytest.raises(GroupBroken, match=words):
        get(Proxy(server.port, spoil).port)


def test_a_state_that_is_withdrawn_is_not_served_any_more(server: PeerServer) -> None:
    offer(server, ["mine"])
    server.withdraw()
    with pytest.raises(GroupBroken, match="in time"):
        get(server.port, seconds=0.5)


def test_several_newcomers_are_served_at_once(server: PeerServer) -> None:
    offer(server, "x" * HALF)
    received: list[Tree] = []
    threads = [threading.Thread(target=lambda: received.append(get(server.port).join([]))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert received == ["x" * HALF] * 4


def test_traits_are_sent_on_request(server: PeerServer) -> None:
    assert ask_traits(ME, at(server.port), seconds=30) == Traits((("seed", "1f"),))
    assert ask_traits(ME, at(free_port()), seconds=0.5) is None


def seat(server: PeerServer, member_id: str = "a-1") -> Seat:
    return Seat(member_id, member_id, "127.0.0.1", server.port)


MANY = {"b-1": "yes", "c-1": "no", "d-1": "x" * 100_000}


def test_votes_are_heard_or_passed_on_and_each_has_an_answer(server: PeerServer) -> None:
    heard: list[Mapping[str, str]] = []
    passed: list[tuple[Mapping[str, str], int]] = []

    def hear(found: Mapping[str, str]) -> list[str] | None:
        heard.append(found)
        return ["b-1", "d-1"] if len(heard) == 1 else None

    def pass_on(found: Mapping[str, str], turn: int) -> list[str]:
        passed.append((found, turn))
        return ["c-1"]

    assert not votes.send(ME, list, seat(server), MANY, 2, 30)
    server.hear, server.pass_on = hear, pass_on
    assert votes.send(ME, list, seat(server), MANY, 2, 30) == ["b-1", "d-1"]
    assert not passed
    assert votes.send(ME, list, seat(server), MANY, 2, 30) == ["c-1"]
    assert passed == [(MANY, 2)]
    assert heard == [MANY, MANY]
    assert not votes.send(ME, list, seat(server, "another"), MANY, 2, 30)
    assert len(heard) == 2


def test_a_vote_is_not_waited_for_when_the_peer_is_found_silent(server: PeerServer) -> None:
    asked = threading.Event()

    def pass_on(found: Mapping[str, str], turn: int) -> list[str]:
        asked.set()
        time.sleep(30)
        return []

    server.pass_on = pass_on
    began = time.monotonic()
    assert not votes.send(ME, lambda: ["a-1"] * asked.is_set(), seat(server), {"b-1": "yes"}, 1, 30)
    assert asked.is_set()
    assert time.monotonic() < began + 25


def test_a_vote_is_not_sent_to_a_peer_that_is_silent_already(
    server: PeerServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A machine that is gone would be waited for half a second."""
    monkeypatch.setattr("tidewater.elastic.peer.votes.handshake.connect", pytest.fail)
    assert not votes.send(ME, lambda: ["a-1"], seat(server), {"b-1": "yes"}, 1, 30)


def test_only_the_addressed_member_answers_a_ping(server: PeerServer) -> None:
    assert look(ME, at(server.port), seconds=30) is Sign.ANSWERS
    assert look(ME, at(server.port, "a-2"), seconds=30) is Sign.ENDED
    assert look(ME, at(free_port()), seconds=30) is Sign.ENDED


def test_a_peer_that_does_not_answer_may_be_alive() -> None:
    with socket.create_server(("127.0.0.1", 0)) as frozen:
        assert look(ME, at(frozen.getsockname()[1]), seconds=0.2) is Sign.SILENT


def test_invalid_requests_do_not_disturb_the_server(server: PeerServer) -> None:
    deep, no_turn = b"[" * 4000 + b"\n", b'{"votes": {"b-1": "yes"}}\n'
    for garbage in (b"\n", b"[]\n", b"x" * 5000, deep, no_turn, b'{"state": "x"}\n', b'{"state": 1', b'{"ping": {}}\n'):
        with socket.create_connection(("127.0.0.1", server.port)) as stranger:
            stranger.sendall(garbage)
        with connect(ME, at(server.port), seconds=60) as member:
            member.sendall(garbage)
    assert look(ME, at(server.port), seconds=30) is Sign.ANSWERS


def test_a_forked_process_does_not_keep_its_parents_server_alive() -> None:
    """A data loader's process that outlives a killed worker must not be mistaken for the worker."""
    code = (
        "import os, sys, time\nfrom tidewater.elastic.peer.server import PeerServer\n"
        "from tidewater.elastic.peer.handshake import Identity\n"
        "server = PeerServer(Identity(b'secret'))\nserver.start()\n"
        "if not os.fork(): print(server.port, os.getpid(), flush=True)\ntime.sleep(60)\n"
    )
    with process(code) as parent:
        assert parent.stdout
        port, child = map(int, parent.stdout.readline().split())  # the child's line: it runs, and has closed its copies
        try:
            assert not is_gone(at(port))
            parent.kill()
            parent.wait()
            assert is_gone(at(port))
        finally:
            os.kill(child, signal.SIGKILL)


def process(code: str) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-c", code], cwd=CHECKOUT, stdout=subprocess.PIPE, text=True)


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def test_a_peer_says_whether_it_waits_for_the_others_also_while_it_works(server: PeerServer) -> None:
    for waits in (True, False):
        server.waits = lambda waits=waits: waits  # type: ignore[misc]
        assert ask_waits(ME, at(server.port)) is waits
    assert ask_waits(ME, at(server.port, "another process")) is None
    assert ask_waits(ME, at(free_port())) is None
