"""Run `pulumi up` and `pulumi destroy`, and show their progress to a person.

    run(session, "up", remedy="repair what it names and run `make up` again")

On a terminal Pulumi draws its own table. Elsewhere it prints two lines for every resource, and dots while it waits;
this prints a count every few seconds instead, and one line for a resource that took long. Diagnostics, outputs and the
summary are passed on.
"""

from __future__ import annotations

import contextlib
import queue
import re
import subprocess
import sys
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import IO

from scripts.session import STACK, Session, UpError
from scripts.toolchain import paths

CHANGE_SECONDS = 5.0
"""Between two lines while resources change."""
QUIET_SECONDS = 20.0
"""Between two lines while everything waits for the same resources."""
SLOW_SECONDS = 3.0
"""A resource that took at least as long is worth a line of its own."""
_STEP = re.compile(
    r"^(?P<head> [-+~<>=]{1,2} +(?P<type>\S+) (?P<name>.+?) (?P<verb>[a-z]+(?:ing|ed|read))(?: replacement| original)? "
    r"\((?P<seconds>[\d.]+)s\))(?: \[diff: .*?\])?(?P<note> .+)?$"
)
_FAILED = re.compile(r"^ [-+~<>=]{1,2} +(?P<type>\S+) (?P<name>.+?) \*\*\w+ failed\*\*")
_STATE = re.compile(r"^    \S+:\S+ \S+(?: running)?(?: +warning: .+)?$")
_SHOWN = 3


@dataclass
class Tally:
    """What Pulumi has done so far, by the lines that it printed."""

    done: Counter[str] = field(default_factory=Counter)
    running: dict[tuple[str, str], float] = field(default_factory=dict)
    """Type and name of what is in progress, and when it began."""

    def take(self, line: str, now: float) -> str | None:
        """Count a line about a resource; return what of it is worth showing, or None.

        What a resource is waiting for is not shown, and warnings aren't either: Pulumi repeats the lasting ones at
        the end, under "Diagnostics".
        """
        if failed := _FAILED.match(line):
            self.running.pop((failed["type"], failed["name"]), None)
            return line
        step = _STEP.match(line)
        if step is None:
            return None if not line.strip() or _STATE.match(line) else line
        resource = (step["type"], step["name"])
        if step["verb"].endswith("ing"):
            self.running.setdefault(resource, now)
            return line if "error: " in (step["note"] or "") else None
        self.running.pop(resource, None)
        self.done[step["verb"]] += 1
        return step["head"] if float(step["seconds"]) >= SLOW_SECONDS else None

    def snapshot(self) -> tuple[int, frozenset[tuple[str, str]]]:
        """Return what makes one line of progress differ from another, apart from the time."""
        return self.done.total(), frozenset(self.running)

    def summary(self, now: float) -> str:
        """Return one line: counts, and what has been in progress for the longest time."""
        counts = ", ".join(f"{count} {verb}" for verb, count in self.done.items()) or "nothing changed yet"
        leaves = {each: begin for each, begin in self.running.items() if not _is_component(each[0])}
        longest = sorted(leaves, key=lambda each: leaves[each])
        named = [f"{kind.split(':')[-1]} {name} ({now - leaves[kind, name]:.0f} s)" for kind, name in longest[:_SHOWN]]
        more = [f"{len(longest) - _SHOWN} more"] if len(longest) > _SHOWN else []
        return f"  {counts}; in progress: {', '.join([*named, *more])}" if named else f"  {counts}"


def run(session: Session, operation: str, *, remedy: str) -> None:
    """Run `pulumi OPERATION` on the stack.

    Raises:
        UpError: it ended with an error; the message ends with `remedy`.
    """
    command = ["pulumi", operation, "--yes", "--skip-preview", "--stack", STACK]
    terminal = sys.stdout.isatty()
    process = subprocess.Popen(
        command if terminal else [*command, "--suppress-progress"],
        cwd=paths.CHECKOUT,
        env=session.environ,
        stdout=None if terminal else subprocess.PIPE,
        text=True,
    )
    with process:
        try:
            if process.stdout:
                _show(process.stdout)
            process.wait()
        except KeyboardInterrupt:
            _await_end(process)
            raise
    if process.returncode != 0:
        raise UpError(f"`{' '.join(command)}` ended with status {process.returncode}: {remedy}")


def _await_end(process: subprocess.Popen[str]) -> None:
    """Wait for Pulumi, which Ctrl-C reaches too: it finishes what is in progress, or ends at once after a second one.

    In both cases it saves the state.
    """
    while process.poll() is None:
        with contextlib.suppress(KeyboardInterrupt):
            process.wait()


def _is_component(kind: str) -> bool:
    """Whether a type is the stack's or a component's, which are in progress until their last child is done."""
    return kind.startswith(("pulumi:pulumi:", "tidewater:", "eks:index:"))


def _show(output: IO[str]) -> None:
    lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
    threading.Thread(target=_read, args=(output, lines), daemon=True).start()
    tally, said, printed = Tally(), Tally().snapshot(), time.monotonic()
    while True:
        try:
            line = lines.get(timeout=1)
        except queue.Empty:
            line = ""
        if line is None:
            return
        now = time.monotonic()
        if shown := tally.take(line.rstrip(), now):
            print(shown, flush=True)
        if now - printed > (CHANGE_SECONDS if tally.snapshot() != said else QUIET_SECONDS):
            print(tally.summary(now), flush=True)
            said, printed = tally.snapshot(), now


def _read(output: IO[str], lines: queue.SimpleQueue[str | None]) -> None:
    for line in output:
        lines.put(line)
    lines.put(None)
