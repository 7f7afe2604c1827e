"""The group of real workers: with a torch without in-process reconfiguration, and with peers that freeze."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable
from itertools import pairwise

import pytest

from tests.elastic.workers import CHECKOUT, PATIENCE_SECONDS, Worker
from tidewater.contract import exit_codes

pytestmark = pytest.mark.e2e

LONG = ("--epochs", "1000", "--metrics-port", "0")
SEVERAL_BUCKETS = "tests/elastic/group/several_buckets.py"
NEVER = "100000"
WENT_ON = "went on: [32.0, 32.0, 32.0] [32.0, 32.0, 32.0]"


def with_an_older_torch(then: str) -> tuple[str, ...]:
    """Return Python arguments that run ``then`` without the private API for reconfiguring a group in the process."""
    return "-c", f"import torch.distributed.distributed_c10d as c10d; del c10d._reconfigure; {then}"


OLDER = with_an_older_torch("import runpy; runpy.run_module('trainer.train', run_name='__main__')")
OLDER_SEVERAL_BUCKETS = with_an_older_torch(f"import runpy; runpy.run_path('{SEVERAL_BUCKETS}', run_name='__main__')")


def are_together(*workers: Worker) -> None:
    """Wait until each worker has made a step with all the given workers."""
    for worker in workers:
        worker.wait_for_world(len(workers))


def test_workers_join_and_leave_in_the_same_processes_with_an_older_torch(start: Callable[..., Worker]) -> None:
    arguments = (*LONG, "--min-step-seconds", "0.02")
    a, b, c = (start(name, *arguments, python=OLDER) for name in "abc")
    are_together(a, b, c)
    c.signal(signal.SIGKILL)
    are_together(a, b)
    d = start("d", *arguments, python=OLDER)
    are_together(a, b, d)
    b.signal(signal.SIGTERM)
    assert b.wait() == exit_codes.LEFT
    a.wait_for_world(2)
    steps = [int(line["step"]) for line in a.steps()]
    assert all(after == before + 1 for before, after in pairwise(steps))


@pytest.mark.parametrize("python", [(SEVERAL_BUCKETS,), OLDER_SEVERAL_BUCKETS], ids=["reconfigured", "restarted"])
def test_successively_frozen_workers_do_not_block_later_generations(
    start: Callable[..., Worker], python: tuple[str, ...]
) -> None:
    arguments = (*LONG, "--batch-size", "48", "--group-timeout-seconds", NEVER)
    a, b, c = (start(name, *arguments, python=python) for name in "abc")
    are_together(a, b, c)
    c.signal(signal.SIGSTOP)
    are_together(a, b)
    b.signal(signal.SIGSTOP)
    are_together(a)
    for worker in (b, c):
        worker.signal(signal.SIGCONT)
    are_together(a, b, c)
    a.signal(signal.SIGTERM)
    assert a.wait() == exit_codes.LEFT


def test_a_rank_that_abandons_a_frozen_rank_has_no_pending_operations() -> None:
    command = [sys.executable, "-m", "tests.elastic.group.frozen_rank", NEVER]
    run = subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False)
    assert run.stdout.splitlines() == ["gave up: lost", WENT_ON, "left in flight: 0"], run.stderr
    assert run.returncode == 0


@pytest.mark.parametrize("torch", ["installed", "older"])
def test_sums_that_gloo_never_ends_delay_neither_the_next_generation_nor_the_end_of_the_process(torch: str) -> None:
    module = "tests.elastic.group.frozen_rank"
    older = with_an_older_torch(f"import runpy; runpy.run_module('{module}', run_name='__main__')")
    command = [sys.executable, *(older if torch == "older" else ("-m", module)), NEVER, "unnoticed"]
    run = subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False)
    said = run.stdout.splitlines()
    assert said[:2] == ["gave up: lost", WENT_ON], run.stderr
    assert int(said[2].removeprefix("left in flight: ")) > 0  # or this shows nothing
    assert run.returncode == 0
