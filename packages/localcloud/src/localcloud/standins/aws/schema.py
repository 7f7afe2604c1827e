"""Check inputs against the names and types of the SDK (`schema.json`). Pure, except for reading the file."""

from __future__ import annotations

import difflib
import functools
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from localcloud.standins.aws.entry import Entry, Tree
from localcloud.standins.values import UNKNOWN, has_unknown

_SEE = "see packages/localcloud/docs/standins.md"


@dataclass(frozen=True)
class Failure:
    """An input that is wrong, and why."""

    property: str
    reason: str


@functools.cache
def load() -> dict[str, Any]:
    """The schema file."""
    schema: dict[str, Any] = json.loads(Path(__file__).with_name("schema.json").read_text())
    return schema


def unknown_type(token: str) -> str:
    """The error for a type or function without an entry."""
    close = difflib.get_close_matches(token, load()["resources"], 1, cutoff=0.8)
    meant = f"did you mean {close[0]}? Else {_SEE}" if close else _SEE
    return f"{token} is not covered by the stand-in for pulumi-aws; {meant}, or leave the stand-in off"


def check(entry: Entry, inputs: Tree) -> tuple[Tree, list[Failure]]:
    """Return the inputs with numbers, booleans and strings converted to the schema's types, and what is wrong."""
    schema = load()["resources"][entry.token]
    failures: list[Failure] = []
    checked: Tree = {}
    for name, value in inputs.items():
        if name.startswith("__"):
            continue
        if name not in schema["inputs"]:
            failures.append(Failure(name, _unknown_field(name, entry.token, schema["inputs"])))
        elif name not in entry.covered():
            reason = f"input {name} of {entry.token} is not covered by the stand-in for pulumi-aws; {_SEE}"
            failures.append(Failure(name, reason))
        elif name in entry.documents and isinstance(value, dict):
            checked[name] = UNKNOWN if has_unknown(value) else json.dumps(value)
        else:
            checked[name] = _coerce(value, schema["inputs"][name], name, failures)
    for name, value in entry.only.items():
        if checked.get(name) not in (None, UNKNOWN, value):
            reason = f"{name} {checked[name]!r} of {entry.token} is not covered by the stand-in for pulumi-aws, "
            failures.append(Failure(name, f"{reason}only {value!r} is; {_SEE}"))
    for name in schema["required"]:
        if inputs.get(name) is None:
            failures.append(Failure(name, f"missing required property {name} of {entry.token}"))
    for group in entry.one_of:
        given = sorted(name for name in group if inputs.get(name) is not None)
        if len(given) > 1:
            failures.append(Failure(given[0], f"{' and '.join(given)} of {entry.token} exclude each other"))
    return checked, failures


def outputs(token: str) -> list[str]:
    """The names of a type's outputs."""
    names: list[str] = load()["resources"][token]["outputs"]
    return names


def input_names(token: str) -> frozenset[str]:
    """The names of a type's inputs."""
    return frozenset(load()["resources"][token]["inputs"])


def is_map(token: str, name: str) -> bool:
    """Return whether an input is a map with keys that the program chooses, such as tags."""
    return str(load()["resources"][token]["inputs"].get(name, "")).startswith("{")


def _unknown_field(name: str, owner: str, allowed: Mapping[str, Any]) -> str:
    close = difflib.get_close_matches(name, allowed, 1)
    return f"{owner} has no input {name}" + (f"; did you mean {close[0]}?" if close else "")


def _coerce(value: Any, kind: str, path: str, failures: list[Failure]) -> Any:
    if value is UNKNOWN or kind == "any":
        return value
    if kind.startswith("["):
        if not isinstance(value, list):
            return _wrong(value, "a list", path, failures)
        return [_coerce(item, kind[1:-1], f"{path}[{index}]", failures) for index, item in enumerate(value)]
    if kind.startswith("{"):
        if not isinstance(value, dict):
            return _wrong(value, "a map", path, failures)
        return {key: _coerce(item, kind[1:-1], f"{path}.{key}", failures) for key, item in value.items()}
    if kind in ("string", "number", "boolean"):
        return _scalar(value, kind, path, failures)
    return _object(value, kind, path, failures)


def _object(value: Any, kind: str, path: str, failures: list[Failure]) -> Any:
    if not isinstance(value, dict):
        return _wrong(value, "an object", path, failures)
    schema = load()["objects"][kind]
    checked: Tree = {}
    for name, item in value.items():
        if name.startswith("__"):
            continue
        if name not in schema["fields"]:
            failures.append(Failure(f"{path}.{name}", _unknown_field(name, path, schema["fields"])))
            continue
        checked[name] = _coerce(item, schema["fields"][name], f"{path}.{name}", failures)
    for name in schema["required"]:
        if value.get(name) is None:
            failures.append(Failure(f"{path}.{name}", f"missing required property {name} of {path}"))
    return checked


def _scalar(value: Any, kind: str, path: str, failures: list[Failure]) -> Any:
    if isinstance(value, (dict, list)):
        return _wrong(value, f"a {kind}", path, failures)
    if kind == "string":
        return str(value).lower() if isinstance(value, bool) else str(value)
    if kind == "boolean":
        return value if isinstance(value, bool) else _from_text(value, {"true": True, "false": False}, path, failures)
    if isinstance(value, str):
        try:
            return float(value) if "." in value else int(value)
        except ValueError:
            return _wrong(value, "a number", path, failures)
    return _wrong(value, "a number", path, failures) if isinstance(value, bool) else value


def _from_text(value: Any, meanings: Mapping[str, bool], path: str, failures: list[Failure]) -> Any:
    return meanings[value] if value in meanings else _wrong(value, "true or false", path, failures)


def _wrong(value: Any, wanted: str, path: str, failures: list[Failure]) -> Any:
    failures.append(Failure(path, f"{path} must be {wanted}, not {value!r}"))
    return value
