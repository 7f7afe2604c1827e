"""Which processes are asked for their metrics in one look, and what they have answered so far. Pure.

    answers = NO_ANSWERS
    for each look:
        asked = chosen(processes, answers)
        answers = answers.then(processes, {process: reading_or_reason for process in asked})

Each look makes at most MOST_ASKED requests, however many processes there are. All of them are asked in turn. These are
asked in every look: a few that always are, because a rate needs two readings; those that the others wait for; those
that wait most; and those that haven't answered.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import TypeVar

from tidewater.cli.top.scrape import Reading, Scraped

MOST_ASKED = 40
"""Requests of one look for metrics; up to so many processes are all asked in each look."""
_ALWAYS = 10
_URGENT = 15
_WAITING_MOST = 5

T = TypeVar("T")

Process = tuple[str, int]
"""A process of a worker: the uid of its pod and its port."""


@dataclass(frozen=True)
class Answers:
    """What the processes have answered up to a look."""

    looks: int = 0
    processes: int = 0
    """Processes that could be asked in the last look."""
    asked: Mapping[Process, int] = field(default_factory=dict)
    """The number of the look in which each process was last asked."""
    found: Mapping[Process, Reading | str] = field(default_factory=dict)
    """The reading of that look, or why there was none."""

    def then(self, processes: Sequence[Process], new: Mapping[Process, Reading | str]) -> Answers:
        """Return the answers after one more look; `processes` are those that exist."""
        both = {**self.found, **new}
        found = {each: both[each] for each in processes if each in both}
        asked = {each: self.looks + 1 if each in new else self.asked[each] for each in found}
        return Answers(self.looks + 1, len(processes), asked, found)

    @property
    def asked_last(self) -> int:
        """Return how many processes were asked in the last look."""
        return sum(look == self.looks for look in self.asked.values())

    @property
    def in_turn(self) -> bool:
        """Return whether there are more processes than one look may ask."""
        return self.processes > MOST_ASKED

    def scraped(self, uid: str, name: str, ports: Iterable[int]) -> Scraped:
        """Return what is known of one pod."""
        found = {port: self.found[uid, port] for port in ports if (uid, port) in self.found}
        silences = [f"port {port} of {name}: {answer}" for port, answer in found.items() if isinstance(answer, str)]
        return Scraped(
            {port: answer for port, answer in found.items() if isinstance(answer, Reading)},
            silences[-1] if silences else "",
            unasked=sum(self.asked.get((uid, port)) != self.looks for port in ports),
        )


NO_ANSWERS = Answers()


def chosen(processes: Sequence[Process], before: Answers) -> list[Process]:
    """Return whom to ask in the next look."""
    if len(processes) <= MOST_ASKED:
        return list(processes)
    due = sorted(processes, key=lambda each: before.asked.get(each, 0))
    silent = [each for each in due if isinstance(before.found.get(each), str)]
    readings = {each: found for each in processes if isinstance(found := before.found.get(each), Reading)}
    slow = sorted((each for each in readings if readings[each].straggler), key=lambda each: -readings[each].straggler)
    waits = sorted((each for each in readings if readings[each].waits), key=lambda each: -readings[each].waits)
    always = [each for each in processes if not isinstance(before.found.get(each), str)][:_ALWAYS]
    urgent = alternating(slow, silent, waits[:_WAITING_MOST])[:_URGENT]
    return list(dict.fromkeys([*always, *urgent, *due]))[:MOST_ASKED]


def alternating(*lists: Sequence[T]) -> list[T]:
    """Return the first of each list, then the second of each, and so on, without repetitions."""
    rows = zip_longest(*([(each,) for each in found] for found in lists), fillvalue=())
    return list(dict.fromkeys(each for row in rows for cell in row for each in cell))
