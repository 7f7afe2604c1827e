"""The HTTP endpoints of the controller: probes for the kubelet, metrics for Prometheus.

    async with serve(8080, {"/healthz": healthy, "/readyz": ready, "/metrics": metrics}):
        …

They are served by the event loop that does the work: if that hangs, the liveness probe fails and the kubelet restarts
the container. Every page is a function without arguments; the server reads the request's first line and ignores the
rest.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass

_TIMEOUT_SECONDS = 5.0
_PHRASES = {200: "OK", 404: "Not Found", 405: "Method Not Allowed", 503: "Service Unavailable"}
TEXT = "text/plain; charset=utf-8"
METRICS_TEXT = "text/plain; version=0.0.4; charset=utf-8"


@dataclass(frozen=True)
class Page:
    """An answer."""

    body: bytes
    status: int = 200
    content_type: str = TEXT


Pages = Mapping[str, Callable[[], Page]]


@contextlib.asynccontextmanager
async def serve(port: int, pages: Pages) -> AsyncIterator[int]:
    """Serve the pages on all addresses, and yield the port, which the kernel chooses if `port` is 0.

    Raises:
        OSError: The port is in use.
    """

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, TimeoutError, ValueError):
            async with asyncio.timeout(_TIMEOUT_SECONDS):
                request = await reader.readline()
                while (await reader.readline()).strip():
                    pass
                writer.write(response(page_for(request, pages)))
                await writer.drain()
        writer.close()

    if socket.has_dualstack_ipv6():
        listening = socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True)
    else:
        listening = socket.create_server(("", port))
    server = await asyncio.start_server(answer, sock=listening)
    async with server:
        yield listening.getsockname()[1]


def page_for(request: bytes, pages: Pages) -> Page:
    """Return the answer to a request, given its first line."""
    method, _, rest = request.decode("latin-1").partition(" ")
    path = rest.split(" ")[0].split("?")[0]
    if method not in ("GET", "HEAD"):
        return Page(b"only GET\n", 405)
    page = pages.get(path)
    return page() if page is not None else Page(f"no such page; there are {', '.join(pages)}\n".encode(), 404)


def response(page: Page) -> bytes:
    """Return the bytes of an HTTP answer."""
    head = (
        f"HTTP/1.1 {page.status} {_PHRASES[page.status]}\r\nContent-Type: {page.content_type}\r\n"
        f"Content-Length: {len(page.body)}\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + page.body
