"""The commands of a checkout."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.checkout import Checkout, CommandFailedError


def test_a_command_that_takes_too_long_ends_with_all_that_it_has_started(tmp_path: Path) -> None:
    (tmp_path / "activate").touch()
    with pytest.raises(CommandFailedError, match="not done within 0 s"):
        # Whatever is still running holds the pipe open, and the test would not end.
        Checkout(tmp_path).run("sleep 1000 & sleep 1000", timeout=0)
