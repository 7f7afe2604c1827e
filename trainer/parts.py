"""What one worker is put together from; see ``runtime`` for how."""

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
    """What the loop works with."""

    member_id: str
    training: Training
    total: int
    """Samples in the dataset."""
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
    """Why this worker can't train with those who do, if it can't."""
