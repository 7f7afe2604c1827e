"""The commands that make a job: one for each mode, with a parameter for each flag.

    for mode in JobMode: commands.register(app, mode)

Every value comes as a text, so that `commandline.asked` finds all mistakes at once; typer would stop at the first one.
"""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Annotated, Any

import typer

from elasticdl.client.flags import commandline, table
from elasticdl.client.flags.mistakes import WrongCommand
from elasticdl.client.flags.request import Asked, Target
from elasticdl.client.job import models, submit
from elasticdl.job import JobArgs, JobMode, Strategy, log_to
from tidewater.cli import session
from tidewater.kube import kubeconfig
from tidewater.kube.cluster import Cluster
from tidewater.kube.errors import NoKubeconfig, Unreachable
from tidewater.kube.kubeconfig import Access

IN_CLUSTER = "KUBERNETES_SERVICE_HOST"
"""A variable of every pod. Where it is set, a client may use the pod's service account."""

_HELP = {
    JobMode.TRAIN: "Train a model of the zoo.",
    JobMode.EVALUATE: "Evaluate a checkpoint.",
    JobMode.PREDICT: "Predict with a checkpoint.",
}
_MORE = (
    "IMAGE is the same as --image_name. A flag's name may have dashes instead of underscores. "
    "packages/elasticdl/docs/elasticdl.md has all of it."
)


def run_here(args: JobArgs) -> int:
    """Run a job in this process, with its log on standard output; return its exit code."""
    # Without torch, which takes seconds to import, everything but this works.
    from elasticdl import local

    log_to(sys.stdout, args.log_level)
    return local.run(args)


@dataclass(frozen=True)
class Tools(session.Tools):
    """What the commands use of the world, which tests replace."""

    run_here: Callable[[JobArgs], int] = run_here
    steps: submit.Steps = field(default_factory=lambda: submit.Steps(typer.echo))


def register(app: typer.Typer, mode: JobMode) -> None:
    """Add the command of a mode."""

    def command(context_of_typer: typer.Context, **given: str | None) -> None:
        texts = {name: text for name, text in given.items() if text is not None}
        tools = context_of_typer.find_object(Tools) or Tools()
        run(commandline.asked(mode, texts, context_of_typer.args), tools)

    own = inspect.Parameter("context_of_typer", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=typer.Context)
    parameters = [own, *(_parameter(flag) for flag in table.of(mode))]
    command.__annotations__ = {each.name: each.annotation for each in parameters}
    command.__dict__["__signature__"] = inspect.Signature(parameters)
    app.command(
        mode.value,
        help=f"{_HELP[mode]} {_MORE}",
        options_metavar="[IMAGE] [FLAGS]",
        context_settings={"ignore_unknown_options": True, "allow_extra_args": True},
    )(command)


def run(asked: Asked, tools: Tools) -> None:
    """Do what was asked for.

    Raises:
        CliError, ElasticDLError: it can't be done; the text says why.
    """
    if asked.args.distribution_strategy is Strategy.LOCAL:
        if mistakes := models.mistakes(asked.args):
            raise WrongCommand(mistakes)
        raise typer.Exit(tools.run_here(asked.args))
    cluster = None
    try:
        cluster = connected(asked.target, tools)
        submit.submit(asked, cluster, tools.steps)
    except (NoKubeconfig, Unreachable) as error:
        wrong_flag = isinstance(error, NoKubeconfig) and (asked.target.kubeconfig or asked.target.context)
        if wrong_flag or not submit.needs_no_cluster(asked):
            raise
        namespace = asked.target.namespace or (cluster.namespace if cluster else "")
        alone = replace(asked, target=replace(asked.target, namespace=namespace))
        submit.submit(alone, None, tools.steps)


def connected(target: Target, tools: Tools) -> Cluster:
    """Return the cluster that the flags, the environment and the kubeconfig name.

    Raises:
        NoKubeconfig: there is none, or it is wrong.
    """
    access = Access(kubeconfig=target.kubeconfig, context=target.context, namespace=target.namespace)
    if not target.in_cluster:
        kubeconfig.load(access, {name: value for name, value in os.environ.items() if name != IN_CLUSTER})
    return tools.connect(access)


def _parameter(flag: table.Flag) -> inspect.Parameter:
    shown = f" Default: {flag.default}." if flag.default else ""
    option = typer.Option(
        f"--{flag.name}",
        help=flag.help + shown,
        metavar=flag.form,
        rich_help_panel=flag.panel,
        show_default=False,
    )
    kind: Any = Annotated[str | None, option]
    return inspect.Parameter(flag.name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=kind)
