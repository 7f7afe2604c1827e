"""The command `tidewater`: its groups of commands, and what happens to an error.

    python -m tidewater.cli job list        # the console script `tidewater` runs the same `main`

Exit codes: 0 done; 1 the cluster can't be asked, or refuses, what was waited for can't come any more, or `doctor` found
a problem or could not check something; 2 wrong usage; 3 the timeout of `job wait`, `job delete` or `job scale --wait`
has passed; 4 the job that `job wait` or `job scale --wait` waited for has failed; 130 interrupted.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import os
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from tidewater.cli.doctor import app as doctor
from tidewater.cli.errors import UsageError, exit_code
from tidewater.cli.job import commands
from tidewater.cli.options import Group, command
from tidewater.cli.rehearse import app as rehearse
from tidewater.cli.run import app as run
from tidewater.cli.show import yaml_of
from tidewater.cli.top import app as top
from tidewater.elasticjob.install import Installation, Program, definition, manifests
from tidewater.elasticjob.install.pods import IMAGE, NAMESPACE
from tidewater.kube.errors import ErrorWithRemedy
from tidewater.kube.kinds import DNS_LABEL, LONGEST_LABEL

HELP = {"help_option_names": ["-h", "--help"]}


class Root(Group):
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
run.register(app)
rehearse.register(app)


def print_version(wanted: bool) -> None:
    """Print the version that pip has installed, or the folder of a checkout that is not installed; then end."""
    if wanted:
        try:
            found = importlib.metadata.version("tidewater")
        except importlib.metadata.PackageNotFoundError:
            found = f"from the checkout {Path(__file__).parents[2]}"
        typer.echo(f"tidewater {found}")
        raise typer.Exit


@app.callback()
def tidewater(
    version: Annotated[
        bool, typer.Option("--version", callback=print_version, is_eager=True, help="Print the version and end.")
    ] = False,
) -> None:
    """Read the flags before the command. `--version` has ended the program in its callback."""


@dataclass(frozen=True)
class Duties:
    """What the controller looks after, and how."""

    namespaces: Annotated[
        str,
        typer.Option(
            help="Namespaces of the jobs that it looks after, with commas between them; it then has no rights on jobs "
            "and pods of others. They must exist. Default: all namespaces.",
            show_default=False,
        ),
    ] = ""
    fixed_nodes: Annotated[
        bool,
        typer.Option("--fixed-nodes", help="No nodes come for pods that wait: jobs of a queue wait until they fit."),
    ] = False
    taint_bad_nodes: Annotated[
        bool,
        typer.Option("--taint-bad-nodes", help="Taint nodes on which workers end three times by an error of a GPU."),
    ] = False

    @property
    def served(self) -> tuple[str, ...]:
        """Return the namespaces, each once.

        Raises:
            UsageError: one of them is no name of a namespace.
        """
        found = tuple(dict.fromkeys(self.namespaces.split(","))) if self.namespaces else ()
        for each in found:
            if not re.fullmatch(DNS_LABEL, each) or len(each) > LONGEST_LABEL:
                raise UsageError(
                    f"--namespaces {self.namespaces}: {each!r} is no name of a namespace",
                    "Name namespaces that exist, with commas between them: --namespaces vision,speech",
                )
        return found


@command(app, "install")
def install(
    duties: Duties,
    namespace: Annotated[str, typer.Option("--namespace", "-n", help="Namespace of the controller.")] = NAMESPACE,
    image: Annotated[
        str,
        typer.Option(
            help="Image with Python 3.11 or later; if it lacks the controller's packages, they are installed at start.",
            show_default=False,
        ),
    ] = "",
    replicas: Annotated[int, typer.Option(min=1, help="Copies of the controller; one leads, the others wait.")] = 2,
    crd_only: Annotated[bool, typer.Option("--crd-only", help="Print the CRD and nothing else.")] = False,
) -> None:
    """Print CRD, rights and Deployment of the controller: tidewater install | kubectl apply -f -"""
    # The same objects that the Pulumi program makes; this needs neither a cluster nor a kubeconfig.
    if crd_only:
        typer.echo(rendered([definition()]))
        return
    try:
        program = Program.read()
    except FileNotFoundError as error:
        raise UsageError(f"the controller can't be packed: {error}", "Install tidewater from its repository.") from None
    wanted = Installation(
        program=program,
        namespace=namespace,
        image=image or IMAGE,
        replicas=replicas,
        fixed_nodes=duties.fixed_nodes,
        taint_bad_nodes=duties.taint_bad_nodes,
        namespaces=duties.served,
    )
    typer.echo(rendered(manifests(wanted)))


def rendered(objects: list[dict[str, Any]]) -> str:
    """Return objects as one stream of YAML documents, in their order, without the last end of line."""
    return "\n---\n".join(yaml_of(each) for each in objects)


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
