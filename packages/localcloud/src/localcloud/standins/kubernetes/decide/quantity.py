"""Kubernetes quantities: `1000m` and `1` are the same amount of CPU, so they are not a difference.

See https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/quantity/
"""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Any, Final

_FORM: Final = re.compile(r"([+-]?(?:\d+\.?\d*|\.\d+))(?:([eE][+-]?\d+)|([KMGTPE]i|[numkMGTPE]))?")
_SCALE: Final = {
    **{f"{letter}i": Decimal(1024) ** power for power, letter in enumerate("KMGTPE", start=1)},
    **{letter: Decimal(1000) ** power for power, letter in enumerate("numkMGTPE", start=-3) if power < 0},
    **{letter: Decimal(1000) ** power for power, letter in enumerate("kMGTPE", start=1)},
}
_PLACES: Final = frozenset(
    "allocatable capacity divisor hard limits max min overhead podFixed requests sizeLimit".split()
)


def parse(value: Any) -> Decimal | None:
    """Return the amount; None when the value is not a quantity."""
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        return None
    match = _FORM.fullmatch(str(value))
    if match is None:
        return None
    number, exponent, suffix = match.groups()
    return Decimal(number + (exponent or "")) * _SCALE.get(suffix or "", Decimal(1))


def same(path: tuple[str | int, ...], old: Any, new: Any) -> bool:
    """Return whether two different spellings, at a path that holds quantities, mean the same amount."""
    if not any(step in _PLACES for step in path[-2:]):
        return False
    amount = parse(old)
    return amount is not None and amount == parse(new)
