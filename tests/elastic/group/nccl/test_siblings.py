"""The processes of one pod give a generation up together."""

from __future__ import annotations

import secrets
from collections.abc import Iterator

import pytest
import torch

from tests.elastic.group.nccl.double import Double
from tests.elastic.group.nccl.pair import Pair, pair
from tests.elastic.workers import SECRET
from tests.processes import eventually
from tidewater.contract import env
from tidewater.elastic.addresses import Address
from tidewater.elastic.errors import GroupBroken
from tidewater.elastic.group.group import Group
from tidewater.elastic.group.siblings import Siblings
from tidewater.elastic.peer.handshake import Identity
from tidewater.elastic.peer.server import PeerServer


@pytest.fixture
def name() -> str:
    return secrets.token_hex()


@pytest.fixture
def both(name: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Pair]:
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    siblings = [Siblings(name, rank, 2) for rank in range(2)]
    with pair([Double(torch.device("cpu"), 20.0) for _ in siblings], siblings) as both:
        assert both.form() == ["", ""]
        yield both


def failure(group: Group) -> str:
    try:
        group.check()
    except GroupBroken as error:
        return str(error)
    return ""


def test_a_process_that_gives_a_group_up_lets_the_others_of_its_pod_know(both: Pair) -> None:
    one, other = both.groups
    one.interrupt("lost c")
    assert eventually(lambda: failure(other)) == "another process of this pod has given the group up"
    assert failure(one) == "lost c"
    assert both.form() == ["", ""]


def test_an_earlier_group_and_the_end_of_a_process_concern_no_other_process(
    both: Pair, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = both.groups
    heard: list[int] = []
    interrupt = one.interrupt

    def note(reason: str, *, of: int | None = None) -> None:
        interrupt(reason, of=of)
        heard.append(of or 0)

    monkeypatch.setattr(one, "interrupt", note)
    assert other._siblings
    other._siblings.give_up(one.uuid - 1)
    assert eventually(lambda: heard) == [one.uuid - 1]
    assert failure(one) == ""
    other.close()
    third = Siblings(name, 2, 3)
    third.give_up(one.uuid)  # arrives after what the end would have sent
    assert eventually(lambda: heard[1:]) == [one.uuid]
    assert failure(one)
    third.close()


def test_the_launchers_variables_say_who_the_siblings_are() -> None:
    assert Siblings.of({}) is None
    assert Siblings.of({env.LOCAL_RANK: "0", env.LOCAL_SIZE: "1"}) is None
    found = Siblings.of({env.LOCAL_RANK: "0", env.LOCAL_SIZE: "2"})
    assert found
    assert Siblings.of({env.LOCAL_RANK: "0", env.LOCAL_SIZE: "2"}) is None  # a process of that number is there
    found.close()


def test_a_process_on_another_machine_learns_of_it_through_its_peer_server(name: str) -> None:
    me, heard = Identity(SECRET, "a"), list[int]()
    server = PeerServer(me)
    server.start()
    server.given_up = heard.append
    places = [Address("10.0.0.1", 1, "a"), Address("10.0.0.1", 2, "a"), Address("127.0.0.1", server.port, "a")]
    one = Siblings.of_parts(name, me, 0, places)
    one.give_up(2**60 + 1)
    assert eventually(lambda: heard) == [2**60 + 1]
    one.close()


def test_a_group_is_given_up_when_its_peer_server_hears_of_it(name: str) -> None:
    server = PeerServer(Identity(SECRET, "a"))
    siblings = Siblings(name, 0, 1)
    group = Group(Double(torch.device("cpu"), 20.0), server, siblings)
    server.given_up(group.uuid + 1)
    assert failure(group) == ""
    server.given_up(group.uuid)
    assert failure(group) == "another process of this pod has given the group up"
    group.close()
