"""`tidewater rehearse`: train a script undisturbed, then with faults, and compare everything.

    tidewater rehearse --samples 500 --report rehearsal.json my_script.py --lr 0.1

Exit code 1 when a promise does not hold, 0 when all do.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from tidewater.cli.errors import CliError, UsageError
from tidewater.cli.options import command
from tidewater.cli.rehearse.compare import Finding, Promise
from tidewater.cli.rehearse.faults import LEAST_STEPS, disturbed, finished, undisturbed
from tidewater.cli.rehearse.promises import Outcome, Runs, judge, report, table
from tidewater.cli.rehearse.trial import Failure, Fallen, Setup, Trial
from tidewater.cli.run import app as run
from tidewater.cli.run import etcd
from tidewater.cli.run.program import Source, checked, prepared
from tidewater.cli.session import Terminal
from tidewater.elastic.launch.farm import Farm, FarmError

_STEADY = (
    *("--batch-policy", "keep", "--compare-every", "0", "--checkpoint-minutes", "0", "--evaluate-every", "1"),
    *("--epochs", "1000000", "--min-step-seconds", "0", "--processes", "1", "--metrics-port", "0"),
)
"""Flags that make the runs comparable. The rehearsal compares the states itself, and ends the runs after some steps."""
ZYGOTE = "tidewater.elastic.rehearsal.zygote"
_PATIENT = ("--heartbeat-seconds", "20")
"""On a busy machine no worker of an undisturbed run may be taken for frozen."""


@dataclass(frozen=True)
class Options:
    """The flags of `tidewater rehearse`."""

    workers: Annotated[int, typer.Option("--workers", "-w", help="Number of workers.")] = 2
    steps: Annotated[int, typer.Option(help="Steps of each run.")] = 36
    samples: Annotated[
        int,
        typer.Option(
            help="Sample the data set down to this number; by default to a third of what the steps use, and one.",
            show_default=False,
        ),
    ] = 0
    report: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Also write the outcome there, as JSON.", show_default=False)
    ] = None
    patience: Annotated[
        float, typer.Option(metavar="SECONDS", help="A run in which nothing happens for so long is stuck.")
    ] = 120.0
    etcd: Annotated[
        str, typer.Option(help="URLs of an etcd that runs; by default one is started.", show_default=False)
    ] = ""


def register(app: typer.Typer) -> None:
    """Add the command."""
    command(app, "rehearse", context_settings=run.PASS_ON)(rehearse)


def rehearse(
    script: Annotated[
        str, typer.Argument(help="Training script, or -m MODULE, with its own flags after it.", show_default=False)
    ],
    options: Options,
    source: Source,
    flags: Annotated[list[str] | None, typer.Argument(help="The script's own flags.", show_default=False)] = None,
) -> None:
    """Try on this machine whether what the runtime promises holds for a script, before GPUs are paid for.

    Trains it undisturbed, then with a kill, a join, a freeze, a leave and a stop, and compares everything. Takes about
    a minute for a small model. Needs an etcd in PATH, and neither root nor a cluster.
    """
    program = checked(script, flags or [], source, "tidewater rehearse", {"--etcd"})
    check(options)
    began, console = time.monotonic(), Terminal(highlight=False, markup=False, emoji=False, soft_wrap=True)

    def say(text: str) -> None:
        console.print(Text(f"-- {time.monotonic() - began:5.1f} s  {text}", style="dim"))

    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(etcd.removed_at_the_end())
        ready = prepared(program, folder, say)
        if {"-h", "--help"} & set(program.flags):
            raise typer.Exit(subprocess.call(ready.line, env=ready.environment(os.environ)))
        store = etcd.existing(options.etcd) if options.etcd else stack.enter_context(etcd.started(etcd.program()))
        environment = environment_of(program.name, options, store.url, ready.environment(os.environ))
        say("torch is imported, once for all workers")
        farm = stack.enter_context(farm_of(folder, environment))
        command = command_of(ready.arguments, options)
        setup = Setup(folder, farm, command, environment, options.samples, options.patience)
        outcome = rehearsed(setup, options, say)
    for text, style in table(outcome):
        console.print(Text(text, style=style))
    if options.report:
        about = {"script": program.script, "flags": list(program.flags), "workers": options.workers}
        options.report.write_text(json.dumps(report(outcome, about), indent=2) + "\n")
    raise typer.Exit(0 if outcome.held else 1)


def check(options: Options) -> None:
    """Raise UsageError for what can be known to be wrong before anything starts."""
    if options.workers < 2:
        raise UsageError(f"--workers is {options.workers}, the least is 2: one of them is killed")
    if options.steps < LEAST_STEPS:
        raise UsageError(f"--steps is {options.steps}, the least is {LEAST_STEPS}: the faults need so many")
    folder = options.report and options.report.absolute().parent
    if folder and not (folder.is_dir() and os.access(folder, os.W_OK)):
        raise UsageError(f"--report is {options.report}, and {folder} is no folder that you can write to")
    if options.samples < 0:
        raise UsageError(f"--samples is {options.samples}, the least is 1")


@contextlib.contextmanager
def farm_of(folder: Path, environment: Mapping[str, str]) -> Iterator[Farm]:
    """Yield the farm of the workers. Raise CliError if it can't import torch."""
    try:
        with Farm(ZYGOTE, folder, environment) as farm:
            yield farm
    except FarmError as error:
        raise CliError(str(error), "The workers need torch and numpy, in the environment of this command.") from None


def command_of(arguments: Sequence[str], options: Options) -> list[str]:
    """Return the arguments of all workers: those of `launch.project`. Its last flags count."""
    return [*arguments, *_STEADY, "--max-steps", str(options.steps)]


def environment_of(name: str, options: Options, etcd_url: str, environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that all workers have. They train on CPUs, where sums are reproducible."""
    common = run.environment_of(name, run.Options(workers=options.workers), etcd_url, environ)
    return {**common, "CUDA_VISIBLE_DEVICES": ""}


def rehearsed(setup: Setup, options: Options, say: Callable[[str], None]) -> Outcome:
    """Make the runs and compare them."""
    names = [f"worker-{index}" for index in range(options.workers)]
    failures: list[Finding] = []
    sizes = {"several": options.workers, "again": options.workers, "one": 1}
    quiet = replace(setup, command=[*setup.command, *_PATIENT])
    trials = {name: Trial(quiet, name, min_workers=size) for name, size in sizes.items()}
    trials["faults"] = Trial(setup, "faults", min_workers=1)
    with contextlib.ExitStack() as stack:
        for trial in trials.values():
            stack.callback(trial.end)
        say(f"three runs without faults: twice {options.workers} workers, and one alone")
        with _caught(failures, Promise.TRAINS):
            for name, size in sizes.items():
                undisturbed(trials[name], names[:size], options.steps)
            for name in sizes:
                finished(trials[name])
        if not failures:
            say("a run with faults")
            with _caught(failures, Promise.GOES_ON, trials["faults"]):
                disturbed(trials["faults"], options.workers, options.steps, say)
    return judge(Runs(**{name: trial.records for name, trial in trials.items()}), failures)


@contextlib.contextmanager
def _caught(failures: list[Finding], promise: Promise, trial: Trial | None = None) -> Iterator[None]:
    """Make a finding of the failure of a run."""
    try:
        yield
    except Failure as failure:
        where = trial.records.after(trial.records.last + 1) if trial else "in a run without faults"
        advice = "look at the sentence above: the worker's last lines say why"
        lines: Sequence[str] = failure.lines if isinstance(failure, Fallen) else ()
        failures.append(Finding(promise, str(failure), "\n    ".join([where, *lines]), advice))
