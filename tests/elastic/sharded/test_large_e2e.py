"""A transformer of about 100 million parameters in parts: faults, a leave, joins, and other numbers of processes."""

from __future__ import annotations

import math
import os
import signal
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.elastic.sharded.script import Language
from tests.elastic.sharded.test_sharded_e2e import STEPS, Job, finished, pid, saved, undisturbed, verdict
from tests.elastic.workers import Worker
from tests.farm import Farm
from tidewater.contract import exit_codes

pytestmark = [pytest.mark.e2e, pytest.mark.soak]

WIDTH, LAYERS = 1536, 5
FLAGS = ("--width", str(WIDTH), "--layers", str(LAYERS), "--lr", "3e-4")
HELD = (*FLAGS, "--hold-at", "2")
"""Of all workers of the job, as `Job.together` starts them."""
SECONDS = 180.0
"""The longest wait: a step of the four processes takes some seconds."""
END_SECONDS = 900.0
"""The longest wait for the rest of the steps."""
TOLERANCE = 0.5 / STEPS
"""Half a step's share of what the weights have moved: how far those that were learned in parts and as a whole may be
apart. The order of sums differs."""


@pytest.fixture
def job(start: Callable[..., Worker], etcd: str, farm: Farm, tmp_path: Path, tmp_path_factory: Any) -> Job:
    return Job(start, tmp_path, undisturbed(etcd, farm, tmp_path_factory.mktemp("whole-large"), *FLAGS))


@pytest.mark.timeout(1800)
def test_no_fault_and_no_other_number_of_processes_changes_what_it_learns(job: Job) -> None:
    assert 9e7 < sum(parameter.numel() for parameter in Language(WIDTH, LAYERS).parameters()) < 1.1e8
    a, b = job.together(*FLAGS)
    synced = len(b.events("state_synced"))
    os.kill(pid(b, "b.1"), signal.SIGKILL)
    b.wait_for(lambda b: len(b.events("state_synced")) == synced + 2, SECONDS)
    a.wait_for_world(2, SECONDS)
    os.kill(pid(b, "b.1"), signal.SIGSTOP)
    a.wait_for_world(1, SECONDS)
    os.kill(pid(b, "b.1"), signal.SIGCONT)
    a.wait_for_world(2, SECONDS)
    a.signal(signal.SIGKILL)  # which has rank 0, and coordinates
    b.wait_for_world(1, SECONDS)
    c = job.start("c", 2, *HELD)
    b.wait_for_world(2, SECONDS)
    for worker in (b, c):
        worker.signal(signal.SIGTERM)
        assert worker.wait() == exit_codes.LEFT, worker.account()
    for shard in (3, 1):
        worker = job.start(f"p{shard}", shard, *HELD)
        worker.wait_for(lambda worker: len(worker.steps()) > 2, SECONDS)
        worker.signal(signal.SIGTERM)
        assert worker.wait() == exit_codes.LEFT, worker.account()
    last = job.start("last", 2, *HELD)
    last.wait(END_SECONDS)
    assert finished(last) == [1, 1]
    processes: defaultdict[int, set[int]] = defaultdict(set)
    for line in job.lines():
        if line[3] >= 0:  # not a report that a later worker has found in the checkpoint
            processes[line[1]].add(line[4])
    assert verdict(job.lines(), lambda generation: len(processes[generation])) == []
    assert not [line for worker in (a, b, c) for line in worker.events("drifted")]
    assert apart(job) < TOLERANCE


def apart(job: Job) -> float:
    """Return how far the weights are from those of the undivided model, as a part of how far those have moved."""
    torch.manual_seed(0)  # as the trainer does with the default of --seed, before it builds the model
    first = Language(WIDTH, LAYERS).state_dict()
    mine, whole = saved(job.folder / "checkpoints"), job.whole.learned
    assert mine.keys() == whole.keys() == first.keys()
    off = sum(float((mine[name] - each).square().sum()) for name, each in whole.items())
    moved = sum(float((each - first[name]).square().sum()) for name, each in whole.items())
    assert moved > 0
    return math.sqrt(off / moved)
