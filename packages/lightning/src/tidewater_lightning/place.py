"""Where Lightning's loops are, as a part of the training's state: a newcomer and a resumed job continue there.

Lightning's own ``load_state_dict`` of loops is for its checkpoints, which are written in the middle of a step's hooks.
The state here is always that between two steps, so two numbers say it all. The epoch follows from the samples, also if
the job is resumed with another batch size.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def put(loop: Any, *, step: int, epoch: int, batch: int, has_begun: bool) -> None:
    """Set the counters of a fit loop.

    Args:
        loop: The fit loop.
        step: Steps of the optimizer since the beginning: ``trainer.global_step``.
        epoch: Finished epochs: ``trainer.current_epoch``.
        batch: Steps of the epoch that has begun, or 0.
        has_begun: Whether the hooks for its beginning have run.
    """
    for progress in (loop.epoch_progress.total, loop.epoch_progress.current):
        progress.ready = progress.started = epoch + has_begun
        progress.processed = progress.completed = epoch
    inner = loop.epoch_loop
    optimizer = inner.automatic_optimization.optim_progress.optimizer
    for kind, count in (("total", step), ("current", batch)):
        batches = getattr(inner.batch_progress, kind)
        batches.ready = batches.started = batches.processed = batches.completed = count
        steps, zeroes = getattr(optimizer.step, kind), getattr(optimizer.zero_grad, kind)
        steps.ready = steps.completed = zeroes.ready = zeroes.started = zeroes.completed = count
    inner.batch_progress.is_last_batch = False
    inner._batches_that_stepped = step


class Position:
    """The part of the state that Lightning has: where its loops are, its schedulers and its callbacks.

    Args:
        trainer: After its strategy was set up.
        callbacks: Give and take the states of its callbacks.
        moved: Called with the number of steps, and with that of samples, when another state was loaded.
    """

    def __init__(self, trainer: Any, callbacks: Any, moved: Callable[[int, int], None]) -> None:
        self._trainer, self._callbacks, self._moved = trainer, callbacks, moved
        self.loads = self.samples = 0
        """How often another state was loaded; the samples of all steps."""

    def state_dict(self) -> dict[str, Any]:
        """Return what belongs to the state between two steps."""
        strategy = self._trainer.strategy
        return {
            "step": self._trainer.global_step,
            "samples": self.samples,
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
        self.samples = state["samples"]
        self._moved(state["step"], state["samples"])

    @property
    def _has_schedulers(self) -> bool:
        return bool(self._trainer.strategy.lr_scheduler_configs)


def _scheduled(optimizer: Any) -> list[dict[str, Any]]:
    """Return the numbers of each parameter group, which schedulers change: of OneCycleLR also the momentum.

    Schedulers continue from their state on a resume, as Lightning's do, and derive the next value from these.
    """
    return [
        {name: value for name, value in group.items() if isinstance(value, float) or name == "betas"}
        for group in optimizer.param_groups
    ]
