"""The command `elasticdl`: its commands, and what happens to an error.

    python -m elasticdl train --model_zoo=model_zoo …       # the console script `elasticdl` runs the same `main`

Exit codes: 0 done; 1 something can't be reached or refuses, or a job in this process has failed; 2 wrong usage; 130
interrupted.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import typer
from rich.console import Console
from rich.text import Text
from typer.core import TyperGroup

from elasticdl.client import commands, data, zoo
from elasticdl.client.flags import commandline
from elasticdl.errors import ElasticDLError
from elasticdl.job import JobMode
from tidewater.cli.errors import exit_code
from tidewater.kube.errors import ErrorWithRemedy


class Root(TyperGroup):
    """The root command. It prints an error for the user as a sentence, with its remedy."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command that was asked for."""
        try:
            return super().invoke(ctx)
        except ErrorWithRemedy as error:
            report(error.message, error.remedy)
            raise typer.Exit(exit_code(error)) from None
        except ElasticDLError as error:
            report(error.message, error.remedy)
            raise typer.Exit(error.exit_code) from None


app = typer.Typer(
    name="elasticdl",
    cls=Root,
    help="Training by a master that hands out tasks of data, parameter servers, and workers that may come and go.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for _mode in JobMode:
    commands.register(app, _mode)
app.add_typer(zoo.app, name="zoo")
app.add_typer(data.app, name="data")


@app.callback()
def elasticdl() -> None:
    """Make the root a group."""


def report(message: str, remedy: str) -> None:
    """Print an error on standard error: the sentence, then the remedy."""
    console = Console(stderr=True, highlight=False, markup=False, emoji=False, soft_wrap=True)
    console.print(Text.assemble(("error: ", "bold red"), message))
    if remedy:
        console.print(Text(remedy))


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line."""
    app(commandline.words(sys.argv[1:] if arguments is None else arguments), prog_name="elasticdl")
