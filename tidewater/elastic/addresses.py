"""Addresses of workers, by IPv4 and IPv6."""

from __future__ import annotations

import socket
from typing import NamedTuple
from urllib.parse import urlsplit

from tidewater.elastic.errors import ConfigError

_ETCD_PORT = 2379


class Address(NamedTuple):
    """Where a worker's server listens, and which member it must be."""

    host: str
    port: int
    id: str = ""
    """Id of the member. Another process that has the port now can't pass for it."""

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def bare(host: str) -> str:
    """Return a host without the brackets that an IPv6 address has in a URL."""
    return host[1:-1] if host.startswith("[") and host.endswith("]") else host


def route_to(url: str) -> str:
    """Return the address of this machine on the route to ``url``. Sends no packet.

    Raise ConfigError if the host's name in ``url`` can't be resolved.
    """
    parts = urlsplit(url)
    try:
        family, place = resolve(parts.hostname or "", parts.port or _ETCD_PORT)
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect(place)
            return str(probe.getsockname()[0])
    except OSError as error:
        raise ConfigError(f"etcd's address {url!r} cannot be resolved ({error}): check its spelling") from error


def resolve(host: str, port: int) -> tuple[socket.AddressFamily, tuple[str, int]]:
    """Return the address family and the socket address of a host, IPv4 if it has both. Raise OSError."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    family, _, _, _, place = min(found, key=lambda each: each[0] != socket.AF_INET)
    return family, place  # type: ignore[return-value]


def everywhere() -> str:
    """Return the address that a server binds to be reached by IPv6 and IPv4, or by IPv4 where there is no IPv6."""
    return "::" if socket.has_dualstack_ipv6() else "0.0.0.0"


def listen(backlog: int) -> socket.socket:
    """Return a socket that listens on a free port of all addresses of this machine."""
    if socket.has_dualstack_ipv6():
        try:
            return socket.create_server(("", 0), family=socket.AF_INET6, dualstack_ipv6=True, backlog=backlog)
        except OSError:  # IPv6 exists in the kernel, and is switched off
            pass
    return socket.create_server(("", 0), backlog=backlog)
