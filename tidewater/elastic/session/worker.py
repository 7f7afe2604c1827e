"""What one worker consists of; ``assembly`` makes it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from tidewater.elastic.checkpoint import Checkpoints
from tidewater.elastic.data.loader import Loader
from tidewater.elastic.errors import ConfigError
from tidewater.elastic.group.group import Group
from tidewater.elastic.membership.coordinator import Coordinator
from tidewater.elastic.membership.rules import View
from tidewater.elastic.observe.metrics import Metrics
from tidewater.elastic.peer.heartbeat import Heartbeat
from tidewater.elastic.peer.server import PeerServer
from tidewater.elastic.session.state import State
from tidewater.elastic.session.step import Stepper
from tidewater.elastic.training import AnyTraining, Training


@dataclass(frozen=True)
class Worker:
    """What every session uses, with any loop."""

    member_id: str
    training: AnyTraining
    state: State
    group: Group
    coordinator: Coordinator
    server: PeerServer
    heartbeat: Heartbeat
    checkpoints: Checkpoints
    metrics: Metrics
    refusal: Callable[[View], str | None]
    """Returns why this worker can't train with the current members, or None if it can."""


def save(worker: Worker, *, if_best: bool = False) -> bool:
    """Save the state in the background. Return whether it is being written; the event of a failure says why not.

    With ``if_best``, it is not written to places that have a checkpoint with a better score.
    """
    checkpoints, state = worker.checkpoints, worker.state
    if if_best and (state.score is None or checkpoints.has_better(state.score)):
        return False
    try:
        tree = state.saved_tree()
    except ConfigError as error:
        checkpoints.failed(state.step, error)
        return False
    return checkpoints.save(state.history, tree, score=state.score, if_best=if_best)


@dataclass
class Requests:
    """What hooks of the script have asked for in this process."""

    stop: str = ""
    """Why training is to end; empty if it goes on."""


@dataclass(frozen=True)
class Material:
    """What the loop that ships uses in addition."""

    training: Training
    stepper: Stepper
    loader: Loader
    total: int | None
    """Samples in the dataset; None if it is not known."""
    requests: Requests = field(default_factory=Requests)
    own_loop: bool = False
    """Whether the script makes the forward passes, so that the training's loss isn't called."""
    begins: Callable[[], None] = lambda: None
    """Called by such a loop before this worker contributes to a step."""
