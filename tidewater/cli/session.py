"""What a command has at hand: the cluster that its flags name, the time, and where to print.

    def list_jobs(session: Session) -> None:
        session.print(session.cluster.table(JOBS))

The cluster is connected to when it is first used: `--help` and `install` need none, and `--dry-run` does without one.
"""

from __future__ import annotations

import os
import shlex
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from typing import Annotated, Any, Protocol

import typer
from rich.console import Console
from rich.text import Text

from tidewater.cli import naming
from tidewater.kube.cluster import Cluster
from tidewater.kube.errors import ErrorWithRemedy
from tidewater.kube.kinds import NAMESPACES
from tidewater.kube.kubeconfig import Access

_PANEL = "Which cluster"


class Clock(Protocol):
    """Time, which tests replace."""

    def now(self) -> datetime:
        """Return the time of day, in UTC."""

    def monotonic(self) -> float:
        """Return seconds that only grow."""

    def sleep(self, seconds: float) -> None:
        """Wait."""


class SystemClock:
    """The machine's clock."""

    def now(self) -> datetime:
        """Return the time of day, in UTC."""
        return datetime.now(UTC)

    def monotonic(self) -> float:
        """Return seconds that only grow."""
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        """Wait."""
        time.sleep(seconds)


def connect(access: Access) -> Cluster:
    """Return the cluster that the flags, the environment and the kubeconfig name. Nothing is sent yet.

    Raises:
        NoKubeconfig: there is none, or it is wrong.
    """
    # The HTTP client takes longer to import than everything else; `--help` does without it.
    from tidewater.kube import server

    return server.connect(access)


@dataclass(frozen=True)
class Tools:
    """What a command uses of the world."""

    connect: Callable[[Access], Cluster] = connect
    clock: Clock = field(default_factory=SystemClock)


def complete_namespace(context: typer.Context, incomplete: str) -> list[str]:
    """Return the namespaces that begin with what has been typed."""
    try:
        listing = cluster_of(context).list(NAMESPACES)
    except ErrorWithRemedy:
        return []
    found = [str(each["metadata"]["name"]) for each in listing.items]
    return [name for name in found if name.startswith(incomplete)]


def complete_context(context: typer.Context, incomplete: str) -> list[str]:
    """Return the contexts of the kubeconfig that begin with what has been typed."""
    from tidewater.kube import kubeconfig

    try:
        found = kubeconfig.contexts(Access(kubeconfig=context.params.get("kubeconfig") or ""), os.environ)
    except ErrorWithRemedy:
        return []
    return [name for name in found if name.startswith(incomplete)]


@dataclass(frozen=True)
class Target:
    """The flags that every command about a cluster has."""

    namespace: Annotated[
        str,
        typer.Option(
            "--namespace",
            "-n",
            help="Namespace; by default that of the kubeconfig's context.",
            autocompletion=complete_namespace,
            callback=naming.namespace,
            rich_help_panel=_PANEL,
            show_default=False,
        ),
    ] = ""
    context: Annotated[
        str,
        typer.Option(
            help="Context of the kubeconfig; by default its current one.",
            autocompletion=complete_context,
            rich_help_panel=_PANEL,
            show_default=False,
        ),
    ] = ""
    kubeconfig: Annotated[
        str,
        typer.Option(
            help="Kubeconfig file; by default $KUBECONFIG, then ~/.kube/config.",
            rich_help_panel=_PANEL,
            show_default=False,
        ),
    ] = ""

    @property
    def access(self) -> Access:
        """Return the flags as `connect` takes them."""
        return Access(kubeconfig=self.kubeconfig, context=self.context, namespace=self.namespace)

    @property
    def repeated(self) -> str:
        """Return the flags that were given, each after a space, for a command in a hint; kubectl has the same ones."""
        given = {"-n": self.namespace, "--context": self.context, "--kubeconfig": self.kubeconfig}
        return "".join(f" {flag} {shlex.quote(value)}" for flag, value in given.items() if value)


def cluster_of(context: typer.Context) -> Cluster:
    """Return the cluster of a command line that is being completed."""
    given: dict[str, Any] = context.params
    access = Access(**{key: given.get(key) or "" for key in ("kubeconfig", "context", "namespace")})
    return (context.find_object(Tools) or Tools()).connect(access)


class Terminal(Console):
    """A console that leaves a broken pipe to `app`: `tidewater job list | head -1` is no error."""

    def on_broken_pipe(self) -> None:
        """Raise BrokenPipeError."""
        raise BrokenPipeError


@dataclass(frozen=True)
class Session:
    """One command: its cluster, its clock, its output."""

    target: Target
    tools: Tools

    @cached_property
    def cluster(self) -> Cluster:
        """Return the cluster.

        Raises:
            NoKubeconfig: there is none.
        """
        return self.tools.connect(self.target.access)

    @property
    def clock(self) -> Clock:
        """Return the clock."""
        return self.tools.clock

    @cached_property
    def out(self) -> Console:
        """Return standard output: what was asked for."""
        return Terminal(highlight=False, markup=False, emoji=False, soft_wrap=True)

    @cached_property
    def err(self) -> Console:
        """Return standard error: what a script does not read."""
        return Terminal(stderr=True, highlight=False, markup=False, emoji=False, soft_wrap=True)

    def note(self, text: str) -> None:
        """Print a line for people on standard error."""
        self.err.print(Text(text, style="dim"))

    @contextmanager
    def progress(self, text: str) -> Iterator[Callable[[str], None]]:
        """Show what is being waited for; yield a function that changes the text. Each text once if no terminal."""
        if self.err.is_terminal:
            with self.err.status(Text(text)) as status:
                yield lambda changed: status.update(Text(changed))
            return
        shown = [text]
        self.note(text)

        def show(changed: str) -> None:
            if changed != shown[-1]:
                shown.append(changed)
                self.note(changed)

        yield show
