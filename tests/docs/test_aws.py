"""docs/aws.md names tests that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
NAMED = re.findall(r"`([\w/]+\.py)::(test_\w+)`", (ROOT / "docs" / "aws.md").read_text())


@pytest.mark.parametrize(("file", "name"), NAMED, ids=[name for _, name in NAMED])
def test_a_fact_about_aws_has_a_test(file: str, name: str) -> None:
    assert re.search(rf"^def {name}\(", (ROOT / file).read_text(), re.MULTILINE)


def test_every_fact_names_its_test() -> None:
    rows = [line for line in (ROOT / "docs" / "aws.md").read_text().splitlines() if line.startswith("| ")]
    facts = [row for row in rows if not row.startswith("| Fact |")]
    assert facts
    assert [row for row in facts if "::test_" not in row] == []
