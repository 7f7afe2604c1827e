"""``--rdzv-endpoint`` and ``--rdzv-conf``, checked as a whole.

    options = Options.parse("etcd-0:2379,etcd-1:2379", {"lease_seconds": "5", "timeout": 900})

torchrun passes the configuration as text. One ConfigError reports everything that is wrong.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from tidewater.elastic.errors import ConfigError
from tidewater.elastic.etcd.access import tls_context

_SECONDS: dict[str, tuple[float, float]] = {
    "lease_seconds": (5, 2),
    "last_call_seconds": (3, 0),
    "patience_seconds": (60, 1),
    "join_seconds": (900, 1),
    "connect_seconds": (15, 1),
}
"""Default and minimum."""
_TEXTS = ("protocol", "cacert", "cert", "key")
_DEFAULT_PORT = 2379


@dataclass(frozen=True)
class Options:
    """How an agent reaches etcd, and how long it waits."""

    endpoints: tuple[str, ...]
    lease_seconds: int
    """A node is lost when etcd has not heard of it for this time. Whole seconds, like etcd's leases."""
    last_call_seconds: float
    """The first round waits this long after the last arrival, unless it is full."""
    patience_seconds: float
    """Time for which others wait until a node has stopped its workers after a round has broken."""
    join_seconds: float
    """``next_rendezvous`` fails after this time. torch's own name, ``timeout``, is accepted too."""
    connect_seconds: float
    """etcd must answer at least once within this time."""
    cacert: str = ""
    cert: str = ""
    key: str = ""

    @classmethod
    def parse(cls, endpoint: str, config: Mapping[str, Any]) -> Options:
        """Return the options. Raise ConfigError that names every wrong option and its allowed values."""
        given = {name: value for name, value in config.items() if value is not None}
        if "timeout" in given:
            given.setdefault("join_seconds", given["timeout"])
            del given["timeout"]
        problems = [
            f"--rdzv-conf {name}={value} is not known: use {', '.join([*_SECONDS, *_TEXTS])}"
            for name, value in given.items()
            if name not in _SECONDS and name not in _TEXTS
        ]
        seconds = {name: _seconds(name, given.get(name, default), problems) for name, (default, _) in _SECONDS.items()}
        texts = {name: str(given.get(name, "")) for name in _TEXTS}
        protocol = texts.pop("protocol") or ("https" if any(texts.values()) else "http")
        if protocol not in ("http", "https"):
            problems.append(f"--rdzv-conf protocol={protocol}: use http or https")
        if bool(texts["cert"]) != bool(texts["key"]):
            problems.append("--rdzv-conf cert=… and key=… belong together: give both or none")
        endpoints = _endpoints(endpoint, protocol, problems)
        if any(texts.values()) and any(url.startswith("http:") for url in endpoints):
            problems.append("--rdzv-conf cacert=, cert= and key= are for https: write it in --rdzv-endpoint as well")
        if problems:
            raise ConfigError("; ".join(problems))
        return cls(
            endpoints,
            int(seconds["lease_seconds"]),
            last_call_seconds=seconds["last_call_seconds"],
            patience_seconds=seconds["patience_seconds"],
            join_seconds=seconds["join_seconds"],
            connect_seconds=seconds["connect_seconds"],
            cacert=texts["cacert"],
            cert=texts["cert"],
            key=texts["key"],
        )

    def tls(self) -> ssl.SSLContext | None:
        """Return the TLS context; None if no endpoint is ``https://``. Raise ConfigError that names the file."""
        if not any(url.startswith("https:") for url in self.endpoints):
            return None
        return tls_context(self.cacert, self.cert, self.key, option="--rdzv-conf {}={}")


def _seconds(name: str, value: Any, problems: list[str]) -> float:
    least = _SECONDS[name][1]
    try:
        number = float(value)
    except ValueError:
        problems.append(f"--rdzv-conf {name}={value} is not a number of seconds")
        return least
    if not number >= least:
        problems.append(f"--rdzv-conf {name}={value}, the least is {least:g}")
    elif name == "lease_seconds" and number != int(number):
        problems.append(f"--rdzv-conf {name}={value}: etcd's leases last whole seconds")
    return number


def _endpoints(text: str, protocol: str, problems: list[str]) -> tuple[str, ...]:
    found = []
    for part in filter(None, (part.strip() for part in text.split(","))):
        url = part if "://" in part else f"{protocol}://{part}"
        try:
            parts = urlsplit(url)
            good = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.path in ("", "/")
            port = parts.port or _DEFAULT_PORT
        except ValueError:  # the port is not a number
            good, port = False, 0
        if good:
            host = f"[{parts.hostname}]" if ":" in str(parts.hostname) else parts.hostname
            found.append(f"{parts.scheme}://{host}:{port}")
        else:
            problems.append(f"--rdzv-endpoint {part!r} is not an etcd client address like etcd-0:{_DEFAULT_PORT}")
    if not text.strip():
        problems.append(f"--rdzv-endpoint is required: etcd's client addresses, like etcd-0:{_DEFAULT_PORT},etcd-1")
    return tuple(found)
