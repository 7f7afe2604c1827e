"""The controller's log: one logfmt line per event on stdout, as the trainer writes it.

    log = Log("controller-7d9f-x2x", level="info")
    log.info("pods_created", job="training/imagenet", pods="imagenet-worker-0,imagenet-worker-1")

    event=pods_created job=training/imagenet pods=imagenet-worker-0,… level=info controller=… time=…T10:00:00.120Z

Fields keep their order. Values with spaces, quotes or equals signs are quoted as JSON strings.
"""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import TextIO

Value = str | int | float | bool | None

LEVELS = ("debug", "info", "warning", "error")

_BARE = re.compile(r"[^\s\"=]+")


def line(**fields: Value) -> str:
    """Return the fields as one logfmt line without its newline; fields that are None are left out."""
    return " ".join(f"{key}={_text(value)}" for key, value in fields.items() if value is not None)


class Log:
    """Writes lines that end with the level, the controller's identity and the time in UTC.

    Args:
        identity: Which replica of the controller this is.
        level: The lowest of `LEVELS` that is written.
        stream: Where to write. Default: stdout.
        clock: Returns seconds since 1970.
    """

    def __init__(
        self,
        identity: str,
        *,
        level: str = "info",
        stream: TextIO | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._identity = identity
        self._lowest = LEVELS.index(level)
        self._stream = stream
        self._clock = clock

    def debug(self, event: str, **fields: Value) -> None:
        """Write what only helps to find a mistake."""
        self._write("debug", event, **fields)

    def info(self, event: str, **fields: Value) -> None:
        """Write what the controller did."""
        self._write("info", event, **fields)

    def warning(self, event: str, **fields: Value) -> None:
        """Write what went wrong and is tried again."""
        self._write("warning", event, **fields)

    def error(self, event: str, **fields: Value) -> None:
        """Write what a person has to fix."""
        self._write("error", event, **fields)

    def _write(self, level: str, event: str, **fields: Value) -> None:
        if LEVELS.index(level) < self._lowest:
            return
        now = datetime.fromtimestamp(self._clock(), UTC)
        stamp = now.strftime("%Y-%m-%dT%H:%M:%S.") + f"{now.microsecond // 1000:03d}Z"
        stream = self._stream or sys.stdout
        tail = line(level=level, controller=self._identity, time=stamp)
        stream.write(f"{line(event=event, **fields)} {tail}\n")
        stream.flush()


def _text(value: Value) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return f"{value:.3f}".rstrip("0").rstrip(".")
    text = str(value)
    return text if _BARE.fullmatch(text) else json.dumps(text, ensure_ascii=False)
