"""Lines of logs: in the order of their times, and none twice when a stream begins again. `Position` alone has a state.

The kubelet writes each line's time before it when asked to. It takes the time to begin with in whole seconds only,
so that a stream that begins again repeats the lines of its first second.
"""

from __future__ import annotations

import heapq
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime

Moment = tuple[datetime, int]
"""Seconds and nanoseconds."""

BEGINNING: Moment = (datetime.min.replace(tzinfo=UTC), 0)
_STAMP = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?(Z|[+-]\d\d:\d\d) ?")


@dataclass(frozen=True, order=True)
class Line:
    """A line of a pod's log; `stamp` is its time as written, empty if the kubelet wrote it without one."""

    moment: Moment
    pod: str = field(compare=False)
    stamp: str = field(compare=False)
    text: str = field(compare=False)


def line_of(pod: str, raw: str) -> Line:
    """Return a line of the kubelet's answer. Without a time it is a message of the kubelet's own."""
    found = _STAMP.match(raw)
    if not found:
        return Line(BEGINNING, pod, "", raw)
    seconds, fraction, zone = found.groups()
    moment = datetime.fromisoformat(seconds + ("+00:00" if zone == "Z" else zone))
    return Line((moment, int((fraction or "").ljust(9, "0"))), pod, found[0].strip(), raw[found.end() :])


def merged(logs: Iterable[Iterable[Line]]) -> Iterator[Line]:
    """Yield the lines of several logs in the order of their times.

    A line without a time stays after the line before it in its log.
    """
    return heapq.merge(*(_dated(log) for log in logs))


def _dated(log: Iterable[Line]) -> Iterator[Line]:
    last = BEGINNING
    for line in log:
        last = max(last, line.moment)
        yield Line(last, line.pod, line.stamp, line.text)


class Position:
    """How far a pod's log has been read, so that it can be read on from there."""

    def __init__(self) -> None:
        self._first: Moment | None = None
        self._second = BEGINNING[0]
        self._seen: Counter[tuple[Moment, str]] = Counter()
        """Lines of the last second."""
        self._again: Counter[tuple[Moment, str]] = Counter()
        """Of those, the ones that the stream will repeat."""

    @property
    def since(self) -> str:
        """Return the time from which to read on, for `sinceTime`; empty before the first line."""
        return self._second.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ") if self._first else ""

    def again(self) -> None:
        """Expect the lines of the last second a second time: the stream begins again from `since`."""
        self._again = Counter(self._seen)

    def admits(self, line: Line) -> bool:
        """Return whether the line is a new one, and remember it."""
        if not line.stamp:
            return True
        key = (line.moment, line.text)
        if self._again[key] > 0:
            self._again[key] -= 1
            return False
        if self._first is None:
            self._first = line.moment
        if line.moment < self._first:
            return False  # it was left out by `tail`, and its second begins again
        if line.moment[0] > self._second:
            self._second = line.moment[0]
            self._seen.clear()
        if line.moment[0] == self._second:
            self._seen[key] += 1
        return True
