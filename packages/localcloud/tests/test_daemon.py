"""The daemon's HTTP servers are on the sockets that they are given, which may be of another network namespace."""

from __future__ import annotations

import socket
import ssl
import threading
import urllib.request
from collections.abc import Callable, Iterable
from typing import Any

import pytest
from localcloud import daemon
from localcloud.aws import webhooks
from localcloud.errors import PortInUse
from werkzeug.wrappers import Response


def hello(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
    return Response("hello")(environ, start_response)


def loopback() -> socket.socket:
    return socket.create_server(("127.0.0.1", 0))


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_server_answers_on_the_socket_that_was_opened_for_it(scheme: str) -> None:
    server_side, authority = webhooks.server_tls("127.0.0.1")
    client_side = ssl.create_default_context(cadata=authority)
    server = daemon._server(loopback, hello, server_side if scheme == "https" else None)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        url = f"{scheme}://127.0.0.1:{server.port}/"
        with urllib.request.urlopen(url, timeout=60, context=client_side) as answer:
            assert answer.read() == b"hello"
    finally:
        server.shutdown()
        server.server_close()


def test_a_port_that_another_process_uses_is_an_error_with_its_remedy() -> None:
    with loopback() as other, pytest.raises(PortInUse, match=r"Address already in use.*instance\.json"):
        daemon._server(lambda: socket.create_server(other.getsockname()), hello)
