"""On a machine of any speed a rehearsal has enough steps for its faults."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from tidewater.cli.rehearse import faults

SLOW_SECONDS = 60.0
STEPS = faults.LEAST_STEPS


class Slow:
    """A run in which a worker needs a minute to join or to end; no time passes but in waits."""

    def __init__(self) -> None:
        self.gate, self.clock = 1, 0.0
        self.records = SimpleNamespace(step_of=lambda name: self.gate + 1 if name == "worker-0" else 0)

    @property
    def alive(self) -> list[str]:
        return [] if self._is_over() else ["worker-1"]

    def open(self, gate: int) -> None:
        self.gate = gate

    def is_prepared(self, name: str) -> bool:
        return True

    def have_begun(self, names: object, step: int) -> bool:
        return self._is_over()

    def wait_for(self, condition: Callable[[], bool], what: str, seconds: float = SLOW_SECONDS) -> bool:
        if not condition():
            self.clock += seconds
        return condition()

    def _is_over(self) -> bool:
        return self.clock >= SLOW_SECONDS


def test_a_worker_that_needs_a_minute_to_join_costs_a_few_steps() -> None:
    run: Any = Slow()
    faults._gather(run, ["worker-0", "worker-1"], STEPS)
    assert run.gate < STEPS / 3


def test_a_worker_that_needs_a_minute_to_end_costs_a_few_steps() -> None:
    run: Any = Slow()
    faults._until_gone(run, ["worker-1"], STEPS)
    assert run.gate < STEPS / 3
