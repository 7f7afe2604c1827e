"""A table gives up columns, then the beginning of a name, and never a number."""

from __future__ import annotations

import io

import pytest
from rich.console import Console
from rich.text import Text

from tidewater.cli.top.view import Shape, fitted, widths

SHAPE = Shape(leave=("KIND", "NODE"), flexible="NODE")
CONTENTS = {"WORKER": 15, "KIND": 5, "STEP": 6, "NODE": 40}


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        pytest.param(200, CONTENTS, id="room-for-all"),
        pytest.param(72, CONTENTS, id="just-enough"),
        pytest.param(71, {**CONTENTS, "NODE": 39}, id="one-too-few"),
        pytest.param(40, {**CONTENTS, "NODE": 8}, id="shortest-node"),
        pytest.param(39, {"WORKER": 15, "STEP": 6, "NODE": 14}, id="the-first-is-left-out"),
        pytest.param(32, {"WORKER": 15, "STEP": 6}, id="all-are-left-out"),
        pytest.param(20, {"WORKER": 12, "STEP": 6}, id="the-name-is-shortened"),
        pytest.param(5, {"WORKER": 8, "STEP": 6}, id="narrower-than-any-terminal"),
    ],
)
def test_what_gives_way_first(columns: int, expected: dict[str, int]) -> None:
    assert widths(CONTENTS, SHAPE, columns) == expected


def test_a_column_of_short_content_is_not_made_wider() -> None:
    assert widths({"WORKER": 6, "NODE": 4}, SHAPE, 12) == {"WORKER": 6, "NODE": 4}


def test_a_name_that_is_too_long_keeps_its_end_and_its_colour() -> None:
    console = Console(file=io.StringIO(), width=20, force_terminal=True, color_system="standard", legacy_windows=False)
    console.print(fitted(["WORKER", "STEP"], [[Text("digits-worker-11", style="red"), Text("123456")]], SHAPE, 20))
    assert isinstance(console.file, io.StringIO)
    assert "\x1b[31m…s-worker-11\x1b[0m  123456" in console.file.getvalue()
