"""Which minibatches have been counted, in bounded memory.

counted = Counted()
if not counted.has(key):
    counted.add(key)
"""

from __future__ import annotations

import json
from collections import OrderedDict
from dataclasses import dataclass

from elasticdl.errors import InputError

WINDOW = 256
"""Numbers that are remembered of each process. A worker has far fewer pushes under way; older ones count as counted."""
PROCESSES = 4096
"""Processes with remembered minibatches: those that pushed last. Processes that have ended push nothing again."""


@dataclass(frozen=True)
class Minibatch:
    """One minibatch of one process of a worker."""

    worker: str
    process: str
    number: int
    """Ascending in the process."""


class Counted:
    """The minibatches that a server has counted."""

    def __init__(self) -> None:
        self._numbers: OrderedDict[tuple[str, str], set[int]] = OrderedDict()

    def has(self, minibatch: Minibatch) -> bool:
        """Return whether a minibatch was counted, or is too old to be a new one."""
        numbers = self._numbers.get((minibatch.worker, minibatch.process))
        return numbers is not None and (minibatch.number in numbers or minibatch.number <= max(numbers) - WINDOW)

    def add(self, minibatch: Minibatch) -> None:
        """Count a minibatch."""
        key = (minibatch.worker, minibatch.process)
        numbers = self._numbers.setdefault(key, set())
        self._numbers.move_to_end(key)
        numbers.add(minibatch.number)
        if len(numbers) > 2 * WINDOW:
            self._numbers[key] = {each for each in numbers if each > max(numbers) - WINDOW}
        while len(self._numbers) > PROCESSES:
            self._numbers.popitem(last=False)

    def to_json(self, without: frozenset[Minibatch] = frozenset()) -> str:
        """Return what was counted as JSON, without some that were counted but not applied."""
        kept = {
            key: sorted(number for number in numbers if Minibatch(*key, number) not in without)
            for key, numbers in self._numbers.items()
        }
        return json.dumps([[*key, numbers] for key, numbers in kept.items() if numbers])

    @staticmethod
    def from_json(text: str) -> Counted:
        """Return what `to_json` wrote; raise InputError for anything else."""
        counted = Counted()
        try:
            for worker, process, numbers in json.loads(text):
                counted._numbers[str(worker), str(process)] = {int(number) for number in numbers}
        except (ValueError, TypeError) as error:
            raise InputError(f"this lists no minibatches: {text[:200]!r} ({error})", "see Counted.to_json") from None
        return counted
