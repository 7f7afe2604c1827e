"""`tidewater top`: the loop, and what it prints on. Everything that is decided or drawn is decided elsewhere.

On a terminal, one screen is drawn again and again until Ctrl-C. Elsewhere, one snapshot after another is printed.
`--once` prints one snapshot, which takes two looks: a rate needs two.
"""

from __future__ import annotations

import contextlib
import signal
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.live import Live
from rich.text import Text

from tidewater.cli import naming
from tidewater.cli.errors import UsageError
from tidewater.cli.job.lookup import complete_job
from tidewater.cli.options import command
from tidewater.cli.session import Clock, Session, Terminal
from tidewater.cli.top import recording, view
from tidewater.cli.top.model import Model, advance
from tidewater.cli.top.read import Wanted, look
from tidewater.kube.cluster import ALL_NAMESPACES, Cluster
from tidewater.kube.errors import ClusterError, NotFound

ONCE_SECONDS = 1.0
"""Between the two looks of `--once`."""


@dataclass(frozen=True)
class Options:
    """How to show it."""

    all_namespaces: Annotated[bool, typer.Option("--all-namespaces", "-A", help="The jobs of all namespaces.")] = False
    once: Annotated[bool, typer.Option("--once", help="Print one snapshot and end.")] = False
    interval: Annotated[float, typer.Option(min=0.5, max=3600, help="Seconds from one look to the next.")] = 2.0
    record: Annotated[
        Path | None,
        typer.Option(
            dir_okay=False,
            show_default=False,
            help="Write what is seen to this file too: .txt has a frame for everything that happens, .cast is a "
            "recording for asciinema, .svg a picture of the last frame.",
        ),
    ] = None


def register(app: typer.Typer) -> None:
    """Add the command."""
    command(app, "top")(top)


def top(
    job: Annotated[
        str | None,
        typer.Argument(
            help="Name of a job. Without it: all jobs of the namespace.",
            autocompletion=complete_job,
            show_default=False,
            callback=naming.job,
        ),
    ] = None,
    *,
    options: Options,
    session: Session,
) -> None:
    """Watch jobs: workers as they come and go, loss, throughput, recoveries and goodput.

    The numbers are the workers' own metrics, read through the API server: this needs the right to `get` `pods/proxy`.
    """
    if job and options.all_namespaces:
        raise UsageError(f"{job} and --all-namespaces exclude each other: name the job's namespace with -n")
    wanted = Wanted(job or "", ALL_NAMESPACES if options.all_namespaces else session.cluster.namespace)
    console = Terminal(highlight=False, markup=False, emoji=False)
    if not console.is_terminal:
        console = Terminal(highlight=False, markup=False, emoji=False, width=recording.SIZE.columns)
    with _until_interrupted():
        watch(session.cluster, wanted, options, console, session.clock)


@contextlib.contextmanager
def _until_interrupted() -> Iterator[None]:
    """Take Ctrl-C as the usual end, and SIGTERM too: `timeout 60 tidewater top …` ends its recording well."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    except KeyboardInterrupt:
        pass
    finally:
        signal.signal(signal.SIGTERM, before)


def watch(cluster: Cluster, wanted: Wanted, options: Options, console: Console, clock: Clock) -> None:
    """Show the jobs until Ctrl-C, or until the one job that is wanted has ended.

    Raises:
        ClusterError: the first look fails. Later the last model stays, together with what is wrong.
        NotFound: the one job that is wanted does not exist, or has been deleted.
        UsageError: the recording cannot be written.
    """
    shown = models(cluster, wanted, ONCE_SECONDS if options.once else options.interval, clock)
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
            frame = view.screen(model, view.Size(console.width, console.height - 1))
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
            model = advance(model, look(cluster, wanted, clock.now(), model.answers))
        except NotFound:
            raise
        except ClusterError as error:
            model = replace(model, changed=not model.trouble, trouble=error.message)
