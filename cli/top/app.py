"""`tidewater top`: the loop, and what it prints on. Everything that is decided or drawn is decided elsewhere.

On a terminal, one screen is drawn again and again until Ctrl-C. Elsewhere, one snapshot after another is printed.
`--once` prints one snapshot, which takes two looks: a rate needs two.
"""

from __future__ import annotations

import contextlib
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Protocol

from rich.console import Console
from rich.live import Live
from rich.text import Text

from cli.errors import ClusterError, NotFound, TimeoutReached
from cli.kube import Cluster
from cli.top import recording, view
from cli.top.model import Model, advance
from cli.top.read import Wanted, look

ONCE_SECONDS = 1.0
"""Between the two looks of `--once`."""


class Clock(Protocol):
    """Time, and the wait between two looks."""

    def now(self) -> datetime:
        """Return the time in UTC."""

    def sleep(self, seconds: float) -> None:
        """Return after `seconds`."""


class RealClock:
    """The machine's clock."""

    def now(self) -> datetime:
        """See ``Clock.now``."""
        return datetime.now(UTC)

    def sleep(self, seconds: float) -> None:
        """See ``Clock.sleep``."""
        time.sleep(seconds)


@dataclass(frozen=True)
class Options:
    """How to show it."""

    interval_seconds: float = 2.0
    once: bool = False
    record: Path | None = None


def watch(cluster: Cluster, wanted: Wanted, options: Options, console: Console, clock: Clock) -> None:
    """Show the jobs until Ctrl-C, or until the one job that is wanted has ended.

    Raises:
        ClusterError: the first look fails. Later the last model stays, together with what is wrong.
        NotFound: the one job that is wanted does not exist, or has been deleted.
        UsageError: the recording cannot be written.
    """
    shown = models(cluster, wanted, ONCE_SECONDS if options.once else options.interval_seconds, clock)
    if options.once:
        shown = iter(deque(islice(shown, 2), maxlen=1))
    with contextlib.ExitStack() as stack:
        record = stack.enter_context(recording.recorder(options.record, clock.now())) if options.record else None
        live = None
        if console.is_terminal and not options.once:
            live = stack.enter_context(Live(console=console, auto_refresh=False, vertical_overflow="crop"))
        for model in shown:
            if record:
                record.add(view.screen(model, recording.SIZE), model.at, changed=model.changed)
            frame = view.screen(model, view.Size(console.width, console.height))
            if live:
                live.update(frame, refresh=True)
            else:
                console.print(frame, Text())


def models(cluster: Cluster, wanted: Wanted, interval: float, clock: Clock) -> Iterator[Model]:
    """Yield one model after another; end when the one job that is wanted has ended."""
    model = advance(None, look(cluster, wanted, clock.now()))
    while True:
        yield model
        if wanted.job and all(each.job.ended for each in model.jobs):
            return
        clock.sleep(interval)
        try:
            model = advance(model, look(cluster, wanted, clock.now()))
        except NotFound:
            raise
        except (ClusterError, TimeoutReached) as error:
            model = replace(model, changed=not model.trouble, trouble=error.message)
