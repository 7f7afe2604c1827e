"""A process that is killed during a broadcast, at any chunk, costs the others nothing."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.elastic.group.broadcast.lost_rank import CHUNKS, ROLES
from tests.elastic.workers import CHECKOUT, PATIENCE_SECONDS

pytestmark = pytest.mark.e2e

SAID = {
    "source": "broke, kept, has it; broke, has it",
    "holder": "broke, kept, has it; broke, has it",
    "newcomer": "broke, kept, has it; broke, kept, has it",
}


@pytest.mark.parametrize("role", ROLES)
def test_those_that_have_the_tensors_keep_them_and_newcomers_get_them_in_the_next_group(role: str) -> None:
    command = [sys.executable, "-m", "tests.elastic.group.broadcast.lost_rank", role]
    run = subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False)
    assert run.stdout.splitlines() == [SAID[role]] * CHUNKS, run.stderr
