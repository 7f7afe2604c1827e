"""Combines what several passes of a step have changed in buffers, on one rank.

    accumulation = Accumulation(part_of)
    accumulation.add({"norm.mean": ...}, 0.5)   # a pass with half of the rank's samples
    accumulation.add({"norm.mean": ...}, 0.5)
    values = accumulation.combined()

Each pass has begun with the agreed values, as it would on a rank of its own. So how many ranks share a step, and how
many passes each makes, changes nothing but the order of sums. ``combining`` has the rules.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from torch import Tensor

from tidewater.elastic.buffers.combining import Part, decode, encode


class Accumulation:
    """The passes of one step. ``part_of`` returns the part of a buffer, from the values that a pass has changed."""

    def __init__(self, part_of: Callable[[str, Mapping[str, Tensor]], Part]) -> None:
        self._part_of = part_of
        self.fraction = 0.0
        """That of the samples that the passes so far have had."""
        self._sums: list[tuple[list[str], Tensor]] = []
        """Names and sums: of the buffers that the first pass has changed, then of those that a later pass has added."""

    def __bool__(self) -> bool:
        return bool(self.fraction)

    def add(self, changed: Mapping[str, Tensor], fraction: float) -> None:
        """Add what a pass with this fraction of the rank's samples has changed."""
        known = {name for names, _ in self._sums for name in names}
        if new := [name for name in changed if name not in known]:
            unchanged = [self._part_of(name, {}) for name in new]
            self._sums.append((new, encode(unchanged, self.fraction)))
        for names, sums in self._sums:
            sums += encode([self._part_of(name, changed) for name in names], fraction)
        self.fraction += fraction

    def combined(self) -> dict[str, Tensor]:
        """Return the new values of the buffers that any pass has changed. The fractions of the passes add up to 1."""
        return {
            name: value
            for names, sums in self._sums
            for name, value in zip(names, decode(sums, [self._part_of(name, {}) for name in names]), strict=True)
        }
