"""`tidewater doctor`: runs the checks and prints what they say.

Exit code 1 if something must be fixed, else 0; also if a check could not be done.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import typer
from rich.console import Console
from rich.text import Text

from tidewater.cli.doctor.checks import CHECKS
from tidewater.cli.doctor.place import Place, RealTools
from tidewater.cli.doctor.results import Check, Outcome, Result
from tidewater.cli.doctor.run import results_of
from tidewater.cli.errors import EXIT_ERROR
from tidewater.cli.options import command
from tidewater.cli.session import Session
from tidewater.cli.show import plural

_MARKS = {
    Outcome.FINE: ("✓", "green"),
    Outcome.NOTE: ("!", "yellow"),
    Outcome.FIX: ("✗", "bold red"),
    Outcome.SKIPPED: ("-", "dim"),
}
_TEXT_STYLES = {Outcome.FINE: "", Outcome.NOTE: "", Outcome.FIX: "bold", Outcome.SKIPPED: "dim"}
_NAME_COLUMNS = 13


def register(app: typer.Typer) -> None:
    """Add the command."""
    command(app, "doctor")(doctor)


def doctor(session: Session) -> None:
    """Say what is missing or wrong on this machine, in this account and on this cluster, and how to fix it.

    It changes nothing. Exit code 1: something must be fixed.
    """
    place = Place(
        tools=RealTools(),
        environment=os.environ,
        directory=Path.cwd(),
        access=session.target.access,
        connect=session.tools.connect,
        clock=session.clock,
    )
    found = []
    section = ""
    for check, result in _awaited(CHECKS, place, session.err):
        found.append(result)
        if check.section != section:
            session.out.print(Text(check.section, style="bold"))
            section = check.section
        session.out.print(entry(check, result))
    session.out.print(Text(summary(found)))
    if any(result.outcome is Outcome.FIX for result in found):
        raise typer.Exit(EXIT_ERROR)


def _awaited(checks: Sequence[Check], place: Place, progress: Console) -> Iterator[tuple[Check, Result]]:
    """Yield the results; show on a terminal which check is being waited for.

    Nothing may be printed while that is shown: rich would print it on the wrong stream.
    """
    results = results_of(checks, place)
    for check in checks:
        if progress.is_terminal:
            with progress.status(Text(f"{check.section}: {check.name}")):
                found = next(results)
        else:
            found = next(results)
        yield found


def entry(check: Check, result: Result) -> Text:
    """Return what is printed about one check: a line, or some more, and the remedy below."""
    mark, style = _MARKS[result.outcome]
    first, *more = result.text.splitlines() or [""]
    remedies = [f"→ {line}" for line in result.remedy.splitlines()]
    text = Text.assemble("  ", (mark, style), f" {check.name:<{_NAME_COLUMNS}}", (first, _TEXT_STYLES[result.outcome]))
    for line in [*more, *remedies]:
        text.append(f"\n{'':<{_NAME_COLUMNS + 4}}{line}")
    return text


def summary(results: Sequence[Result]) -> str:
    """Return the last line."""
    counts = Counter(result.outcome for result in results)
    if counts[Outcome.FIX]:
        return f"{plural(counts[Outcome.FIX], 'thing')} to fix, {counts[Outcome.NOTE]} worth knowing."
    return f"Nothing to fix, {plural(counts[Outcome.NOTE], 'thing')} worth knowing."
