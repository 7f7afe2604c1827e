"""Typical defects of samplers that lose or repeat samples, for installation in a forked worker.

    breakages.ALL["pads the tail"]()

They show that the check of the ledger can fail.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import replace as changed
from typing import Any

from tests.elastic.schedules.points import replace
from tidewater.elastic.data import sampler
from tidewater.elastic.data.sampler import Cursor, Step
from tidewater.elastic.membership.rules import Generation
from tidewater.elastic.session import handover
from tidewater.elastic.session.worker import Worker

Change = Callable[[Step, Cursor, int, int], Step]
"""A step and the cursor before it, the number of samples in an epoch and in a batch → the broken step."""


def moves_by_its_own_share() -> None:
    """Advance the cursor by the share of only one of two ranks."""

    def change(step: Step, cursor: Cursor, total: int, batch_size: int) -> Step:
        half = Cursor(cursor.epoch, cursor.offset + (len(step.samples) + 1) // 2)
        return changed(step, after=half) if step.after.offset else step

    _change_plan(change)


def pads_the_tail() -> None:
    """Fill the last step of an epoch with samples from its start, so that all ranks have equally many."""
    shared = Step.share

    def share(step: Step, rank: int, size: int) -> tuple[int, ...]:
        return shared(step, rank, size) or step.samples[:1]

    Step.share = share  # type: ignore[assignment, method-assign]


def drops_the_tail() -> None:
    """End an epoch before its last, incomplete batch."""

    def change(step: Step, cursor: Cursor, total: int, batch_size: int) -> Step:
        end = cursor.offset + len(step.samples)
        return changed(step, after=Cursor(cursor.epoch + 1)) if end + batch_size > total else step

    _change_plan(change)


def repeats_after_a_failure() -> None:
    """Let survivors repeat a step that all of them have applied."""
    _move_after_a_loss(-1)


def skips_after_a_failure() -> None:
    """Let survivors skip a step that they have discarded."""
    _move_after_a_loss(1)


def _change_plan(change: Change) -> None:
    original = sampler.plan

    @functools.wraps(original)
    def planned(cursor: Cursor, *, total: int, batch_size: int, seed: int) -> Step:
        return change(original(cursor, total=total, batch_size=batch_size, seed=seed), cursor, total, batch_size)

    replace(original, planned)


def _move_after_a_loss(batches: int) -> None:
    synchronise = handover.synchronise

    @functools.wraps(synchronise)
    def moved(worker: Worker, generation: Generation, rank: int, *more: Any) -> Any:
        result = synchronise(worker, generation, rank, *more)
        if generation.cause == "lost":
            offset = worker.state.cursor.offset + batches * 7
            # Not across an epoch's end: the next failure is used instead.
            if 0 <= offset < 49:
                worker.state.cursor = Cursor(worker.state.cursor.epoch, offset)
        return result

    replace(synchronise, moved)
    handover.synchronise = moved  # type: ignore[assignment]


ALL: dict[str, Callable[[], None]] = {
    "moves by its own share": moves_by_its_own_share,
    "pads the tail": pads_the_tail,
    "drops the tail": drops_the_tail,
    "repeats after a failure": repeats_after_a_failure,
    "skips after a failure": skips_after_a_failure,
}
