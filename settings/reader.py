"""Reads typed values out of a flat mapping and collects every mistake instead of stopping at the first.

    read = Reader({"workers": "99"})
    read.integer("workers", 1, 8)     # 1, so that reading can go on
    read.mistakes                     # ["workers = 99: must be an integer from 1 to 8"]

Each method returns a usable value even after a mistake; the caller checks `mistakes` at the end.
"""

from __future__ import annotations

import contextlib
import difflib
import ipaddress
import json
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any


class Reader:
    """A mapping, the keys that have been read, and the mistakes found in them."""

    def __init__(self, config: Mapping[str, Any], secrets: Collection[str] = ()) -> None:
        self.config = config
        self.secrets = secrets
        """The keys with values that no message shows."""
        self.mistakes: list[str] = []
        self._asked: set[str] = set()
        self._above = ""

    def part(self, key: str, values: Mapping[str, Any]) -> Reader:
        """Return a reader of an object below `key`: its mistakes are this one's, and begin with `key` and a dot."""
        found = Reader(values, self.secrets)
        found.mistakes, found._above = self.mistakes, f"{self._above}{key}."
        return found

    def mistake(self, text: str) -> None:
        """Add a mistake, unless it is there already."""
        if text not in self.mistakes:
            self.mistakes.append(text)

    def wrong(self, key: str, value: object, remedy: str) -> None:
        """Add a mistake: `key` has `value`, and `remedy` says what is expected."""
        named = f"{self._above}{key}"
        shown = "[secret]" if named.partition(".")[0] in self.secrets else value
        self.mistake(f"{named} = {shown}: {remedy}")

    def unused(self, key: str, remedy: str) -> None:
        """Add a mistake: no setting has this key."""
        self._asked.add(key)
        self.wrong(key, self.config[key], remedy)

    def are_right(self, *keys: str) -> bool:
        """Return whether no mistake is about one of `keys`: other values can be compared with theirs."""
        named = [f"{self._above}{key}" for key in keys]
        return not any(mistake.startswith((f"{key} = ", f"{key}: ")) for mistake in self.mistakes for key in named)

    def finish(self) -> None:
        """Add a mistake for each key that has not been read."""
        for key in sorted(self.config.keys() - self._asked):
            close = self.closest(key, self._asked, count=1)
            hint = f"did you mean {close[0]}?" if close else "the keys are described in Pulumi.yaml"
            self.wrong(key, self.config[key], f"no such key; {hint}")

    @staticmethod
    def closest(name: str, known: Iterable[str], count: int = 3) -> list[str]:
        """Return the `count` names of `known` that are most similar to `name`."""
        return difflib.get_close_matches(name, list(known), n=count, cutoff=0.4)

    def text(self, key: str, pattern: str, what: str, *, longest: int = 4096) -> str:
        """Return text that `pattern` matches as a whole; `what` describes it."""
        value = self._value(key)
        if value is None:
            return ""
        if isinstance(value, int | float) and not isinstance(value, bool):
            value = str(value)  # YAML reads an unquoted 1.34 or 2 as a number
        if not isinstance(value, str) or not re.fullmatch(pattern, value):
            self.wrong(key, _shown(value), f"must be {what}")
            return ""
        if len(value) > longest:
            self.wrong(key, value, f"has {len(value)} characters; {longest} at most")
        return value

    def image(self, key: str) -> str:
        """Return the name of a container image."""
        return self.text(key, r"[a-z0-9][\w.:/@-]*", "a container image")

    def choice(self, key: str, choices: Sequence[str]) -> str:
        """Return one of `choices`; the first one after a mistake."""
        value = self._value(key)
        if isinstance(value, int | float) and not isinstance(value, bool):
            value = str(value)  # YAML reads an unquoted 1.34 as a number
        if value is not None and value not in choices:
            self.wrong(key, _shown(value), f"must be {' or '.join(choices)}")
            value = None
        return choices[0] if value is None else str(value)

    def integer(self, key: str, low: int, high: int, *, why: str = "") -> int:
        """Return a whole number from `low` to `high`."""
        value = self._integer(key)
        if value is not None and not low <= value <= high:
            range_ = f"from {low} to {high}" + (f" ({why})" if why else "")
            self.wrong(key, value, f"must be {range_}")
            value = None
        return low if value is None else value

    def choice_of_integers(self, key: str, choices: Sequence[int]) -> int:
        """Return one of the numbers `choices`."""
        value = self._integer(key)
        if value is not None and value not in choices:
            self.wrong(key, value, f"must be one of {', '.join(map(str, choices))}")
            value = None
        return choices[0] if value is None else value

    def boolean(self, key: str) -> bool:
        """Return true or false."""
        value = self._value(key)
        if value in ("true", "false"):
            value = value == "true"
        if value is not None and not isinstance(value, bool):
            self.wrong(key, _shown(value), "must be true or false")
        return value is True

    def texts(self, key: str, pattern: str, what: str, *, at_least_one: bool = False) -> tuple[str, ...]:
        """Return a list of different texts, each matched by `pattern`."""
        value = self._json(key, list, "a list, for example --path 'key[0]' value")
        found: list[str] = []
        for item in value or []:
            if isinstance(item, int) and not isinstance(item, bool):
                item = str(item)  # `pulumi config set --path` makes a number of an account's digits
            if not isinstance(item, str) or not re.fullmatch(pattern, item):
                self.wrong(key, _shown(item), f"must be {what}")
            elif item in found:
                self.wrong(key, item, "is listed twice")
            else:
                found.append(item)
        if at_least_one and value == []:
            self.wrong(key, "[]", f"must have at least one entry: {what}")
        return tuple(found)

    def objects(self, key: str, what: str, fits: Callable[[Mapping[str, Any]], bool]) -> list[Mapping[str, Any]]:
        """Return a list of objects that `fits` accepts; `what` describes one."""
        value = self._json(key, list, "a list, for example --path 'key[0].name' value") or []
        for item in value:
            if not isinstance(item, Mapping) or not fits(item):
                self.wrong(key, _shown(item), f"must be {what}")
        return [item for item in value if isinstance(item, Mapping) and fits(item)]

    def text_map(self, key: str) -> dict[str, str]:
        """Return an object of texts."""
        value = self._json(key, dict, "an object of texts") or {}
        for name, item in value.items():
            if not isinstance(item, str):
                self.wrong(f"{key}.{name}", _shown(item), "must be text: put it in quotes, or use --type string")
        return {str(name): str(item) for name, item in sorted(value.items())}

    def cidr(self, key: str) -> ipaddress.IPv4Network | None:
        """Return an IPv4 range, or None after a mistake."""
        value = self._value(key)
        return None if value is None else self._range(key, value)

    def cidrs(self, key: str) -> tuple[str, ...]:
        """Return a list of different IPv4 ranges."""
        texts = self.texts(key, r"[\s\S]*", "an IPv4 range such as A.B.C.D/32")
        return tuple(str(found) for text in texts if (found := self._range(key, text)) is not None)

    def _range(self, key: str, value: object) -> ipaddress.IPv4Network | None:
        try:
            if "/" not in str(value):
                raise ValueError("it has no /length")
            return ipaddress.IPv4Network(str(value))
        except ValueError as error:
            self.wrong(key, _shown(value), f"must be an IPv4 range such as 10.0.0.0/16; {error}")
            return None

    def _integer(self, key: str) -> int | None:
        value = self._value(key)
        if isinstance(value, str) and re.fullmatch(r"-?\d{1,12}", value):
            value = int(value)
        if value is not None and (isinstance(value, bool) or not isinstance(value, int)):
            self.wrong(key, _shown(value), "must be an integer")
            return None
        return value

    def _json(self, key: str, kind: type, what: str) -> Any:
        value = self._value(key)
        if isinstance(value, str):
            with contextlib.suppress(ValueError):  # reported below, with the text itself
                value = json.loads(value)
        if value is not None and not isinstance(value, kind):
            self.wrong(key, _shown(value), f"must be {what}")
            return None
        return value

    def _value(self, key: str) -> Any:
        self._asked.add(key)
        if key not in self.config:
            self.mistake(f"{self._above}{key}: is not set; Pulumi.yaml describes it and has its default")
        return self.config.get(key)


def _shown(value: object) -> str:
    return value if isinstance(value, str) and value else json.dumps(value, default=str)
