"""What one worker consists of; ``assembly`` makes it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from tidewater.elastic.checkpoint import Checkpoints
from tidewater.elastic.data.loader import Loader
from tidewater.elastic.data.sampler import Cursor
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
    writes: bool = True
    """Whether this process writes for its worker: the first of those that divide a model, or the only one."""


@dataclass(frozen=True)
class Meeting:
    """How a worker came into a generation."""

    rank: int
    size: int
    replaced: bool
    """Whether another worker's state, or a checkpoint, has replaced the state that this worker had."""
    included: bool
    """Whether the present state contains the last step to which this worker has contributed."""
    generation: int
    index: int = 0
    """Of this process among those of its worker that divide a model."""
    shards: int = 1
    """Number of these processes."""

    @property
    def process(self) -> int:
        """The rank of this process among those of all workers."""
        return self.rank * self.shards + self.index

    @property
    def processes(self) -> int:
        """The number of processes of all workers."""
        return self.size * self.shards


@dataclass(frozen=True)
class Share:
    """What a worker contributes to a step."""

    samples: tuple[int, ...]
    """Of this worker."""
    batch_size: int
    """Number of samples of all workers together."""
    after: Cursor
    """Place in the data after the step."""
    began: float
    """Monotonic time at which the step began."""
    ready: float
    """The same, without the wait for ``--min-step-seconds``."""


def is_best(worker: Worker) -> bool:
    """Return whether the state was evaluated, and a place has no checkpoint with a better score."""
    score = worker.state.score
    return score is not None and not worker.checkpoints.has_better(score)


def save(worker: Worker, *, if_best: bool = False) -> bool:
    """Save the state in the background. Return whether it is being written; the event of a failure says why not.

    All processes of a worker that divide a model must call this.

    Args:
        worker: Of this process.
        if_best: Whether to skip places that have a checkpoint with a better score.
    """
    checkpoints, state = worker.checkpoints, worker.state
    try:
        tree = state.saved_tree()
    except ConfigError as error:
        checkpoints.failed(state.step, error)
        return False
    return worker.writes and checkpoints.save(state.history, tree, score=state.score, if_best=if_best)


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
