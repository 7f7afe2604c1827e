"""The parts of one worker; ``runtime`` assembles them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tidewater.elastic.checkpoint import Checkpoints
from tidewater.elastic.data.loader import Loader
from tidewater.elastic.group.group import Group
from tidewater.elastic.membership.coordinator import Coordinator
from tidewater.elastic.membership.rules import View
from tidewater.elastic.observe.metrics import Metrics
from tidewater.elastic.peer.heartbeat import Heartbeat
from tidewater.elastic.peer.server import PeerServer
from tidewater.elastic.state import State
from tidewater.elastic.step import Stepper
from tidewater.elastic.training import Training


@dataclass(frozen=True)
class Parts:
    """The parts that the loop uses."""

    member_id: str
    training: Training
    total: int | None
    """Samples in the dataset; None if it is not known."""
    state: State
    stepper: Stepper
    loader: Loader
    group: Group
    coordinator: Coordinator
    server: PeerServer
    heartbeat: Heartbeat
    checkpoints: Checkpoints
    metrics: Metrics
    refusal: Callable[[View], str | None]
    """Returns why this worker can't train with the current members, or None if it can."""
