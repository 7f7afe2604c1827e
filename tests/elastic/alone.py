"""A process group of one rank, for tests of what a step does."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterator

import pytest
import torch

from tidewater.elastic.addresses import Address
from tidewater.elastic.group.group import Group, open_group


def opened_alone(open_: Callable[..., Group] = open_group) -> Iterator[Group]:
    """Yield a group that is not formed yet; close it at the end."""
    with pytest.MonkeyPatch.context() as environment:
        # Set here so that it is reset: `open_group` would leave it set for processes that other tests start.
        for name in ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"):
            environment.setenv(name, "lo")
        group = open_("127.0.0.1", torch.device("cpu"), 5.0)
        yield group
        group.close()


def form_alone(group: Group) -> None:
    """Begin a new generation."""
    group.form(secrets.randbits(40), 0, (Address("127.0.0.1", 0),), time.monotonic() + 10)
