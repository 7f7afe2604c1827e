"""The group of real workers: with a torch without in-process reconfiguration, and with peers that freeze."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable
from itertools import pairwise

import pytest

from contract import exit_codes
from tests.trainer.workers import CHECKOUT, PATIENCE_SECONDS, Worker

pytestmark = pytest.mark.e2e

OLDER_TORCH = (
    "-c",
    "import sys, torch.distributed.distributed_c10d as c10d; del c10d._reconfigure; "
    "from trainer.main import main; sys.exit(main())",
)
LONG = ("--epochs", "1000", "--min-step-seconds", "0.02", "--metrics-port", "0")


def test_with_an_older_torch_workers_come_and_go_in_the_same_processes(start: Callable[..., Worker]) -> None:
    a, b, c = (start(name, *LONG, python=OLDER_TORCH) for name in "abc")
    for worker in (a, b, c):
        worker.wait_for_world(3)
    c.signal(signal.SIGKILL)
    for worker in (a, b):
        worker.wait_for_world(2)
    d = start("d", *LONG, python=OLDER_TORCH)
    for worker in (a, b, d):
        worker.wait_for_world(3)
    b.signal(signal.SIGTERM)
    assert b.wait() == exit_codes.LEFT
    a.wait_for_world(2)
    steps = [int(line["step"]) for line in a.steps()]
    assert all(after == before + 1 for before, after in pairwise(steps))


SEVERAL_BUCKETS = "tests/trainer/several_buckets.py"
OLDER_TORCH_SEVERAL_BUCKETS = (
    "-c",
    "import runpy, torch.distributed.distributed_c10d as c10d; del c10d._reconfigure; "
    f"runpy.run_path('{SEVERAL_BUCKETS}', run_name='__main__')",
)
NEVER = "100000"


@pytest.mark.parametrize("python", [(SEVERAL_BUCKETS,), OLDER_TORCH_SEVERAL_BUCKETS], ids=["reconfigured", "restarted"])
def test_workers_that_freeze_one_after_the_other_hold_up_no_later_generation(
    start: Callable[..., Worker], python: tuple[str, ...]
) -> None:
    arguments = ("--epochs", "1000", "--batch-size", "48", "--group-timeout-seconds", NEVER, "--metrics-port", "0")
    a, b, c = (start(name, *arguments, python=python) for name in "abc")
    for worker in (a, b, c):
        worker.wait_for_world(3)
    c.signal(signal.SIGSTOP)
    for worker in (a, b):
        worker.wait_for_world(2)
    b.signal(signal.SIGSTOP)
    a.wait_for_world(1)
    for worker in (b, c):
        worker.signal(signal.SIGCONT)
    for worker in (a, b, c):
        worker.wait_for_world(3)
    a.signal(signal.SIGTERM)
    assert a.wait() == exit_codes.LEFT


def test_who_gives_a_frozen_rank_up_has_nothing_in_flight_any_more() -> None:
    command = [sys.executable, "-m", "tests.trainer.frozen_rank", NEVER]
    run = subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False)
    assert run.stdout.splitlines() == ["gave up: lost", "went on: [1.0, 1.0, 1.0]", "left in flight: 0"], run.stderr
    assert run.returncode == 0
