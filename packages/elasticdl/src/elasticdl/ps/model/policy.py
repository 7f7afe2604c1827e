"""When a gradient is used, and how much of it counts. Pure functions.

| | a gradient of an older version | applied |
|---|---|---|
| grads_to_wait 1, or use_async | is used; lr_staleness_modulation divides its learning rate by its age | at once |
| grads_to_wait N > 1 | is refused if it is older than sync_version_tolerance versions | the mean of N, as one version |
"""

from __future__ import annotations

from dataclasses import dataclass

from elasticdl.errors import InputError


@dataclass(frozen=True)
class Policy:
    """The flags of a job that say what servers do with gradients."""

    grads_to_wait: int = 1
    use_async: bool = False
    lr_staleness_modulation: bool = False
    sync_version_tolerance: int = 0

    def __post_init__(self) -> None:
        if self.grads_to_wait < 1:
            raise InputError(f"--grads_to_wait is {self.grads_to_wait}", "give at least 1")
        if self.sync_version_tolerance < 0:
            raise InputError(f"--sync_version_tolerance is {self.sync_version_tolerance}", "give 0 or more")

    @property
    def waits_for(self) -> int:
        """How many gradients make a version."""
        return 1 if self.use_async else self.grads_to_wait

    def accepts(self, age: int) -> bool:
        """Return whether a gradient is used.

        Args:
            age: versions that the server has made since the one that the gradient was computed with. It is negative
                for a version that was lost when the server was restarted from a checkpoint.
        """
        return self.waits_for == 1 or 0 <= age <= self.sync_version_tolerance

    def learning_rate(self, lr: float, age: int) -> float:
        """Return the learning rate of a gradient of some age."""
        return lr / max(1, age) if self.lr_staleness_modulation and self.waits_for == 1 else lr
