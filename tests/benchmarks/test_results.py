"""The table of results: its order, its notes, and the rows that a partial run replaces."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from pathlib import Path

import pytest

from benchmarks.elastic import __main__ as command
from benchmarks.elastic import faults, paced, results
from benchmarks.elastic.timeline import Pair
from benchmarks.rows import Row

SYSTEMS = ["tidewater", "torchft"]
KILL = "SIGKILL: next committed step"


def row(measure: str, system: str, median: float = 1.0) -> Row:
    return Row(measure, system, 3, median, median, "s")


def test_a_partial_run_replaces_its_rows_and_leaves_the_others() -> None:
    earlier = [row(KILL, "torchft", 5.0), row(KILL, "tidewater", 0.4)]
    merged = results.merge(earlier, [row(KILL, "tidewater", 0.3), row("short step", "tidewater")], SYSTEMS)
    assert [(one.measure, one.system, one.median) for one in merged] == [
        (KILL, "tidewater", 0.3),
        (KILL, "torchft", 5.0),
        ("short step", "tidewater", 1.0),
    ]


def test_rows_that_are_no_longer_measured_are_last() -> None:
    merged = results.merge([row("of old", "x"), row(KILL, "torchft")], [], SYSTEMS)
    assert [one.measure for one in merged] == [KILL, "of old"]


def test_written_rows_can_be_read_back(tmp_path: Path) -> None:
    file = tmp_path / "elastic.json"
    assert results.read(file) == []
    file.write_text(json.dumps([asdict(row(KILL, "torchft"))]))
    assert results.read(file) == [row(KILL, "torchft")]


def test_a_median_equal_to_the_cap_is_shown_as_more_than_the_cap() -> None:
    caps = {"SIGSTOP: next committed step": 120.0}
    frozen = faults.STOP.headline
    rows = [row(frozen, "torchrun", 120.0), row(frozen, "torchft", 5.0), row(KILL, "x", 500)]
    assert results.notes(rows, caps) == [
        f"torchrun, {faults.STOP.headline}: > 120 s, it had not gone on when the wait ended"
    ]


def test_every_measure_is_in_the_table() -> None:
    headlines = {fault.headline for fault in faults.FAULTS.values()}
    assert headlines <= set(results.MEASURES)
    assert faults.unit("SIGTERM: steps lost") == "steps"
    assert faults.unit(KILL) == "s"


def test_systems_and_measures_are_chosen_by_name_and_keep_their_order() -> None:
    given = command.parse(["--systems", "torchft,tidewater", "--measures", "step,kill"])
    assert (given.systems, given.measures) == (["tidewater", "torchft"], ["kill", "step"])
    with pytest.raises(argparse.ArgumentTypeError, match="horovod: choose among tidewater"):
        command.choices("horovod", SYSTEMS)


def test_the_ratio_of_steps_is_the_median_of_their_pairs() -> None:
    assert paced.ratio([Pair(2.0, 1.0), Pair(3.0, 2.0), Pair(90.0, 1.0)]) == 2.0


def test_checkpoint_time_is_a_share_of_the_run_with_checkpoints() -> None:
    turn = [1.0] * 4 + [3.0, 1.0, 2.0] + [1.0] * 20
    assert paced.shares_lost([turn], at=4) == pytest.approx([100 * 3 / sum(turn)])


def test_values_that_agree_have_no_spread() -> None:
    assert paced.spread([1.0, 1.0, 1.0, 1.0]) == 0.0
    assert paced.spread([1.0, 2.0, 3.0, 4.0]) > 0
