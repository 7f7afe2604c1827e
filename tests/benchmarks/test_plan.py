"""A run of the comparison does what is missing, in turns, and its time is known before."""

from __future__ import annotations

import argparse
from collections import Counter

import pytest

from benchmarks.elastic import __main__ as command
from benchmarks.elastic import faults, plan, results

TWO = ["tidewater", "torchft"]


def nothing(measure: str, system: str) -> int:
    return 0


def test_the_systems_take_turns_in_every_round() -> None:
    tasks = plan.wanted(["kill", "term"], TWO, runs=2, have=nothing)
    assert [(task.number, task.systems[0], task.measure) for task in tasks[:4]] == [
        (0, "tidewater", "kill"),
        (0, "tidewater", "term"),
        (0, "torchft", "kill"),
        (0, "torchft", "term"),
    ]
    assert {task.number for task in tasks[4:]} == {1}


def test_what_the_file_has_is_not_measured_again() -> None:
    had = Counter({(faults.KILL.headline, "tidewater"): 2, (results.TRANSFER, "tidewater"): 1})
    tasks = plan.wanted(["kill", "transfer"], TWO, runs=3, have=lambda *key: had[key])
    assert [(task.systems, task.number) for task in tasks] == [
        (("torchft",), 0),
        (("torchft",), 1),
        (("tidewater",), 2),
        (("torchft",), 2),
    ]


def test_the_large_models_runs_are_counted_for_themselves() -> None:
    had = Counter({(faults.KILL.headline, "tidewater"): 1})
    (task,) = plan.wanted(["kill", "kill-large"], ["tidewater"], runs=1, have=lambda *key: had[key])
    assert task.measure == "kill-large"
    assert plan.headline("kill-large") == f"large model, {faults.KILL.headline}"


def test_systems_for_which_a_measure_says_nothing_are_left_out() -> None:
    tasks = plan.wanted(list(plan.MEASURES), ["torchrun", "torchft"], runs=1, have=nothing)
    assert ("step", "torchrun") not in {(task.measure, task.systems[0]) for task in tasks}
    assert [task.systems for task in tasks if task.measure == "checkpoint"] == [("torchrun",)]
    assert not [task for task in tasks if task.measure == "transfer"]


def test_the_plan_tells_how_long_it_takes() -> None:
    tasks = plan.wanted(["goodput"], TWO, runs=3, have=nothing, trace_seconds=240.0)
    assert sum(task.seconds for task in tasks) == 6 * 300
    assert plan.told(tasks).splitlines()[-1].split() == ["in", "all", "6", "runs", "30.0", "min"]


def test_every_measure_has_a_place_in_the_table() -> None:
    assert {plan.headline(name) for name in plan.MEASURES} <= set(results.MEASURES)
    assert set(results.CAPS) <= set(results.MEASURES)
    assert faults.unit("SIGTERM: steps lost") == "steps"


def test_systems_and_measures_are_chosen_by_name_and_keep_their_order() -> None:
    given = command.parse(["--systems", "torchft,tidewater", "--measures", "step,kill"])
    assert (given.systems, given.measures) == (["tidewater", "torchft"], ["kill", "step"])
    with pytest.raises(argparse.ArgumentTypeError, match="horovod: choose among tidewater"):
        command.choices("horovod", TWO)


def test_the_records_name_the_compared_versions() -> None:
    assert set(command.versions()) == {"torch", "torchft"}
