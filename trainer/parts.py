"""What one worker is put together from; see ``main`` for how."""

from __future__ import annotations

from dataclasses import dataclass

from trainer.checkpoint import Checkpoints
from trainer.coordinator import Coordinator
from trainer.data import ImageFolder
from trainer.group import Group
from trainer.metrics import Metrics
from trainer.state import State
from trainer.sync import PeerServer


@dataclass(frozen=True)
class Parts:
    """What the loop works with."""

    coordinator: Coordinator
    group: Group
    server: PeerServer
    checkpoints: Checkpoints
    state: State
    train: ImageFolder
    val: ImageFolder
    member_id: str
    metrics: Metrics
