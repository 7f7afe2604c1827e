"""A newcomer has no second copy of the state in its memory."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.elastic.workers import CHECKOUT, PATIENCE_SECONDS

pytestmark = pytest.mark.e2e

MEGABYTES = "256"
MOST = 1.25
"""Of the size of the state: the state itself, and a few megabytes. A second copy of the parameters is another third."""


def test_the_parameters_that_a_newcomer_receives_are_in_its_memory_once() -> None:
    command = [sys.executable, "-m", "benchmarks.elastic.workers.transfer", MEGABYTES, "1"]
    run = subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=True)
    (ratio,) = json.loads(run.stdout)["memory"]
    assert ratio < MOST
