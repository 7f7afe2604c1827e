"""What the API server's answers mean: refusals become errors for the user, tables become cells. Pure.

https://kubernetes.io/docs/reference/using-api/api-concepts/#receiving-resources-as-tables
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from tidewater.cli.errors import (
    AlreadyThere,
    Answer,
    ClusterError,
    Conflict,
    Expired,
    Forbidden,
    Invalid,
    MissingKind,
    NotFound,
    Refused,
)
from tidewater.cli.kube import JOBS, Kind, Object, Table

INSTALL = "Install it: tidewater install | kubectl apply -f -"
_LONGEST = 300
_BAD_REQUEST, _FORBIDDEN, _NOT_FOUND, _CONFLICT, _GONE, _INVALID = 400, 403, 404, 409, 410, 422
_TOO_MANY = 429


def error_of(code: int, text: str, kind: Kind | None) -> ClusterError:
    """Return the error of an answer that is no success.

    A kind that the API server does not know is answered without a `Status` object.
    """
    status = _status(text)
    if status is None:
        if code == _NOT_FOUND and kind is not None:
            return missing(kind)
        return refused(Answer(code, "", f"the API server answers {code}: {text.strip()[:_LONGEST]}"))
    return refused(answer_of(status))


def answer_of(status: Mapping[str, Any]) -> Answer:
    """Return a `Status` object as an answer."""
    return Answer(int(status.get("code") or 0), str(status.get("reason", "")), str(status.get("message", "")))


def missing(kind: Kind) -> MissingKind:
    """Return the error for a kind that the API server does not know."""
    return MissingKind(
        f"this cluster has no {kind.name}: its CRD ({kind.plural}.{kind.group}) is not installed",
        INSTALL if kind == JOBS else "",
    )


def refused(answer: Answer) -> Refused:
    """Return the error for a refusal, with the API server's own sentence."""
    if answer.code == _CONFLICT and answer.reason == "AlreadyExists":
        return AlreadyThere(answer)
    if answer.code == _FORBIDDEN:
        remedy = "Ask an administrator of the cluster for this right; `kubectl auth can-i --list` shows yours."
        return Forbidden(answer, remedy)
    if answer.code == _NOT_FOUND and answer.message.startswith("namespaces "):
        return NotFound(answer, "Choose another with --namespace, or create it: kubectl create namespace NAME")
    if answer.code == _TOO_MANY:
        return Refused(answer, "The API server is busy. Try again in a moment.")
    kinds: dict[int, type[Refused]] = {
        _BAD_REQUEST: Invalid,
        _INVALID: Invalid,
        _NOT_FOUND: NotFound,
        _CONFLICT: Conflict,
        _GONE: Expired,
    }
    return kinds.get(answer.code, Refused)(answer)


def table(answer: Object) -> Table:
    """Return the cells of a `Table` object, without the columns that `kubectl get` shows only with `-o wide`."""
    definitions = answer.get("columnDefinitions") or []
    shown = [index for index, column in enumerate(definitions) if not column.get("priority")]
    rows = answer.get("rows") or []
    metadata = [row["object"]["metadata"] for row in rows]
    return Table(
        columns=[definitions[index]["name"] for index in shown],
        rows=[[_cell(row["cells"][index]) for index in shown] for row in rows],
        names=[(str(each.get("namespace", "")), str(each["name"])) for each in metadata],
    )


def _cell(value: Any) -> str:
    return "<none>" if value is None else str(value)


def _status(text: str) -> Mapping[str, Any] | None:
    try:
        found = json.loads(text)
    except ValueError:
        return None
    return found if isinstance(found, dict) and found.get("kind") == "Status" else None
