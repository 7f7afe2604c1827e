"""What a launcher does when one of its processes has ended.

decide(137, ran_seconds=12.0, row=Row(), leaving=False)     # start it again after a pause
too_few_left([200, 200, 200], 4)                            # end the whole worker, with this code
outcome([0, 143])                                           # the worker's exit code
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum

from tidewater.contract import exit_codes

QUICK_SECONDS = 60.0
"""A process that ends sooner than this after its start has failed quickly, and will probably do so again."""
MAX_QUICK_FAILURES = 3
"""Number of consecutive quick failures after which the launcher gives up and leaves the decision to its parent."""
BACK_OFF_SECONDS = 1.0
"""Wait before a process is started again; doubles with every quick failure."""
MAX_MACHINE_FAILURES = 3
"""Number of consecutive failures of the machine after which a process is left out. A new process has a new CUDA
context, which most errors of a GPU don't survive; a defective GPU fails again."""
STEADY_SECONDS = 600.0
"""A process that ran this long before such a failure begins a new row of them."""


class Then(Enum):
    """What to do when a process has ended."""

    REST = "it has finished"
    RESTART = "it was lost: start it again"
    LEAVE_OUT = "its GPU or its connections fail again and again: the others go on without it"
    GIVE_UP = "a restart would give the same result: stop all processes"


@dataclass(frozen=True)
class Row:
    """The consecutive failures of one process."""

    quick: int = 0
    """Those soon after the start of the process, for any cause but the machine."""
    machine: int = 0
    """Those of its GPU or of its connections."""


@dataclass(frozen=True)
class Verdict:
    """The reaction to the end of one process."""

    then: Then
    row: Row = Row()
    """Its consecutive failures, including this one."""
    wait_seconds: float = 0.0
    """Wait before the process is started again."""


def decide(code: int, *, ran_seconds: float, row: Row, leaving: bool, learned: bool = False) -> Verdict:
    """Return what to do when a process has ended.

    A process that left as planned, although the launcher was not asked to stop, is started again too: its GPU is still
    here.

    Args:
        code: The exit code as a shell reports it; see tidewater/contract/exit_codes.py.
        ran_seconds: How long the process ran.
        row: Its consecutive failures before this end.
        leaving: Whether the launcher was asked to stop.
        learned: Whether the next start is another attempt, with a smaller number of samples. It is no failure in a row:
            a process that can't have fewer ends with USAGE.
    """
    if leaving or code == exit_codes.FINISHED:
        return Verdict(Then.REST)
    if code == exit_codes.USAGE:
        return Verdict(Then.GIVE_UP)
    if learned:
        return Verdict(Then.RESTART, row)
    machine = row.machine if ran_seconds < STEADY_SECONDS else 0
    if code in exit_codes.OF_THE_MACHINE:
        row, limit = Row(row.quick, machine + 1), MAX_MACHINE_FAILURES
        failures, otherwise = row.machine, Then.LEAVE_OUT
    else:
        row, limit = Row(row.quick + 1 if ran_seconds < QUICK_SECONDS else 0, machine), MAX_QUICK_FAILURES
        failures, otherwise = row.quick, Then.GIVE_UP
    if failures >= limit:
        return Verdict(otherwise, row)
    return Verdict(Then.RESTART, row, BACK_OFF_SECONDS * 2**failures)


def too_few_left(left_out: Sequence[int], processes: int) -> int | None:
    """Return the worker's exit code if too many of its processes were left out; None if the others go on.

    At least half of them must be left. One defective GPU of eight is worth less than the minutes without the seven
    others. If most of them fail, the cause is the node, and another node gives more.

    Args:
        left_out: The last exit code of each process that was left out.
        processes: Number of the worker's processes, these included.
    """
    if 2 * (processes - len(left_out)) >= processes:
        return None
    failed = 2 * left_out.count(exit_codes.DEVICE_FAILED) >= len(left_out)
    return exit_codes.DEVICE_FAILED if failed else exit_codes.UNCONNECTED


def outcome(codes: Iterable[int]) -> int:
    """Return the worker's exit code: a failure if a process failed, otherwise LEFT if one left."""
    found = set(codes)
    failures = sorted(found - {exit_codes.FINISHED, exit_codes.LEFT})
    if failures:
        return exit_codes.USAGE if exit_codes.USAGE in failures else failures[0]
    return exit_codes.LEFT if exit_codes.LEFT in found else exit_codes.FINISHED


def as_a_shell_does(status: int) -> int:
    """Return the exit code for what `subprocess` reports: 128 + n for an end by signal n."""
    return 128 - status if status < 0 else status
