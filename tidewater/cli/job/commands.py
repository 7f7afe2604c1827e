"""`tidewater job …`: one function for each command. They read flags, ask the cluster, and print.

What a person reads about what was done goes to standard error only where standard output has something else to carry.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated

import typer
from rich.text import Text

from tidewater.cli import durations, jobfile, naming
from tidewater.cli.errors import TimeoutReached, UsageError
from tidewater.cli.job import actions, in_stack, kept, listing, manifest, shipping, waiting
from tidewater.cli.job.describe import View, described
from tidewater.cli.job.logs import Wanted, followed, printed, printed_before
from tidewater.cli.job.lookup import complete_job, job_events, job_named, job_pods, pod_events
from tidewater.cli.job.printer import Layout, Printer, layout
from tidewater.cli.job.waiting import Goal
from tidewater.cli.options import Group, command
from tidewater.cli.session import Session
from tidewater.cli.show import OutputOption, dumped, listed, yaml_of
from tidewater.elasticjob.names import JOBS
from tidewater.kube.cluster import ALL_NAMESPACES, Object, Selection
from tidewater.kube.errors import ClusterError, Exists, NotFound

app = typer.Typer(cls=Group, help="Submit, watch and resize elastic jobs.", no_args_is_help=True)

Name = Annotated[
    str,
    typer.Argument(metavar="NAME", help="Name of the job.", autocompletion=complete_job, callback=naming.job),
]
Timeout = Annotated[
    timedelta | None,
    typer.Option(parser=durations.parsed, metavar="DURATION", help="Give up after this: 90s, 10m. Default: never."),
]


@command(app, "submit")
def submit(
    session: Session,
    flags: manifest.Flags,
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="Name of the job.", show_default=False, callback=naming.new_job)
    ] = "",
    words: Annotated[
        list[str] | None,
        typer.Argument(metavar="-- ARGUMENTS", help="The script's arguments; without --script the whole command line."),
    ] = None,
    file: Annotated[
        str, typer.Option("--file", "-f", metavar="FILE", help="Manifest instead of flags; - is standard input.")
    ] = "",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print what would be sent, and send nothing.")] = False,
) -> None:
    """Create a job, from flags or from a manifest.

    tidewater job submit digits --image my/image --script train.py --workers 2 --max 4 -- --epochs 10

    With --code FOLDER the script and its modules come from this machine, with --requirements LOCK packages that the
    image lacks. In a stack's namespace the pods are as it demands, with the shared files at /data.
    """
    facts = in_stack.facts_of(session) if name and not file else None
    jobs = requested(session, in_stack.met(flags, facts) if facts else flags, name, words or [], file)
    shipment = None if file else manifest.shipment_of(name, flags)
    if shipment:
        jobs = [shipping.with_shipment(job, shipment, claim=flags.claim) for job in jobs]
    if facts:
        jobs = [in_stack.placed(job, facts) for job in jobs]
    if dry_run:
        shipped = [shipping.placed(shipment, session.target.namespace)] if shipment else []
        session.out.print("\n---\n".join(map(yaml_of, [*shipped, *jobs])))
        return
    for job in jobs:
        own = job["metadata"]["name"]
        try:
            made = session.cluster.create(JOBS, job)
        except Exists as error:
            error.remedy = actions.already(session, job)
            raise
        if shipment:
            shipping.place(session.cluster, made, shipment)
        session.out.print(f"{own} created in namespace {made['metadata'].get('namespace', session.cluster.namespace)}")
        session.note(f"follow it: tidewater job logs {own} -f{actions.flags_of(session, job)}")


def requested(session: Session, flags: manifest.Flags, name: str, words: list[str], file: str) -> list[Object]:
    """Return the jobs that the command line describes.

    Raises:
        UsageError: neither a name nor a file, or both.
    """
    namespace = session.target.namespace
    if not file:
        if not name:
            raise UsageError("NAME is missing", "tidewater job submit NAME --image IMAGE, or -f FILE.")
        return [manifest.from_flags(name, flags, words, namespace)]
    others = [*(["NAME"] if name else []), *manifest.given(flags)]
    if others:
        raise UsageError(f"{', '.join(others)} can't be used with -f {file}", "Write it into the file.")
    return jobfile.from_file(file, namespace)


@command(app, "list")
def list_jobs(
    session: Session,
    all_namespaces: Annotated[bool, typer.Option("--all-namespaces", "-A", help="Jobs of all namespaces.")] = False,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Then print each job that changes.")] = False,
    output: OutputOption = None,
) -> None:
    """List jobs as `kubectl get ej` does, with their states in colour."""
    selection = Selection(ALL_NAMESPACES if all_namespaces else "")
    if watch and output:
        raise UsageError("--watch can't be used with --output", "Leave out one of the two.")
    if watch:
        listing.watched(session, selection)
    elif output:
        items = session.cluster.list(JOBS, selection).items
        session.out.print(dumped(listed(items, JOBS.kind, JOBS.api_version), output))
    else:
        listing.printed(session, selection)


@command(app, "describe")
def describe(session: Session, name: Name, output: OutputOption = None) -> None:
    """Show a job: its state and size, conditions, pods, and what has happened to it."""
    job = job_named(session.cluster, name)
    if output:
        session.out.print(dumped(job, output))
        return
    pods: list[Object] | str
    events: list[Object] | str
    of_pods: list[Object] | str
    try:
        pods = job_pods(session.cluster, name)
    except ClusterError as error:
        pods = error.message
    try:
        events = job_events(session.cluster, job)
    except ClusterError as error:
        events = error.message
    try:
        of_pods = [] if isinstance(pods, str) else pod_events(session.cluster, pods)
    except ClusterError as error:
        of_pods = error.message
    resume = f"tidewater job resume {name}{session.target.repeated}"
    session.out.print(described(View(job, pods, events, of_pods, resume), session.clock.now()))


@command(app, "scale")
def scale(
    session: Session,
    name: Name,
    replicas: Annotated[int, typer.Argument(metavar="WORKERS", min=0, help="Number of workers that is wanted.")],
    wait: Annotated[bool, typer.Option("--wait", help="Return when the job has that size.")] = False,
    timeout: Timeout = None,
) -> None:
    """Set the number of workers, while the job trains. It must be between the job's minimum and maximum."""
    before = waiting.replicas(job_named(session.cluster, name))
    session.cluster.patch(JOBS, name, {"spec": {"replicas": replicas}}, subresource="scale")
    session.out.print(f"{name} scaled from {before} to {replicas}")
    if wait:
        actions.wait_for(session, name, Goal.SIZE, timeout)


@command(app, "suspend")
def suspend(session: Session, name: Name) -> None:
    """Delete a job's pods and keep the job; `resume` starts it again, from its last checkpoint."""
    actions.set_suspended(session, name, suspended=True)


@command(app, "resume")
def resume(session: Session, name: Name) -> None:
    """Start a suspended job again."""
    actions.set_suspended(session, name, suspended=False)


@command(app, "logs")
def logs(session: Session, name: Name, options: actions.LogFlags) -> None:
    """Print the merged logs of all workers, each line behind its worker's name in its own colour.

    Of a job without pods, or that is deleted, what the stack has kept, if it keeps logs.
    """
    chosen = [flag for flag in ("follow", "previous", "kept") if getattr(options, flag)]
    if len(chosen) > 1:
        raise UsageError(f"--{chosen[1]} can't be used with --{chosen[0]}", "Leave out one of the two.")
    tail = options.tail
    if tail is None and options.follow and options.since is None:
        tail = actions.FOLLOW_TAIL
    seconds = None if options.since is None else int(options.since.total_seconds())
    wanted = Wanted(name, tuple(options.worker), None if tail == -1 else tail, seconds)
    colour = session.out.color_system is not None and not session.out.no_color
    bare = Layout(name, (), 0, options.prefix, options.timestamps, colour)
    try:
        job = job_named(session.cluster, name)
    except NotFound:
        if options.follow or options.previous or not kept.printed(session, wanted, bare, asked=options.kept):
            raise
        return
    if options.kept or (not chosen and not job_pods(session.cluster, name)):
        found = kept.printed(session, wanted, bare, str(job["metadata"].get("uid", "")), asked=options.kept)
        if not found and options.kept:
            session.note(f"nothing is kept of {name}")
        if found or options.kept:
            return
    shape = layout(job, prefix=options.prefix, timestamps=options.timestamps, colour=colour)
    printer = Printer(session, shape)
    if options.follow:
        followed(session, wanted, printer)
    elif options.previous:
        printed_before(session, wanted, job, printer)
    else:
        printed(session, wanted, job, printer)


@command(app, "delete")
def delete(
    session: Session,
    names: Annotated[
        list[str],
        typer.Argument(metavar="NAME…", help="Names of jobs.", autocompletion=complete_job, callback=naming.jobs),
    ],
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Return when their pods are gone too.")] = True,
    timeout: Timeout = None,
) -> None:
    """Delete jobs with their pods."""
    begun, errors = actions.delete_jobs(session, names)
    if wait:
        try:
            actions.wait_until_gone(session, begun, timeout)
        except TimeoutReached as late:
            errors.append(late)
    else:
        for name in begun:
            session.out.print(f"{name} deleted")
    if errors:
        raise actions.together(errors)


@command(app, "wait")
def wait(
    session: Session,
    name: Name,
    goal: Annotated[
        Goal, typer.Option("--for", help="succeeded; size: it has as many workers as wanted; and others.")
    ] = Goal.SUCCEEDED,
    timeout: Timeout = None,
) -> None:
    """Return when a job has succeeded, or is as it is wanted.

    Exit status: 0 it is so; 3 the timeout has passed; 4 the job has failed; 1 it can't become so any more.
    """
    if goal is not Goal.DELETED:
        job_named(session.cluster, name)
    verdict = actions.wait_for(session, name, goal, timeout)
    session.out.print(Text.assemble(f"{name}: ", verdict.seen))
