"""A worker that divides its model is compared with plain PyTorch, with the same work on both sides."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
import torch

from benchmarks.elastic import divided, faults, plan, results
from benchmarks.elastic.bench import DIVIDED, NEVER
from benchmarks.elastic.jobs import Job
from benchmarks.elastic.systems import ROOT, Site, System
from scripts import toolchain

MEGABYTE = 1 << 20


def test_the_ratio_is_of_neighbouring_turns_and_one_slow_turn_changes_nothing() -> None:
    assert divided.ratio([[2.0, 4.0, 50.0]], [[1.0, 2.0, 1.0]]) == 2.0


def test_what_is_slower_because_it_has_started_first_counts_for_both_systems() -> None:
    assert divided.ratio([[1.1, 1.1], [1.0, 1.0]], [[1.0, 1.0], [1.1, 1.1]]) == pytest.approx(1.0)


def test_memory_that_a_process_has_had_for_a_moment_counts_until_the_peak_is_reset() -> None:
    pid = os.getpid()
    divided.reset_peaks([pid])
    before = divided.peak(pid)
    torch.ones(64 * MEGABYTE // 4)
    assert divided.peak(pid) >= before + 60 * MEGABYTE
    divided.reset_peaks([pid])
    assert divided.peak(pid) < before + 30 * MEGABYTE


def test_the_loss_of_a_worker_is_compared_with_torchft_and_its_measures_say_how_many_workers_there_are() -> None:
    blocks = plan.blocks(["kill-divided", "divided"], ["tidewater", "torchft", "torchrun"], 5)
    assert [[series.system for series in block] for block in blocks] == [["tidewater", "torchft"], ["tidewater"]]
    assert blocks[0][0].counted == f"divided model, {faults.KILL.headline}"
    assert {"divided model, a step of two workers", "divided model, join 1 to 2: pause"} <= set(results.MEASURES)
    assert set(divided.OF_FAULTS) == {"tidewater", "torchft", "torchft 1 s"}


@pytest.mark.e2e
@pytest.mark.parametrize("system", divided.PAIR, ids=lambda system: system.name.partition(" ")[0])
def test_both_make_steps_in_parts_and_stop_at_their_gates(system: System, tmp_path: Path) -> None:
    nothing = Path("/nonexistent")
    site = Site(
        python=Path(sys.executable),
        etcd=toolchain.binary("etcd"),
        data=nothing,
        code=ROOT,
        folder=tmp_path,
        nodes=1,
        checkpoint_every=NEVER,
        **DIVIDED,
    )
    with Job(system, site) as job:
        job.start()
        job.steady(world=1)
        assert job.park() == job.lines[-1].step
