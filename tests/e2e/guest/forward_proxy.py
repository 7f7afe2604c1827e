"""A forward proxy for HTTP and, by CONNECT, for anything else, that notes what it was asked for.

    with ForwardProxy(socket.create_server(("127.0.0.1", 0))) as proxy:
        run(f"http_proxy={proxy.url} curl http://example.com/")
        proxy.asked                 # {("GET", "http://example.com/")}

Each connection has one request: the server is asked to close it after its answer.
"""

from __future__ import annotations

import contextlib
import re
import socket
import threading
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

LARGEST_HEAD = 64 * 1024
_CONNECTION = re.compile(rb"\r\n(proxy-)?connection:[^\r]*", re.IGNORECASE)


class ForwardProxy:
    """Answers on a listening socket while it is entered.

    Args:
        listening: closed at the end. Connections to servers are opened in the namespace of this process.
    """

    def __init__(self, listening: socket.socket) -> None:
        self._listening = listening
        self._asked: set[tuple[str, str]] = set()

    @property
    def url(self) -> str:
        """Return its address, as clients are given it."""
        host, port = self._listening.getsockname()
        return f"http://{host}:{port}"

    @property
    def asked(self) -> set[tuple[str, str]]:
        """Return method and target of each request so far; the target of CONNECT is `HOST:PORT`."""
        return self._asked.copy()

    @property
    def hosts(self) -> set[str]:
        """Return each `HOST:PORT` that it was asked for."""
        return {target if method == "CONNECT" else urlsplit(target).netloc for method, target in self.asked}

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with contextlib.suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)  # ends `accept`, which `close` does not
        self._listening.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):  # it is closed
            while True:
                client, _ = self._listening.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with client, contextlib.suppress(OSError):  # one of both is gone
            received = b""
            while b"\r\n\r\n" not in received:
                more = client.recv(LARGEST_HEAD)
                if not more or len(received) > LARGEST_HEAD:
                    return
                received += more
            head, _, body = received.partition(b"\r\n\r\n")
            method, target, version = head.split(b"\r\n", 1)[0].decode().split(" ")
            self._asked.add((method, target))
            parts = urlsplit(f"//{target}" if method == "CONNECT" else target)
            with socket.create_connection((parts.hostname or "", parts.port or 80)) as server:
                if method == "CONNECT":
                    client.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
                else:
                    path = parts._replace(scheme="", netloc="").geturl() or "/"
                    fields = _CONNECTION.sub(b"", head[head.index(b"\r\n") :])
                    server.sendall(f"{method} {path} {version}".encode() + fields + b"\r\nConnection: close\r\n\r\n")
                server.sendall(body)
                upward = threading.Thread(target=_pass_on, args=(client, server), daemon=True)
                upward.start()
                _pass_on(server, client)
                upward.join()


def _pass_on(source: socket.socket, sink: socket.socket) -> None:
    """Pass on bytes until the source ends, and then the end."""
    with contextlib.suppress(OSError):
        while data := source.recv(LARGEST_HEAD):
            sink.sendall(data)
    with contextlib.suppress(OSError):
        sink.shutdown(socket.SHUT_WR)
