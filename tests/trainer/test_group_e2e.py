"""A torch without in-process reconfiguration: the group is destroyed and made anew, and training goes on as well."""

from __future__ import annotations

import signal
from collections.abc import Callable
from itertools import pairwise

import pytest

from contract import exit_codes
from tests.trainer.workers import Worker

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
