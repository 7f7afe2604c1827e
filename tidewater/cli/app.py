"""The command `tidewater`: its groups of commands, and what happens to an error.

    python -m tidewater.cli job list        # the console script `tidewater` runs the same `main`

Exit codes: 0 done; 1 the cluster can't be asked, or refuses, what was waited for can't come any more, or `doctor` found
a problem; 2 wrong usage; 3 the timeout of `job wait`, `job delete` or `job scale --wait` has passed; 4 the job that
`job wait` or `job scale --wait` waited for has failed; 130 interrupted.
"""

from __future__ import annotations

import contextlib
import os
import sys
from typing import Any

import typer
from rich.console import Console
from rich.text import Text
from typer.core import TyperGroup

from tidewater.cli import install
from tidewater.cli.doctor import app as doctor
from tidewater.cli.errors import exit_code
from tidewater.cli.job import commands
from tidewater.cli.top import app as top
from tidewater.kube.errors import ErrorWithRemedy

HELP = {"help_option_names": ["-h", "--help"]}


class Root(TyperGroup):
    """The root command. It prints an ErrorWithRemedy as a sentence, and ends quietly when its output is closed."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command that was asked for."""
        try:
            return super().invoke(ctx)
        except ErrorWithRemedy as error:
            report(error)
            raise typer.Exit(exit_code(error)) from None
        except BrokenPipeError:
            discard_output()
            raise typer.Exit(0) from None


app = typer.Typer(
    name="tidewater",
    cls=Root,
    help="Elastic training jobs on Kubernetes: submit, watch and resize them. Needs a kubeconfig and nothing else.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings=HELP,
)
app.add_typer(commands.app, name="job")
top.register(app)
doctor.register(app)
install.register(app)


@app.callback()
def tidewater() -> None:
    """Make the root a group, also if it had one command only."""


def report(error: ErrorWithRemedy) -> None:
    """Print an error on standard error: the sentence, then the remedy."""
    console = Console(stderr=True, highlight=False, markup=False, emoji=False, soft_wrap=True)
    console.print(Text.assemble(("error: ", "bold red"), error.message))
    if error.remedy:
        console.print(Text(error.remedy))


def discard_output() -> None:
    """Let what is still in the buffer of standard output go nowhere, instead of failing when Python exits."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def main() -> None:
    """Run the command line."""
    app(prog_name="tidewater")
