"""The guide has the flags as they are."""

from __future__ import annotations

import re
from pathlib import Path

from elasticdl.client.flags import reference, table
from elasticdl.client.flags.refused import REFUSED

GUIDE = Path(__file__).resolve().parents[3] / "docs" / "elasticdl.md"
BEGIN, END = "<!-- python -m elasticdl.client.flags.reference -->\n", "<!-- end -->\n"


def test_the_guides_table_of_flags_is_the_commands() -> None:
    found = GUIDE.read_text().partition(BEGIN)[2].partition(END)[0]
    assert found.splitlines() == reference.lines()


def test_every_flag_is_in_the_table_once() -> None:
    named = [name for line in reference.lines() for name in re.findall(r"`(\w+)`", line.split("|")[1])]
    assert sorted(named) == sorted([*table.known(), *REFUSED])
