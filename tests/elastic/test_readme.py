"""The script in README.md runs as printed, with the digits as its dataset."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.elastic.workers import Worker
from tests.pages import blocks
from tidewater.contract import exit_codes

LINES = 12


@pytest.fixture
def script(tmp_path: Path) -> Path:
    """Return the script in README.md."""
    path = tmp_path / "my_script.py"
    path.write_text(blocks("README.md", "python")[0])
    return path


def test_it_has_twelve_lines(script: Path) -> None:
    assert len([line for line in script.read_text().splitlines() if line]) == LINES


@pytest.mark.e2e
def test_two_workers_train_with_it_and_the_loss_falls(start: Callable[..., Worker], script: Path) -> None:
    first, second = (start(name, "--epochs", "3", "--min-workers", "2", python=(str(script),)) for name in "ab")
    assert first.wait() == second.wait() == exit_codes.FINISHED
    assert {line["world_size"] for line in first.steps()} == {"2"}
    losses = [float(line["loss"]) for line in first.steps()]
    assert losses[-1] < 0.5 * losses[0]
