"""`tidewater run`: what is checked before anything starts, where things are, and what is said at the end.

    tidewater run --workers 3 my_script.py --epochs 5

The exit code is that of the workers: 0 the job has finished; 143 they have left; another one: a worker has failed in a
way that a replacement would repeat, or could not save the state.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Annotated

import typer

from tidewater.cli.errors import UsageError
from tidewater.cli.options import command
from tidewater.cli.run.program import Source, checked, prepared
from tidewater.contract import env
from tidewater.contract.exit_codes import FINISHED, LEFT

FOLDER = "tidewater-runs"
HOST = "127.0.0.1"
_LAST_PORT = 65535
_OWN = ("--etcd", "--job", "--metrics-port")
"""Flags that scripts and this command have."""
PASS_ON = {"allow_interspersed_args": False, "ignore_unknown_options": True}
"""What follows the script is the script's."""


@dataclass(frozen=True)
class Options:
    """The flags of `tidewater run`."""

    workers: Annotated[int, typer.Option("--workers", "-w", help="Number of workers.")] = 2
    job: Annotated[str, typer.Option(help="Name of the job; by default that of the script.", show_default=False)] = ""
    etcd: Annotated[
        str,
        typer.Option(
            help="URLs of an etcd that runs; by default one is started, and its data is removed at the end.",
            show_default=False,
        ),
    ] = ""
    replace_after: Annotated[
        float, typer.Option(metavar="SECONDS", help="Time without a lost worker, before another one takes its place.")
    ] = 3.0
    metrics_port: Annotated[
        int, typer.Option(help="Port of the first worker's metrics; the others have the next ones. 0: none.")
    ] = 0


def register(app: typer.Typer) -> None:
    """Add the command."""
    command(app, "run", context_settings=PASS_ON)(run)


def run(
    script: Annotated[
        str, typer.Argument(help="Training script, or -m MODULE, with its own flags after it.", show_default=False)
    ],
    options: Options,
    source: Source,
    flags: Annotated[list[str] | None, typer.Argument(help="The script's own flags.", show_default=False)] = None,
) -> None:
    """Train a script with several workers on this machine; lose one, and see the others go on.

    Needs an etcd in PATH, and neither root nor a cluster.
    """
    program = checked(script, flags or [], source, "tidewater run", _OWN)
    check(options)
    if program.code:
        _refuse_relative(checkpoints_of(program.flags, {env.CHECKPOINTS: "", **os.environ}))
    from tidewater.cli.run import etcd
    from tidewater.cli.run.output import Output
    from tidewater.cli.run.workers import Crew, Orders

    with contextlib.ExitStack() as stack:
        output = Output(options.workers)
        new = stack.enter_context(etcd.removed_at_the_end()) if program.code or program.packages else Path.cwd()
        ready = prepared(program, new, output.note)
        if {"-h", "--help"} & set(program.flags):
            raise typer.Exit(subprocess.call(ready.line, env=ready.environment(os.environ)))
        store = etcd.existing(options.etcd) if options.etcd else stack.enter_context(etcd.started(etcd.program()))
        environment = environment_of(program.name, options, store.url, ready.environment(os.environ))
        checkpoints = checkpoints_of(program.flags, environment)
        output.note(f"etcd: {store.url}" + (f", its data in {store.folder} until the end" if store.folder else ""))
        output.note(f"checkpoints: {checkpoints}, from which training continues; with another folder it begins anew")
        orders = Orders(ready.line, environment, options.workers, options.replace_after, options.metrics_port)
        code = Crew(orders, store, output).run()
        output.close()
        if code == FINISHED:
            output.note(f"the job has finished; its checkpoints are in {checkpoints}")
        elif code == LEFT:
            output.note(f"all workers have left; to continue: {shlex.join(['tidewater', *sys.argv[1:]])}")
    raise typer.Exit(code)


def _refuse_relative(places: str) -> None:
    """Raise UsageError for checkpoints that would lie in the copy of a folder, which is removed at the end."""
    for place in filter(None, places.split(",")):
        if "://" not in place and not Path(place).is_absolute():
            raise UsageError(
                f"--checkpoints is {place}, and with --code the script runs in a copy that is removed at the end",
                f"Give an absolute path: --checkpoints {Path.cwd() / place}",
            )


def check(options: Options) -> None:
    """Raise UsageError for what can be known to be wrong before anything starts."""
    if options.workers < 1:
        raise UsageError(f"--workers is {options.workers}, the least is 1")
    if options.replace_after < 0:
        raise UsageError(f"--replace-after is {options.replace_after:g}, the least is 0")
    if "/" in options.job:
        raise UsageError(f"--job is {options.job!r}, it must not contain a slash")
    if options.metrics_port:
        for port in range(options.metrics_port, options.metrics_port + options.workers):
            _check_port(port, options)


def _check_port(port: int, options: Options) -> None:
    asked = f"--metrics-port is {options.metrics_port}, which makes ports up to"
    asked = f"{asked} {options.metrics_port + options.workers - 1} for {options.workers} workers"
    if not 0 < port <= _LAST_PORT:
        raise UsageError(f"{asked}; ports are from 1 to {_LAST_PORT}")
    try:
        socket.create_server(("", port)).close()
    except OSError as error:
        raise UsageError(f"{asked}; port {port} can't be used: {error.strerror}", "Choose another one.") from None


def environment_of(script: str, options: Options, etcd: str, environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that all workers have, as their pods would have them. Checkpoints have a default.

    `script` is the name of the script, for the job.
    """
    job = options.job or script
    checkpoints = environ.get(env.CHECKPOINTS) or str(Path.cwd() / FOLDER / job / "checkpoints")
    return {
        **env.FIXED_HASHES,
        **{name: value for name, value in environ.items() if name not in (env.LOCAL_RANK, env.LOCAL_SIZE)},
        env.JOB: job,
        env.ETCD: etcd,
        env.HOST: HOST,
        env.MIN_WORKERS: "1",
        env.MAX_WORKERS: str(options.workers),
        env.CHECKPOINTS: checkpoints,
        "PYTHONUNBUFFERED": "1",  # what a script prints is seen at once
    }


def checkpoints_of(flags: Sequence[str], environment: Mapping[str, str]) -> str:
    """Return where the checkpoints are: as the script's last flag says, else as the environment does."""
    place = environment[env.CHECKPOINTS]
    for flag, following in pairwise([*flags, ""]):
        name, equals, value = flag.partition("=")
        if name == "--checkpoints":
            place = value if equals else following
    return place
