"""`tidewater job list`: the table, and with --watch the rows that change.

The cells are the API server's own, by the printer columns of the CRD.
"""

from __future__ import annotations

from tidewater.cli.job.changes import Watched, snapshots
from tidewater.cli.job.lookup import none
from tidewater.cli.session import Session
from tidewater.cli.show import columns
from tidewater.elasticjob.names import JOBS
from tidewater.kube.cluster import ALL_NAMESPACES, Selection

_AGE = "Age"


def printed(session: Session, selection: Selection) -> None:
    """Print the jobs as one table, or say where there are some."""
    heads, rows = _table(session, selection)
    if rows:
        session.out.print(columns(heads, rows.values()))
    else:
        session.note(none(session.cluster, selection.namespace))


def watched(session: Session, selection: Selection) -> None:
    """Print the jobs as one table, then each row that changes, until Ctrl-C. An age alone is no change."""
    shown: dict[tuple[str, str], list[str]] | None = None
    for _ in snapshots(session.cluster, session.clock, Watched(JOBS, selection)):
        heads, rows = _table(session, selection)
        head, *lines = columns(heads, list(rows.values())).split("\n")
        now = {key: [cell for name, cell in zip(heads, row, strict=True) if name != _AGE] for key, row in rows.items()}
        if shown is None:
            session.out.print(head)
        for (key, cells), line in zip(now.items(), lines, strict=True):
            if (shown or {}).get(key) != cells:
                session.out.print(line)
        for namespace, name in (shown or {}).keys() - now.keys():
            session.note(f"{name} in namespace {namespace} has been deleted")
        shown = now


def _table(session: Session, selection: Selection) -> tuple[list[str], dict[tuple[str, str], list[str]]]:
    """Return heads, and rows by namespace and name; with the namespaces as the first column if they differ."""
    table = session.cluster.table(JOBS, selection)
    rows = {key: list(row) for key, row in zip(table.names, table.rows, strict=True)}
    if selection.namespace != ALL_NAMESPACES:
        return list(table.columns), rows
    return ["Namespace", *table.columns], {key: [key[0], *row] for key, row in rows.items()}
