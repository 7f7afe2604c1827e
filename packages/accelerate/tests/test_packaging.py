"""The lock of what the workers' image lacks."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path

from tidewater.project.lock import parse

PACKAGE = Path(__file__).parents[1]


def test_the_stack_takes_the_lock_as_it_is_with_the_version_that_is_tested() -> None:
    found, mistakes = parse((PACKAGE / "requirements.txt").read_text(), PACKAGE)
    assert mistakes == []
    assert f"accelerate=={version('accelerate')} --hash" in found.lock
