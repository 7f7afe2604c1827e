"""The kinds of group that the schedules of faults run on."""

from __future__ import annotations

from collections.abc import Callable

import torch

from tests.elastic.group.nccl import double
from tests.elastic.schedules import points
from tidewater.elastic.group import gloo, group, rendezvous
from tidewater.elastic.group.group import Group
from tidewater.elastic.group.siblings import Siblings
from tidewater.elastic.peer.server import PeerServer


def _restarted(
    host: str,
    device: torch.device,
    timeout_seconds: float,
    peers: PeerServer | None = None,
    siblings: Siblings | None = None,
) -> Group:
    rendezvous.use_interface_of(host)
    return Group(gloo.Restarted(device, timeout_seconds), peers, siblings)


_CONNECT_SECONDS = 30.0
KINDS: dict[str, Callable[..., Group]] = {
    "reconfigured": group.open_group,
    "restarted": _restarted,
    "nccl": double.open_group,
    "nccl2": double.opener(double.Double2),
}


def patient(group: Group) -> Group:
    """Let gloo wait long for its peers: a script that forms a group only once meets on a busy machine, too.

    The runtime forms it again. Not for a peer that vanishes while it connects: gloo's wait can't be interrupted.
    """
    backend = group._backend
    if isinstance(backend, gloo.Gloo):
        backend.connect_seconds = backend.group_seconds = _CONNECT_SECONDS
    return group


def use(kind: str) -> None:
    """Make the trainer of this process open groups of that kind."""
    points.replace(group.open_group, KINDS[kind])
