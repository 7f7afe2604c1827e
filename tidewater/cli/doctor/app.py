"""`tidewater doctor`: runs the checks and prints what they say.

Exit code 1 if something must be fixed, or could not be checked; else 0.
"""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path

import typer
from rich.console import Console
from rich.text import Text

from tidewater.cli.doctor import account, cluster, jobs, machine, operator
from tidewater.cli.doctor.autoscalers import autoscalers
from tidewater.cli.doctor.claims import claims
from tidewater.cli.doctor.place import Place, RealTools
from tidewater.cli.doctor.results import Check, Outcome, Result, fix, skipped, unchecked
from tidewater.cli.errors import EXIT_ERROR, TimeoutReached
from tidewater.cli.options import command
from tidewater.cli.parallel import at_once
from tidewater.cli.session import Session
from tidewater.cli.show import plural
from tidewater.kube.errors import ErrorWithRemedy, Forbidden

_MARKS = {
    Outcome.FINE: ("✓", "green"),
    Outcome.NOTE: ("!", "yellow"),
    Outcome.FIX: ("✗", "bold red"),
    Outcome.SKIPPED: ("-", "dim"),
    Outcome.UNCHECKED: ("?", "yellow"),
}
_TEXT_STYLES = {Outcome.FIX: "bold", Outcome.SKIPPED: "dim"}
_NAME_COLUMNS = 13
MACHINE, ACCOUNT, CLUSTER, ELASTICJOB = "This machine", "This AWS account", "This cluster", "ElasticJob"

CHECKS = (
    Check(MACHINE, "python", machine.python),
    Check(MACHINE, "pulumi", machine.pulumi, seconds=10),
    Check(MACHINE, "kubectl", machine.kubectl, seconds=10),
    Check(MACHINE, "aws", machine.aws, seconds=10),
    Check(MACHINE, "kubeconfig", machine.kubeconfig_names_a_cluster),
    Check(ACCOUNT, "credentials", account.credentials, seconds=15),
    Check(ACCOUNT, "region", account.region, seconds=10),
    Check(ACCOUNT, "GPU quotas", account.quotas, needs="credentials", seconds=15),
    Check(CLUSTER, "API server", cluster.api_server, needs="kubeconfig", seconds=15),
    Check(CLUSTER, "your rights", cluster.rights, needs="API server"),
    Check(CLUSTER, "nodes", cluster.nodes, needs="API server"),
    Check(CLUSTER, "GPUs", cluster.gpus, needs="API server"),
    Check(CLUSTER, "EFS driver", cluster.efs, needs="API server"),
    Check(CLUSTER, "claims", claims, needs="API server"),
    Check(ELASTICJOB, "CRD", operator.definition, needs="API server"),
    Check(ELASTICJOB, "controller", operator.controller, needs="API server"),
    Check(ELASTICJOB, "leader", operator.leader, needs="controller", seconds=20),
    Check(ELASTICJOB, "etcd", jobs.etcd, needs="CRD", seconds=10),
    Check(ELASTICJOB, "jobs", jobs.waiting, needs="CRD", seconds=10),
    Check(ELASTICJOB, "autoscalers", autoscalers, needs="CRD", seconds=10),
)
Ends = Mapping[str, "Future[Result]"]


def register(app: typer.Typer) -> None:
    """Add the command."""
    command(app, "doctor")(doctor)


def doctor(session: Session) -> None:
    """Say what is missing or wrong on this machine, in this account and on this cluster, and how to fix it.

    It changes nothing. Exit code 1: something must be fixed, or could not be checked.
    """
    place = Place(
        tools=RealTools(),
        environment=os.environ,
        directory=Path.cwd(),
        access=session.target.access,
        connect=session.tools.connect,
        clock=session.clock,
    )
    found = []
    section = ""
    for check, result in _awaited(CHECKS, place, session.err):
        found.append(result)
        if check.section != section:
            session.out.print(Text(check.section, style="bold"))
            section = check.section
        session.out.print(entry(check, result))
    session.out.print(Text(summary(found)))
    if any(result.outcome in (Outcome.FIX, Outcome.UNCHECKED) for result in found):
        raise typer.Exit(EXIT_ERROR)


def _awaited(checks: Sequence[Check], place: Place, progress: Console) -> Iterator[tuple[Check, Result]]:
    """Yield the results; show on a terminal which check is being waited for.

    Nothing may be printed while that is shown: rich would print it on the wrong stream.
    """
    results = results_of(checks, place)
    for check in checks:
        if progress.is_terminal:
            with progress.status(Text(f"{check.section}: {check.name}")):
                found = next(results)
        else:
            found = next(results)
        yield found


def entry(check: Check, result: Result) -> Text:
    """Return what is printed about one check: a line, or some more, and the remedy below."""
    mark, style = _MARKS[result.outcome]
    first, *more = result.text.splitlines() or [""]
    remedies = [f"→ {line}" for line in result.remedy.splitlines()]
    text = Text.assemble(
        "  ", (mark, style), f" {check.name:<{_NAME_COLUMNS}}", (first, _TEXT_STYLES.get(result.outcome, ""))
    )
    for line in [*more, *remedies]:
        text.append(f"\n{'':<{_NAME_COLUMNS + 4}}{line}")
    return text


def summary(results: Sequence[Result]) -> str:
    """Return the last line."""
    counts = Counter(result.outcome for result in results)
    fixes = plural(counts[Outcome.FIX], "thing") if counts[Outcome.FIX] else "Nothing"
    unchecked = f", {counts[Outcome.UNCHECKED]} not checked" if counts[Outcome.UNCHECKED] else ""
    return f"{fixes} to fix, {counts[Outcome.NOTE]} worth knowing{unchecked}."


def results_of(checks: Sequence[Check], place: Place) -> Iterator[tuple[Check, Result]]:
    """Yield the checks with their results, in the order of the list, each as soon as it and those before it have ended.

    Raises:
        Exception: what a check raised that is no ErrorWithRemedy: a defect of the check.
    """
    ends: Ends = {check.name: Future() for check in checks}
    for check in checks:
        threading.Thread(target=_end, args=(check, place, ends), daemon=True).start()
    for check in checks:
        yield check, ends[check.name].result()


def _end(check: Check, place: Place, ends: Ends) -> None:
    try:
        needed = ends[check.needs].result().outcome if check.needs else Outcome.FINE
        if needed is Outcome.SKIPPED:
            ends[check.name].set_result(skipped(f"not needed, see {check.needs}"))
        elif needed in (Outcome.FIX, Outcome.UNCHECKED):
            ends[check.name].set_result(unchecked(f"not checked, see {check.needs}"))
        else:
            ends[check.name].set_result(_limited(check, place))
    except Exception as error:
        ends[check.name].set_exception(error)


def _limited(check: Check, place: Place) -> Result:
    """Return the result of a check within its time limit."""
    (found,) = at_once([lambda: check.run(place)], seconds=check.seconds)
    if isinstance(found, TimeoutReached):
        return unchecked(f"could not be checked within {check.seconds:g} s")
    if isinstance(found, Forbidden):
        return unchecked(f"could not be checked: {found.message}")
    if isinstance(found, ErrorWithRemedy):
        return fix(found.message, found.remedy)
    return found
