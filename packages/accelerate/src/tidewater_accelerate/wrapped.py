"""Optimizers and schedulers that obey the job: they step once for each step of the job."""

from __future__ import annotations

from typing import Any

from accelerate.optimizer import AcceleratedOptimizer
from accelerate.scheduler import AcceleratedScheduler

from tidewater_accelerate.job import Job


class Optimizer(AcceleratedOptimizer):
    """Steps when the gradients of the whole step are there; otherwise it does nothing."""

    def __init__(self, optimizer: Any, job: Job, *, device_placement: bool = True) -> None:
        super().__init__(optimizer, device_placement=device_placement)
        self._job = job

    def step(self, closure: Any = None) -> None:
        """Step. Raise ConfigError for a closure, which would compute the loss once more."""
        self._job.step(self.optimizer, closure)

    def zero_grad(self, set_to_none: bool | None = None) -> None:
        """Do nothing: the runtime clears the gradients before each step."""

    @property
    def step_was_skipped(self) -> bool:
        """Whether the last call of ``step`` has done nothing."""
        return self._job.skipped


class Scheduler(AcceleratedScheduler):
    """Steps after a step of the optimizers; in an epoch without this worker it does nothing."""

    def __init__(self, scheduler: Any, optimizers: Any, job: Job) -> None:
        super().__init__(scheduler, optimizers)
        self._job = job

    def step(self, *args: Any, **kwargs: Any) -> None:
        """Step the scheduler if the optimizers have stepped."""
        if not self._job.skipped:
            self.scheduler.step(*args, **kwargs)
