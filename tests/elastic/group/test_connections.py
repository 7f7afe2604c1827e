"""Connections can be severed outside the library that opened them."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from tidewater.elastic.group.gloo import listening, sever


@pytest.fixture(params=[(socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")], ids=["IPv4", "IPv6"])
def listener(request: pytest.FixtureRequest) -> Iterator[socket.socket]:
    family, host = request.param
    with socket.create_server((host, 0), family=family) as server:
        yield server


def connected(listener: socket.socket) -> tuple[socket.socket, socket.socket]:
    client = socket.create_connection(listener.getsockname()[:2], timeout=60)
    server, _ = listener.accept()
    server.settimeout(60)
    return client, server


def test_a_listening_socket_is_found_until_it_is_closed(listener: socket.socket) -> None:
    end = listener.getsockname()[:2]
    client, server = connected(listener)
    assert end in listening()
    assert client.getsockname()[:2] not in listening()
    listener.close()
    assert end not in listening()
    client.close()
    server.close()


def test_waiting_on_a_severed_connection_ends_at_once(listener: socket.socket) -> None:
    client, server = connected(listener)
    with client, server:
        assert sever({listener.getsockname()[:2]}) == 2
        assert client.recv(1) == b""
        assert server.recv(1) == b""


def test_data_sent_before_the_connection_was_severed_arrives(listener: socket.socket) -> None:
    client, server = connected(listener)
    with client, server:
        client.sendall(b"done")
        sever({listener.getsockname()[:2]})
        assert server.recv(10) == b"done"


def test_other_connections_are_not_severed(listener: socket.socket) -> None:
    client, server = connected(listener)
    with client, server, socket.create_server(("127.0.0.1", 0)) as other:
        assert sever({other.getsockname()[:2]}) == 0
        client.sendall(b"on")
        assert server.recv(10) == b"on"
    assert sever(set()) == 0


def test_the_listening_socket_is_not_severed(listener: socket.socket) -> None:
    sever({listener.getsockname()[:2]})
    for end in connected(listener):
        end.close()
