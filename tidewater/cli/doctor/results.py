"""What a check says.

return fix("kubectl is not installed", "Install it: https://kubernetes.io/docs/tasks/tools/")
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from tidewater.cli.doctor.place import Place


class Outcome(Enum):
    """How it stands."""

    FINE = "fine"
    NOTE = "note"
    """Worth knowing: it limits what can be done, but nothing that is there is broken."""
    FIX = "fix"
    """It must be fixed. The command's exit code is 1."""
    SKIPPED = "skipped"
    """Not needed here."""
    UNCHECKED = "unchecked"
    """It could not be checked. The command's exit code is 1."""


@dataclass(frozen=True)
class Result:
    """The end of a check: a sentence, and what to do about it."""

    outcome: Outcome
    text: str
    remedy: str = ""


def fine(text: str) -> Result:
    """Return that nothing is wrong."""
    return Result(Outcome.FINE, text)


def note(text: str, remedy: str = "") -> Result:
    """Return something worth knowing."""
    return Result(Outcome.NOTE, text, remedy)


def fix(text: str, remedy: str) -> Result:
    """Return something that must be fixed, and how."""
    return Result(Outcome.FIX, text, remedy)


def skipped(text: str) -> Result:
    """Return why nothing needs to be checked."""
    return Result(Outcome.SKIPPED, text)


def unchecked(text: str) -> Result:
    """Return why it could not be checked."""
    return Result(Outcome.UNCHECKED, text)


@dataclass(frozen=True)
class Check:
    """One check.

    Args:
        needs: The name of the check that must succeed before this one can be done.
        seconds: Its time limit.
    """

    section: str
    name: str
    run: Callable[[Place], Result]
    needs: str = ""
    seconds: float = 5.0
