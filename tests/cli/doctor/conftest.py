"""The place of the checks."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.doctor.places import Surroundings


@pytest.fixture
def here(tmp_path: Path) -> Surroundings:
    """Surroundings with all tools, without a kubeconfig and a checkout."""
    return Surroundings(tmp_path)
