"""How things are printed: ages, states in colour, tables like kubectl's, JSON and YAML. Pure, but for the console.

session.out.print(columns(table.columns, table.rows))
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any

import typer
from rich.text import Text

from tidewater.cli import kubeyaml
from tidewater.elasticjob.choices import State

_GAP = 3
_STYLES = {
    State.CREATED: "cyan",
    State.QUEUED: "yellow",
    State.RUNNING: "green",
    State.RESTARTING: "yellow",
    State.SUSPENDED: "blue",
    State.SUCCEEDED: "bold green",
    State.FAILED: "bold red",
    "Pending": "yellow",
    "Completed": "bold green",
    "Warning": "yellow",
}


class Output(StrEnum):
    """Formats for programs."""

    JSON = "json"
    YAML = "yaml"


OutputOption = Annotated[
    Output | None,
    typer.Option("--output", "-o", help="Print the objects as the API server has them, without managedFields."),
]


def style(word: str) -> str:
    """Return the colour of a state; empty for words that are none."""
    return _STYLES.get(word, "")


def dumped(value: Mapping[str, Any], output: Output) -> str:
    """Return an object or a `List` as JSON or YAML, without managedFields and without an end of line."""
    value = _for_people(value)
    if output is Output.JSON:
        return json.dumps(value, indent=2, ensure_ascii=False)
    return yaml_of(value)


def _for_people(object: Mapping[str, Any]) -> dict[str, Any]:
    """Return an object without managedFields, which are many lines for programs only; kubectl leaves them out too."""
    metadata = {key: value for key, value in object["metadata"].items() if key != "managedFields"}
    items = {"items": [_for_people(each) for each in object["items"]]} if "items" in object else {}
    return {**object, "metadata": metadata, **items}


def yaml_of(value: Any) -> str:
    """Return a value as YAML in the order of its keys, without an end of line."""
    return kubeyaml.written(value)


def listed(items: Iterable[Mapping[str, Any]], kind: str, api_version: str) -> dict[str, Any]:
    """Return objects as one `List`, as `kubectl get -o json` prints them."""
    own = [{"apiVersion": api_version, "kind": kind, **each} for each in items]
    return {"apiVersion": "v1", "kind": "List", "metadata": {"resourceVersion": ""}, "items": own}


def columns(heads: Sequence[str], rows: Iterable[Sequence[str]], indent: str = "") -> Text:
    """Return a table as kubectl prints it: upper-case heads, columns as wide as their content, states in colour."""
    head = [name.upper() for name in heads]
    body = [list(row) for row in rows]
    widths = [max(map(len, column)) for column in zip(head, *body, strict=True)]
    lines = [_line([Text(name) for name in head], widths, indent)]
    lines += [_line([Text(cell, style=style(cell)) for cell in row], widths, indent) for row in body]
    return Text("\n").join(lines)


def age(seconds: float) -> str:
    """Return a duration as kubectl writes ages: 45s, 5m30s, 12m, 3h20m, 26h, 3d4h, 9d."""
    whole = max(0, int(seconds))
    minutes, hours, days = whole // 60, whole // 3600, whole // 86400
    if whole < 120:
        return f"{whole}s"
    if minutes < 10:
        return f"{minutes}m{whole % 60}s" if whole % 60 else f"{minutes}m"
    if hours < 3:
        return f"{minutes}m"
    if hours < 8:
        return f"{hours}h{minutes % 60}m" if minutes % 60 else f"{hours}h"
    if hours < 48:
        return f"{hours}h"
    if days < 8:
        return f"{days}d{hours % 24}h" if hours % 24 else f"{days}d"
    return f"{days}d"


def since(stamp: str | None, now: datetime) -> str:
    """Return how long ago an RFC 3339 time was; `<unknown>` if there is none."""
    return age((now - moment(stamp)).total_seconds()) if stamp else "<unknown>"


def moment(stamp: str) -> datetime:
    """Return an RFC 3339 time of the API server."""
    return datetime.fromisoformat(stamp)


def shortened(text: str, most: int) -> str:
    """Return a text of at most so many characters: a longer one is cut, and ends with an ellipsis."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


def plural(count: int, noun: str) -> str:
    """Return a number with its noun: 1 worker, 2 workers."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _line(cells: Sequence[Text], widths: Sequence[int], indent: str) -> Text:
    line = Text(indent)
    for cell, width in zip(cells[:-1], widths, strict=False):
        line.append_text(cell)
        line.append(" " * (width - len(cell.plain) + _GAP))
    line.append_text(cells[-1])
    return line
