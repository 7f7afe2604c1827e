"""The script in the guide to training runs as printed."""

from __future__ import annotations

import re
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from contract import exit_codes
from tests.trainer.workers import CHECKOUT, Worker

pytestmark = pytest.mark.e2e

MOST_LINES = 40


@pytest.fixture
def script(tmp_path: Path) -> Path:
    """Return the script in docs/training.md."""
    found = re.search(r"```python\n(.*?)```", (CHECKOUT / "docs" / "training.md").read_text(), re.DOTALL)
    assert found
    path = tmp_path / "my_script.py"
    path.write_text(found[1])
    return path


def test_a_users_script_has_at_most_40_lines(script: Path) -> None:
    assert len(script.read_text().splitlines()) <= MOST_LINES


def test_a_users_script_continues_when_a_worker_is_killed_and_finishes(
    start: Callable[..., Worker], script: Path
) -> None:
    a, b = (start(name, "--epochs", "3", "--evaluate-every", "1", python=(str(script),)) for name in "ab")
    a.wait_for_world(2)
    b.signal(signal.SIGKILL)
    a.wait_for(lambda worker: worker.events("recovered"))
    assert a.wait() == exit_codes.FINISHED
    assert len(a.events("evaluated")) == 3
    assert float(a.events("finished")[0]["accuracy"]) > 0.5
