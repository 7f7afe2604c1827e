"""A progress bar on a terminal, by the conventions of tqdm, from the lines that workers log.

    bar = bar_of(sys.stderr, os.environ)    # None: it is no terminal
    if not bar.shows(parse(text)):          # the report of a step is in the bar, and any other line is printed above it
        with bar.lifted():
            print(text)

    epoch 3:  42%|████▏     | 420/1000 [00:21<00:30, 850samples/s, loss=0.3121, workers=3]

Several processes may share a terminal: each erases the line that it is in before it prints, and the bar is drawn again.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import TextIO

_BLOCKS = " ▏▎▍▌▋▊▉█"
_ASCII = dict.fromkeys(map(ord, _BLOCKS[1:]), "#")
_ERASE = "\r\x1b[K"
_OF_A_REPORT = {"step", "epoch", "world_size", "loss", "samples_per_s", "rank", "worker", "time"}
_SMOOTHING = 0.3
"""Weight of the newest speed, as in tqdm."""
_LEAST_SECONDS = 0.1
"""Between two drawings, as in tqdm."""
_LEAST_WIDTH = 3
_COLUMNS = 80


def bar_of(stream: TextIO, environ: Mapping[str, str]) -> Bar | None:
    """Return a bar for a stream; None if it is no terminal that can show one, or if this is a pod."""
    if environ.get("TERM", "dumb") == "dumb" or "KUBERNETES_SERVICE_HOST" in environ or not stream.isatty():
        return None
    return Bar(stream)


@cache
def own_bar() -> Bar | None:
    """Return the bar of this process, on standard error. It ends with the process."""
    bar = bar_of(sys.stderr, os.environ) if sys.stderr else None
    if bar:
        atexit.register(bar.close)
    return bar


class Bar:
    """The bar of one job. Threads may share it."""

    def __init__(self, stream: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        self._stream, self._clock = stream, clock
        self._lock = threading.RLock()
        self._total: int | None = None
        self._last: Mapping[str, str] = {}
        """The newest report of rank 0."""
        self._began = self._at = 0.0
        self._speed = 0.0
        """Steps per second."""
        self._drawn = float("-inf")

    def shows(self, fields: Mapping[str, str]) -> bool:
        """Take a line's fields. Return whether it is the report of a step; rank 0's are shown."""
        with self._lock:
            if fields.get("event") == "prepared" and "steps" in fields:
                self._total = int(fields["steps"])
            if not fields.keys() >= _OF_A_REPORT:
                return False
            if fields["rank"] == "0":
                self._advance(fields, self._clock())
            return True

    @contextlib.contextmanager
    def lifted(self) -> Iterator[None]:
        """Remove the bar while other lines are written, which have to be flushed."""
        with self._lock:
            self._write(_ERASE)
            yield
            self._draw()

    def close(self) -> None:
        """Leave the bar as it is: what follows is below it."""
        with self._lock:
            if self._last:
                self._draw()
                self._write("\n")
            self._last = {}

    def _advance(self, fields: Mapping[str, str], now: float) -> None:
        if self._last:
            speed = (int(fields["step"]) - int(self._last["step"])) / max(now - self._at, 1e-6)
            self._speed = _SMOOTHING * max(speed, 0.0) + (1 - _SMOOTHING) * (self._speed or max(speed, 0.0))
        else:
            self._began = now
        self._last, self._at = fields, now
        if now - self._drawn >= _LEAST_SECONDS:
            self._draw()

    def _draw(self) -> None:
        if self._last:
            self._drawn = self._clock()
            shown = text(self._last, self._total, self._drawn - self._began, self._speed, _columns(self._stream) - 1)
            unicode = (self._stream.encoding or "").lower().startswith("utf")
            self._write(_ERASE + (shown if unicode else shown.translate(_ASCII)))

    def _write(self, what: str) -> None:
        with contextlib.suppress(OSError):  # the terminal has gone away
            self._stream.write(what)
            self._stream.flush()


def text(fields: Mapping[str, str], total: int | None, seconds: float, speed: float, columns: int) -> str:
    """Return the bar.

    Args:
        fields: Of the report of a step.
        total: Steps of the job; None if it isn't known.
        seconds: Since the first report.
        speed: Steps per second; 0 if it isn't known.
        columns: The most characters.
    """
    step, before, passed = int(fields["step"]), f"epoch {fields['epoch']}: ", _duration(seconds)
    rest = f"{fields['samples_per_s']}samples/s, loss={fields['loss']}, workers={fields['world_size']}]"
    if not total:
        return f"{before}{step}step [{passed}, {rest}"[:columns]
    share = min(step / total, 1.0)
    remaining = _duration(max(total - step, 0) / speed) if speed else "?"
    before, after = f"{before}{share:4.0%}", f" {step}/{total} [{passed}<{remaining}, {rest}"
    width = columns - len(before) - len(after) - 2
    return f"{before}|{_blocks(share, width)}|{after}" if width >= _LEAST_WIDTH else f"{before}{after}"[:columns]


def _blocks(share: float, width: int) -> str:
    full, part = divmod(int(share * width * (len(_BLOCKS) - 1)), len(_BLOCKS) - 1)
    return (_BLOCKS[-1] * full + (_BLOCKS[part] if part else "")).ljust(width)


def _duration(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes:02d}:{rest:02d}"


def _columns(stream: TextIO) -> int:
    try:
        return os.get_terminal_size(stream.fileno()).columns or _COLUMNS
    except (OSError, ValueError):
        return _COLUMNS
