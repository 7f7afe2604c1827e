"""Durations as people type them."""

from __future__ import annotations

from datetime import timedelta

import pytest
import typer

from tidewater.cli.durations import parsed, spoken


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90", 90), ("90s", 90), ("10m", 600), ("1h30m", 5400), ("2d", 172800), ("0", 0), (" 5m ", 300)],
)
def test_durations_are_read_as_people_type_them(text: str, seconds: int) -> None:
    assert parsed(text) == timedelta(seconds=seconds)


@pytest.mark.parametrize("text", ["", " ", "soon", "5x", "m5", "-1", "1m1h"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(typer.BadParameter, match="is not a duration"):
        parsed(text)


@pytest.mark.parametrize(("seconds", "text"), [(0, "0s"), (90, "1m30s"), (3600, "1h"), (5430, "1h30m30s")])
def test_durations_are_written_as_they_are_read(seconds: int, text: str) -> None:
    assert spoken(timedelta(seconds=seconds)) == text
