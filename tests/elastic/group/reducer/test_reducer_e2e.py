"""Two processes that use different parameters in the same step."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.elastic.group.reducer.uneven_ranks import STEPS
from tests.elastic.workers import CHECKOUT, PATIENCE_SECONDS

pytestmark = pytest.mark.e2e


@pytest.mark.parametrize("sum_dtype", ["fp32", "bf16"])
def test_ranks_that_use_different_parameters_have_the_gradients_of_one_process_with_all_samples(sum_dtype: str) -> None:
    command = [sys.executable, "-m", "tests.elastic.group.reducer.uneven_ranks", sum_dtype]
    run = subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False)
    assert run.stdout.splitlines() == [f"{name}: equal | {name}: equal | the same bits" for name in STEPS], run.stderr
