"""What one worker is put together from; see ``runtime`` for how."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from trainer.checkpoints import Checkpoints
from trainer.coordinator import Coordinator
from trainer.group import Group
from trainer.heartbeat import Heartbeat
from trainer.loader import Loader
from trainer.membership import View
from trainer.metrics import Metrics
from trainer.state import State
from trainer.step import Stepper
from trainer.sync import PeerServer
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
