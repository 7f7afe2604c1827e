"""Addresses of both kinds are found, written and listened at."""

from __future__ import annotations

import socket

import pytest

from tests.elastic.workers import SECRET
from tests.processes import eventually
from tidewater.elastic.addresses import Address, bare, everywhere, listen, route_to
from tidewater.elastic.errors import ConfigError
from tidewater.elastic.etcd.access import Endpoint
from tidewater.elastic.group.rendezvous import interface_of
from tidewater.elastic.membership.rules import Member
from tidewater.elastic.membership.suspects import Sign
from tidewater.elastic.peer.handshake import Identity
from tidewater.elastic.peer.heartbeat import Heartbeat
from tidewater.elastic.peer.server import PeerServer, look
from tidewater.elastic.torchrun.options import Options

needs_ipv6 = pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="this machine has no IPv6")


@pytest.mark.parametrize(
    ("url", "mine"),
    [
        ("http://127.0.0.1:2379", "127.0.0.1"),
        pytest.param("http://[::1]:2379", "::1", marks=needs_ipv6),
        pytest.param("https://[::1]", "::1", marks=needs_ipv6),
    ],
)
def test_the_address_of_this_machine_is_that_of_the_route_to_etcd(url: str, mine: str) -> None:
    assert route_to(url) == mine


def test_an_unknown_host_is_named() -> None:
    with pytest.raises(ConfigError, match=r"no-such-host\.invalid"):
        route_to("http://no-such-host.invalid:2379")


def test_an_ipv6_address_is_written_with_brackets() -> None:
    assert str(Address("fd00::5", 80)) == "[fd00::5]:80"
    assert str(Address("10.0.0.5", 80)) == "10.0.0.5:80"
    assert [bare("[fd00::5]"), bare("fd00::5"), bare("w-0")] == ["fd00::5", "fd00::5", "w-0"]


def test_endpoints_of_etcd_may_have_ipv6_addresses() -> None:
    found = Endpoint.parse("https://[fd00::5]:2380")
    assert (found.host, found.port) == ("fd00::5", 2380)
    assert Options.parse("[fd00::5]:2380,[fd00::6]", {}).endpoints == ("http://[fd00::5]:2380", "http://[fd00::6]:2379")
    with pytest.raises(ConfigError, match=r"http://\[::1\]:2379"):
        Endpoint.parse("http://fd00::5:2380")


@needs_ipv6
@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_a_server_is_reached_by_both_kinds_of_addresses(host: str) -> None:
    server = PeerServer(Identity(SECRET, "peer"))
    server.start()
    me = Identity(SECRET, "me")
    assert look(me, Address(host, server.port, "peer"), seconds=30) is Sign.ANSWERS


@needs_ipv6
def test_a_peer_with_an_ipv6_address_is_pinged() -> None:
    server = PeerServer(Identity(SECRET, "peer"))
    server.start()
    heartbeat = Heartbeat(Identity(SECRET, "me"), interval=0.05, timeout=60)
    heartbeat.start()
    heartbeat.watch([Member("peer", "peer", "::1", server.port, "", 0)])
    heartbeat.tense(True)
    try:
        eventually(lambda: heartbeat._peers["peer"].answered)
    finally:
        heartbeat.stop()


@needs_ipv6
def test_a_client_that_needs_ipv4_is_accepted_too() -> None:
    assert everywhere() == "::"
    with listen(1) as listener:
        for host in ("127.0.0.1", "::1"):
            socket.create_connection((host, listener.getsockname()[1]), timeout=10).close()


@needs_ipv6
def test_the_interface_of_an_ipv6_address_is_found() -> None:
    assert interface_of("::1") == interface_of("127.0.0.1") == "lo"
    assert interface_of("fd00:dead::1") is None
    assert interface_of("no:address") is None
