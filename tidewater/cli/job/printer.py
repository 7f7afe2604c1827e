"""Prints lines of logs, each behind its worker's name in the worker's colour.

    worker-0 | step=120 epoch=3 world_size=2 …
    worker-1 | step=120 epoch=3 world_size=2 …

A worker keeps its colour for the life of the job, also after its pod is replaced.
"""

from __future__ import annotations

from dataclasses import dataclass

from tidewater.cli.job import waiting
from tidewater.cli.job.lines import Line
from tidewater.cli.session import Session
from tidewater.elasticjob import names
from tidewater.kube.cluster import Object

COLOURS = (36, 33, 32, 35, 34, 31, 96, 93, 92, 95, 94, 91)
"""SGR codes: https://en.wikipedia.org/wiki/ANSI_escape_code#Colors"""

CARRIAGE_RETURN = "\r"

_TYPES_APART = 4


@dataclass(frozen=True)
class Layout:
    """How lines look. `prefix`: the worker's name before each line; `timestamps`: its time before that."""

    job: str
    types: tuple[str, ...]
    width: int
    prefix: bool = True
    timestamps: bool = False
    colour: bool = False

    def line(self, line: Line) -> str:
        """Return a line as it is printed, without its end."""
        stamp = f"{line.stamp} " if self.timestamps and line.stamp else ""
        if not self.prefix:
            return f"{stamp}{line.text}"
        name = self.short(line.pod)
        begin = f"{name:<{self.width}} |"
        if self.colour:
            begin = f"\x1b[{self.code(name)}m{begin}\x1b[0m"
        # What a terminal would show of a progress bar: what follows a carriage return covers the name.
        return f"{begin} {stamp}{line.text.rpartition(CARRIAGE_RETURN)[2]}"

    def short(self, pod: str) -> str:
        """Return a pod's name without the job's, which is the same in all lines."""
        return pod.removeprefix(f"{self.job}-")

    def code(self, short: str) -> int:
        """Return the colour of a worker by its type and index."""
        type, _, index = short.partition("-")  # a single pod has no index
        apart = self.types.index(type) * _TYPES_APART if type in self.types else 0
        return COLOURS[(apart + (int(index) if index.isdigit() else 0)) % len(COLOURS)]


def layout(job: Object, *, prefix: bool, timestamps: bool, colour: bool) -> Layout:
    """Return the layout for a job: as wide as its longest worker's name can be."""
    name = str(job["metadata"]["name"])
    types = [names.WORKER, *(each for each in job["spec"].get("replicaSpecs") or {} if each != names.WORKER)]
    _, high = waiting.bounds(job)
    numbered = (waiting.status_of(job).get("replicaStatuses") or {}).get(names.WORKER, {}).get("nextIndex", 0)
    last = max(high * waiting.pods_each(job) - 1, numbered - 1, 0)
    shorts = [f"{types[0].lower()}-{last}", *(f"{each.lower()}-0" for each in types[1:])]
    return Layout(
        job=name,
        types=tuple(each.lower() for each in types),
        width=max(map(len, shorts)),
        prefix=prefix,
        timestamps=timestamps,
        colour=colour,
    )


class Printer:
    """Writes to standard output, and what a script does not read to standard error."""

    def __init__(self, session: Session, layout: Layout) -> None:
        self._session = session
        self._layout = layout

    def line(self, line: Line) -> None:
        """Print a line. Much faster than rich, which would also read markup into the users' lines."""
        self._session.out.file.write(self._layout.line(line) + "\n")

    def note(self, text: str) -> None:
        """Tell something about the workers that is no line of a log."""
        self.flush()
        self._session.note(f"-- {text}")

    def flush(self) -> None:
        """Let the lines be seen."""
        self._session.out.file.flush()
