"""What to do when a worker has ended, by the rules of an ElasticJob for exit codes.

    verdict = decide(137, ran_seconds=12.0, row=Row(), ending=False)      # replace it

A job on one machine has no controller that pauses longer and longer. Instead, a row of workers that end soon after
their start ends the run.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import Enum

from tidewater.contract.exit_codes import ALWAYS_RETRIED, FINISHED, NOT_THE_WORKERS_FAULT, RETRYABLE
from tidewater.elastic.launch import rules

MAX_QUICK_FAILURES = rules.MAX_QUICK_FAILURES
"""Failures in a row after which a further replacement would fail too."""
MAX_QUICK_LOSSES = 20
"""The same for workers that were killed, or that left: people do that on purpose, but a machine without enough memory
does it for ever."""


class Then(Enum):
    """What to do when a worker has ended."""

    REST = "the job has finished or is stopped: the worker is not replaced"
    REPLACE = "it was lost: start another one"
    GIVE_UP = "a replacement would end in the same way: stop all workers"


@dataclass(frozen=True)
class Row:
    """The workers that ended soon after their start, since the last one that ended after a long time."""

    failures: int = 0
    losses: int = 0


@dataclass(frozen=True)
class Verdict:
    """The reaction to the end of one worker."""

    then: Then
    row: Row


def decide(code: int, *, ran_seconds: float, row: Row, ending: bool) -> Verdict:
    """Return what to do when a worker has ended.

    Args:
        code: The exit code as a shell reports it; see tidewater/contract/exit_codes.py.
        ran_seconds: How long the worker ran.
        row: The ends of all workers before this one.
        ending: Whether the workers were asked to leave, or one of them has finished the job.
    """
    if ending or code == FINISHED:
        return Verdict(Then.REST, row)
    lost = code in NOT_THE_WORKERS_FAULT
    if not lost and code not in (*RETRYABLE, *ALWAYS_RETRIED):
        return Verdict(Then.GIVE_UP, row)
    if ran_seconds >= rules.QUICK_SECONDS:
        return Verdict(Then.REPLACE, Row())
    row = replace(row, losses=row.losses + 1) if lost else replace(row, failures=row.failures + 1)
    too_many = row.failures >= MAX_QUICK_FAILURES or row.losses >= MAX_QUICK_LOSSES
    return Verdict(Then.GIVE_UP if too_many else Then.REPLACE, row)


def outcome(codes: Iterable[int]) -> int:
    """Return the exit code of the run from those of the workers that were not replaced.

    A worker that was killed or left does not matter any more once another one has finished the job.
    """
    found = set(codes)
    return rules.outcome(found - set(NOT_THE_WORKERS_FAULT) if FINISHED in found else found)
