"""A loop of one's own and a Trainer are compared in turns, with the same work on both sides."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.elastic import loops, plan, results
from benchmarks.elastic.bench import NEVER, prepare
from benchmarks.elastic.jobs import Job
from benchmarks.elastic.systems import ROOT, Site
from scripts import toolchain


def test_the_ratio_is_of_neighbouring_turns_and_one_slow_turn_changes_nothing() -> None:
    assert loops.ratio([[2.0, 2.0, 9.0], [4.0] * 3, [50.0] * 3], [[1.0] * 3, [2.0] * 3, [1.0] * 3]) == 2.0


def test_only_tidewater_has_the_measures_of_loops_and_each_turn_gives_the_ratio() -> None:
    blocks = [block for block in plan.blocks(list(loops.LOOPS), ["tidewater", "torchft"], 5) if block]
    assert [(series.systems, series.runs) for [series] in blocks] == [(("tidewater",), 5)] * 2
    assert [series.counted for [series] in blocks] == [ratio for _, ratio in results.LOOPS.values()]
    assert all(compared.own.name == "tidewater" for compared in loops.LOOPS.values())


@pytest.mark.e2e
@pytest.mark.parametrize("measure", loops.LOOPS)
def test_both_ways_make_steps_and_stop_at_their_gates(measure: str, tmp_path: Path) -> None:
    site = Site(
        python=Path(sys.executable),
        etcd=toolchain.binary("etcd"),
        data=prepare(tmp_path / "digits.npz"),
        code=ROOT,
        folder=tmp_path,
        nodes=1,
        checkpoint_every=NEVER,
        steady_steps=2,
    )
    for system in (loops.LOOPS[measure].own, loops.LOOPS[measure].other):
        folder = tmp_path / system.name.replace(" ", "-")
        folder.mkdir()
        with Job(system, replace(site, folder=folder)) as job:
            job.start()
            job.steady(world=1)
            assert job.park() == job.lines[-1].step
