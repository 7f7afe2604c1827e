"""The trainer's log: one logfmt line per report or event, on stdout.

    log = Log("digits-0")
    log.progress(step=120, epoch=3, world_size=2, generation=4, loss=0.3121, samples_per_s=850)
    log.event("peer_lost", peer="digits-1", generation=4)

    step=120 epoch=3 world_size=2 generation=4 loss=0.3121 samples_per_s=850 worker=digits-0 time=…T10:00:00.120Z
    event=peer_lost peer=digits-1 generation=4 worker=digits-0 time=…T10:00:00.450Z

Fields keep their order. Values with spaces, quotes or equals signs are quoted as JSON strings. On a terminal, a
progress bar replaces the reports of rank 0 (see ``bar``). ``is_reported`` says which workers log a step.
"""

from __future__ import annotations

import contextlib
import json
import math
import re
import sys
import threading
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import TextIO

from tidewater.elastic.observe.bar import own_bar

Value = str | int | float | bool | None
Listener = Callable[[str, Mapping[str, Value]], None]

MOST_REPORTS = 32
"""Workers that log the same step, rank 0 not counted. All of a thousand would write the same loss a thousand times."""

_FIRST_SECONDS, _LONGEST_SECONDS = 10.0, 600.0
_OVER_SECONDS = 30.0
_BARE = re.compile(r"[^\s\"=]+")


def line(**fields: Value) -> str:
    """Return the fields as one logfmt line without its newline; fields that are None are left out."""
    return " ".join(f"{key}={_text(value)}" for key, value in fields.items() if value is not None)


def parse(text: str) -> dict[str, str]:
    """Return the fields of one logfmt line; what is not a ``key=value`` pair is skipped."""
    fields = {}
    for key, quoted, bare in re.findall(r'([\w.]+)=(?:("(?:[^"\\]|\\.)*")|(\S*))', text):
        fields[key] = str(json.loads(quoted)) if quoted else bare
    return fields


def is_reported(number: int, rank: int, world_size: int) -> bool:
    """Return whether a rank logs a step: all of a small job do; of a large one rank 0 does, and the others in turn.

    Args:
        number: The step's number among those that are logged at all.
        rank: The worker's.
        world_size: Workers in the step.
    """
    apart = math.ceil(world_size / MOST_REPORTS)
    return rank == 0 or rank % apart == number % apart


class Log:
    """Writes lines that end with the worker's name and the time in UTC. Threads may share it.

    ``listener`` is called for every event with its name and fields, so that metrics and log agree.
    """

    def __init__(
        self,
        worker: str,
        *,
        stream: TextIO | None = None,
        clock: Callable[[], float] = time.time,
        debug: bool = False,
        listener: Listener = lambda name, fields: None,
    ) -> None:
        self._worker = worker
        self._stream = stream
        self._bar = None if stream else own_bar()
        self._clock = clock
        self._debug = debug
        self._listener = listener
        self._lock = threading.Lock()

    def progress(self, **fields: Value) -> None:
        """Write a report on training."""
        self._write(line(**fields))

    def event(self, name: str, **fields: Value) -> None:
        """Write an event that affects training."""
        self._listener(name, fields)
        self._write(line(event=name, **fields))

    def debug(self, name: str, **fields: Value) -> None:
        """Write an event only with ``--debug``."""
        if self._debug:
            self.event(name, **fields)

    def _write(self, text: str) -> None:
        now = datetime.fromtimestamp(self._clock(), UTC)
        stamp = now.strftime("%Y-%m-%dT%H:%M:%S.") + f"{now.microsecond // 1000:03d}Z"
        text = f"{text} {line(worker=self._worker, time=stamp)}"
        with self._lock:
            stream, bar = self._stream or sys.stdout, self._bar
            if bar and bar.shows(fields := parse(text)) and fields["rank"] == "0" and stream.isatty():
                return
            with bar.lifted() if bar else contextlib.nullcontext():
                stream.write(f"{text}\n")
                stream.flush()


class Lasting:
    """An event of a trouble that lasts: written at once, then at intervals that double. Threads may share it."""

    def __init__(self, log: Log, name: str, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._log, self._name, self._clock = log, name, clock
        self._last, self._due, self._interval = float("-inf"), 0.0, 0.0

    def say(self, **fields: Value) -> None:
        """Write the event if it is due. After half a minute without a call the trouble is a new one."""
        now = self._clock()
        if now - self._last > _OVER_SECONDS:
            self._due, self._interval = now, _FIRST_SECONDS
        self._last = now
        if now >= self._due:
            self._due, self._interval = now + self._interval, min(2 * self._interval, _LONGEST_SECONDS)
            self._log.event(self._name, **fields)


def _text(value: Value) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return f"{value:.4g}" if value and abs(value) < 0.01 else f"{value:.4f}".rstrip("0").rstrip(".")
    text = str(value)
    return text if _BARE.fullmatch(text) else json.dumps(text, ensure_ascii=False)
