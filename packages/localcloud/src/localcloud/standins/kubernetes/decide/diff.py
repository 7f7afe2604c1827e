"""The differences between an object as it is and as the program describes it, and the paths that name them.

    compare(prune(live, old_inputs), new_inputs)        # {("spec", "replicas"): Change.UPDATE}

The live object is first reduced to the shape of the old inputs: what others added (defaults, status) is no difference,
what others changed is one.
"""

from __future__ import annotations

import base64
import enum
import re
from decimal import Decimal
from typing import Any, Final

from localcloud.standins.kubernetes.metadata import Object, without_read_only
from localcloud.standins.values import UNKNOWN, has_unknown

Path = tuple[str | int, ...]
_MISSING: Final = object()
_STEP: Final = re.compile(r'\["((?:[^"\\]|\\.)*)"\]|\[(\d+)\]|\[(\*)\]|\.?([^.\[]+)')
_FORM: Final = re.compile(r"([+-]?(?:\d+\.?\d*|\.\d+))(?:([eE][+-]?\d+)|([KMGTPE]i|[numkMGTPE]))?")
_SCALE: Final = {
    **{f"{letter}i": Decimal(1024) ** power for power, letter in enumerate("KMGTPE", start=1)},
    **{letter: Decimal(1000) ** power for power, letter in enumerate("numkMGTPE", start=-3) if power < 0},
    **{letter: Decimal(1000) ** power for power, letter in enumerate("kMGTPE", start=1)},
}
_PLACES: Final = frozenset(
    "allocatable capacity divisor hard limits max min overhead podFixed requests sizeLimit".split()
)


class Change(enum.Enum):
    """What happens to a property."""

    ADD = "add"
    DELETE = "delete"
    UPDATE = "update"


def prune(source: Any, shape: Any) -> Any:
    """Return the parts of `source` that `shape` has too, element by element in lists."""
    if isinstance(source, dict) and isinstance(shape, dict):
        return {key: prune(value, shape[key]) for key, value in source.items() if key in shape}
    if isinstance(source, list) and isinstance(shape, list):
        return [prune(item, other) for item, other in zip(source, shape, strict=False)]
    return source


def inputs_of(live: Any, inputs: Any, before: Any) -> Any:
    """Return the last inputs with the values that the live object has now.

    An empty value that the object lacks is kept, since the API server leaves such values out; but not one that it had
    `before`, at the last update or refresh.
    """
    if isinstance(live, dict) and isinstance(inputs, dict):
        before = before if isinstance(before, dict) else {}
        return {
            key: inputs_of(live[key], value, before.get(key)) if key in live else value
            for key, value in inputs.items()
            if key in live or (is_empty(value) and key not in before)
        }
    if isinstance(live, list) and isinstance(inputs, list):
        before = before if isinstance(before, list) else []
        places = range(min(len(live), len(inputs)))
        return [inputs_of(live[n], inputs[n], before[n] if n < len(before) else None) for n in places]
    return live


def is_empty(value: Any) -> bool:
    """Return whether it is false, zero, an empty text, or a container of such values only."""
    if isinstance(value, dict):
        return all(map(is_empty, value.values()))
    if isinstance(value, list):
        return value == []
    return value is None or value in (False, 0, "")


def normalize(obj: Object) -> Object:
    """Return inputs as the API server returns them: without read-only metadata, a Secret's strings as data."""
    obj = without_read_only(obj)
    strings = obj.get("stringData")
    if (obj.get("apiVersion"), obj.get("kind")) != ("v1", "Secret"):
        return obj
    if not isinstance(strings, dict) or has_unknown(strings):
        return obj
    data = obj.get("data")
    encoded = {key: base64.b64encode(str(value).encode()).decode() for key, value in strings.items()}
    rest = {key: value for key, value in obj.items() if key != "stringData"}
    return {**rest, "data": {**(data if isinstance(data, dict) else {}), **encoded}}


def compare(old: Object, new: Object) -> dict[Path, Change]:
    """Return the changes, at the highest path that is added or removed and the deepest that is updated."""
    changes: dict[Path, Change] = {}
    _compare((), old, new, changes)
    return changes


def _compare(path: Path, old: Any, new: Any, changes: dict[Path, Change]) -> None:
    if new is UNKNOWN:
        changes[path] = Change.ADD if old is _MISSING else Change.UPDATE
    elif old is _MISSING:
        changes[path] = Change.ADD
    elif new is _MISSING:
        changes[path] = Change.DELETE
    elif isinstance(old, dict) and isinstance(new, dict):
        for key in sorted(old.keys() | new.keys()):
            _compare((*path, key), old.get(key, _MISSING), new.get(key, _MISSING), changes)
    elif isinstance(old, list) and isinstance(new, list):
        for index in range(max(len(old), len(new))):
            _compare((*path, index), _at(old, index), _at(new, index), changes)
    elif not (_same(old, new) or _same_amount(path, old, new)):
        changes[path] = Change.UPDATE


def _at(items: list[Any], index: int) -> Any:
    return items[index] if index < len(items) else _MISSING


def _same(old: Any, new: Any) -> bool:
    return bool(old == new) and isinstance(old, bool) == isinstance(new, bool)


def value_at(obj: Any, path: Path) -> Any:
    """Return what is at a path; None where there is nothing."""
    for step in path:
        if isinstance(obj, dict):
            obj = obj.get(step)
        elif isinstance(obj, list) and isinstance(step, int) and step < len(obj):
            obj = obj[step]
        else:
            return None
    return obj


def render_path(path: Path) -> str:
    """Return the path as the engine writes property paths: `spec.containers[0]["a.b"]`."""
    text = ""
    for step in path:
        if isinstance(step, int):
            text += f"[{step}]"
        elif any(character in step for character in '."[]'):
            text += '["' + step.replace('"', '\\"') + '"]'
        else:
            text += f".{step}" if text else step
    return text


def parse_path(text: str) -> Path:
    """Read a property path, the inverse of `render_path`; `*` stands for any element or key."""
    return tuple(
        int(index) if index else quoted.replace('\\"', '"') or any_element or plain
        for quoted, index, any_element, plain in _STEP.findall(text)
    )


def ignored(path: Path, ignore: Path) -> bool:
    """Return whether an ignored path contains the path."""
    return len(ignore) <= len(path) and all(want in ("*", have) for want, have in zip(ignore, path, strict=False))


def quantity(value: Any) -> Decimal | None:
    """Return the amount that a Kubernetes quantity names, such as 1 for `1000m`; None for another value."""
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        return None
    match = _FORM.fullmatch(str(value))
    if match is None:
        return None
    number, exponent, suffix = match.groups()
    return Decimal(number + (exponent or "")) * _SCALE.get(suffix or "", Decimal(1))


def _same_amount(path: Path, old: Any, new: Any) -> bool:
    """Return whether two different spellings, at a path that holds quantities, mean the same amount."""
    if not any(step in _PLACES for step in path[-2:]):
        return False
    amount = quantity(old)
    return amount is not None and amount == quantity(new)
