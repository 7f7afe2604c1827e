"""The parts of one worker; ``runtime`` assembles them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from trainer.checkpoint import Checkpoints
from trainer.data.loader import Loader
from trainer.group.group import Group
from trainer.membership.coordinator import Coordinator
from trainer.membership.rules import View
from trainer.observe.metrics import Metrics
from trainer.peer.heartbeat import Heartbeat
from trainer.peer.server import PeerServer
from trainer.state import State
from trainer.step import Stepper
from trainer.training import Training


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
