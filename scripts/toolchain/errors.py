"""Why the set-up can't go on, in one line that ends with what to do about it.

SetupError
├── ToolMissing     something that the set-up should have put there isn't there
├── StepFailed      a step of the set-up went wrong
└── Stopped         a step was ended, because another one went wrong
"""

from __future__ import annotations


class SetupError(Exception):
    """The set-up can't go on; the message names the cause and the remedy."""


class ToolMissing(SetupError):
    """A tool or folder that the set-up provides isn't there."""

    def __init__(self, what: str, remedy: str = "`make up` (or `make install`)") -> None:
        super().__init__(f"{what} is not set up on this machine; run {remedy}")


class StepFailed(SetupError):
    """A step of the set-up went wrong."""


class Stopped(SetupError):
    """A step was ended before its time; nothing is wrong with it."""
