"""Where Lightning's loops are, as a part of the training's state: a newcomer and a resumed job continue there.

Lightning's own ``load_state_dict`` of loops is for its checkpoints, which are written in the middle of a step's hooks.
The state here is always that between two steps, so three numbers say it all.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Place:
    """A place between two steps."""

    step: int = 0
    """Steps of the optimizer since the beginning: ``trainer.global_step``."""
    epoch: int = 0
    """Finished epochs: ``trainer.current_epoch``."""
    batch: int = 0
    """Steps in the epoch that has begun; 0 if none has."""


def place_of(loop: Any) -> Place:
    """Return where a fit loop is. Of a step that is being made, it is the place before it."""
    epoch, inner = loop.epoch_progress.current, loop.epoch_loop
    is_inside = inner.begins_inside or epoch.ready > epoch.processed
    return Place(inner.global_step, epoch.processed, inner.batch_progress.current.completed if is_inside else 0)


def put(loop: Any, place: Place, *, has_begun: bool) -> None:
    """Set the counters of a fit loop. ``has_begun`` says whether its hooks for the beginning of the epoch have run."""
    for progress in (loop.epoch_progress.total, loop.epoch_progress.current):
        progress.ready = progress.started = place.epoch + has_begun
        progress.processed = progress.completed = place.epoch
    inner = loop.epoch_loop
    optimizer = inner.automatic_optimization.optim_progress.optimizer
    for kind, count in (("total", place.step), ("current", place.batch)):
        batches = getattr(inner.batch_progress, kind)
        batches.ready = batches.started = batches.processed = batches.completed = count
        steps, zeroes = getattr(optimizer.step, kind), getattr(optimizer.zero_grad, kind)
        steps.ready = steps.completed = zeroes.ready = zeroes.started = zeroes.completed = count
    inner.batch_progress.is_last_batch = False
    inner._batches_that_stepped = place.step


class Position:
    """The part of the state that Lightning has: where its loops are, its schedulers and its callbacks.

    Args:
        trainer: After its strategy was set up.
        moved: Called with the place when another state was loaded.
    """

    def __init__(self, trainer: Any, callbacks: Any, moved: Any) -> None:
        self._trainer, self._callbacks, self._moved = trainer, callbacks, moved
        self.loads = 0

    def state_dict(self) -> dict[str, Any]:
        """Return what belongs to the state between two steps."""
        strategy = self._trainer.strategy
        return {
            "place": asdict(place_of(self._trainer.fit_loop)),
            "schedulers": [config.scheduler.state_dict() for config in strategy.lr_scheduler_configs],
            "scheduled": [_scheduled(optimizer) for optimizer in strategy.optimizers] if self._has_schedulers else [],
            "scheduler_progress": self._trainer.fit_loop.epoch_loop.scheduler_progress.state_dict(),
            "callbacks": self._callbacks.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue at another place."""
        strategy = self._trainer.strategy
        for config, stored in zip(strategy.lr_scheduler_configs, state["schedulers"], strict=True):
            config.scheduler.load_state_dict(stored)
        for optimizer, groups in zip(strategy.optimizers, state["scheduled"], strict=False):
            for own, values in zip(optimizer.param_groups, groups, strict=True):
                own.update(values)
        self._trainer.fit_loop.epoch_loop.scheduler_progress.load_state_dict(state["scheduler_progress"])
        self._callbacks.load_state_dict(state["callbacks"])
        self.loads += 1
        self._moved(Place(**state["place"]))

    @property
    def _has_schedulers(self) -> bool:
        return bool(self._trainer.strategy.lr_scheduler_configs)


def _scheduled(optimizer: Any) -> list[dict[str, Any]]:
    """Return the numbers of each parameter group, which schedulers change: of OneCycleLR also the momentum.

    Schedulers continue from their state on a resume, as Lightning's do, and derive the next value from these.
    """
    return [
        {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in group.items()
            if name != "params" and (isinstance(value, float) or (isinstance(value, tuple) and name == "betas"))
        }
        for group in optimizer.param_groups
    ]
