"""Durations as people type them: 90, 90s, 10m, 1h30m.

parsed("1h30m")      # timedelta(minutes=90)
"""

from __future__ import annotations

import re
from datetime import timedelta

import typer

_PATTERN = re.compile(r"(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s?)?")


def parsed(text: str) -> timedelta:
    """Return a duration; a number alone is seconds.

    Raises:
        typer.BadParameter: it is none. typer adds the flag's name.
    """
    found = _PATTERN.fullmatch(text.strip())
    if not text.strip() or not found:
        raise typer.BadParameter(f"{text!r} is not a duration; write 90s, 10m or 1h30m")
    days, hours, minutes, seconds = (int(part or 0) for part in found.groups())
    return timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds)


def spoken(duration: timedelta) -> str:
    """Return a duration as it would be typed: 90s is 1m30s."""
    whole = int(duration.total_seconds())
    parts = ((whole // 3600, "h"), (whole % 3600 // 60, "m"), (whole % 60, "s"))
    return "".join(f"{number}{unit}" for number, unit in parts if number) or "0s"
