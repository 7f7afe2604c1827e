"""The address by which the other workers can reach this machine."""

from __future__ import annotations

import socket
from urllib.parse import urlsplit

from trainer.errors import ConfigError


def route_to(url: str) -> str:
    """Return the address of this machine on the route to ``url``. Sends no packet.

    Raise ConfigError if the host's name in ``url`` can't be resolved.
    """
    parts = urlsplit(url)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((parts.hostname or "", parts.port or 2379))
        except OSError as error:
            raise ConfigError(f"etcd's address {url!r} cannot be resolved ({error}): check its spelling") from error
        return str(probe.getsockname()[0])
