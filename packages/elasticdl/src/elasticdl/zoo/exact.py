"""A sum of floats that does not depend on the order of its terms.

    total = ExactSum()
    total.add_all([1e16, 1.0, -1e16])
    total.divided_by(1)      # 1.0

Every finite float64 is a whole multiple of 2**-1074, the smallest one, so the sum is kept as a whole number of those.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from fractions import Fraction
from typing import Any

_UNITS = 1 << 1074
"""Of the smallest positive float64, in one."""


class ExactSum:
    """A sum of float64 numbers; infinities and NaN are counted apart and give what adding them gives."""

    def __init__(self) -> None:
        self._units = 0
        self._odd = {"nan": 0, "inf": 0, "-inf": 0}

    def add(self, value: float, times: int = 1) -> None:
        """Add a number, several times over."""
        if math.isfinite(value):
            numerator, denominator = value.as_integer_ratio()
            self._units += times * numerator * (_UNITS // denominator)
        else:
            self._odd[str(value)] += times

    def add_all(self, values: Iterable[float]) -> None:
        """Add numbers."""
        for value in values:
            self.add(value)

    def state(self) -> dict[str, Any]:
        """Return the sum as JSON can hold it."""
        return {"units": f"{self._units:x}", "odd": dict(self._odd)}

    def merge(self, state: dict[str, Any]) -> None:
        """Add the sum that `state` returned."""
        self._units += int(state["units"], 16)
        for name, count in state["odd"].items():
            self._odd[name] += int(count)

    def divided_by(self, count: int) -> float:
        """Return the sum divided by a count, rounded once; NaN for a count of zero."""
        if self._odd["nan"] or not count or (self._odd["inf"] and self._odd["-inf"]):
            return math.nan
        if self._odd["inf"] or self._odd["-inf"]:
            return math.inf if self._odd["inf"] else -math.inf
        try:
            return float(Fraction(self._units, _UNITS * count))
        except OverflowError:
            return math.inf if self._units > 0 else -math.inf
