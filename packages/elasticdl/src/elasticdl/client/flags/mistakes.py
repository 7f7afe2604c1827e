"""One error names all mistakes in a command line, so that a user can correct all flags at once.

raise WrongCommand([Mistake("--num_workers=0: …", "for example: 4"), …])
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tidewater.cli.errors import UsageError


@dataclass(frozen=True)
class Mistake:
    """One thing that is wrong: a sentence that names the input at fault, and the remedy."""

    message: str
    remedy: str = ""

    def __str__(self) -> str:
        return f"{self.message}\n    → {self.remedy}" if self.remedy else self.message


class WrongCommand(UsageError):
    """A command line, or what it names, is wrong."""

    def __init__(self, mistakes: Sequence[Mistake]) -> None:
        if len(mistakes) == 1:
            super().__init__(mistakes[0].message, mistakes[0].remedy)
        else:
            super().__init__(f"{len(mistakes)} mistakes", "\n".join(f"  {each}" for each in mistakes))
        self.mistakes = tuple(mistakes)
