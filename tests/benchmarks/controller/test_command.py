"""The command line of the benchmark."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks.controller import __main__ as command
from benchmarks.controller import plan, results
from benchmarks.controller.systems import systems


def test_systems_and_numbers_of_jobs_are_chosen_and_keep_their_order() -> None:
    given = command.parse(["--systems", "training-operator tuned,tidewater", "--jobs", "1000,20"])
    assert given.systems == [results.TIDEWATER, results.TUNED]
    assert given.jobs == [20, 1000]
    assert command.parse([]).jobs == list(plan.SIZES)


@pytest.mark.parametrize(
    ("parse", "text", "message"),
    [
        (command.names, "kueue", "kueue: choose among tidewater, training-operator tuned, training-operator"),
        (command.sizes, "many", "many: numbers, separated by commas"),
        (command.sizes, "0", "0: at least one job"),
    ],
    ids=["system", "words", "none"],
)
def test_a_wrong_choice_is_named(parse: Callable[[str], object], text: str, message: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match=message):
        parse(text)


def test_the_plan_is_printed_without_measuring(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert command.main(["--plan", "--out", str(tmp_path / "none.jsonl"), "--jobs", "1000", "--turns", "5"]) == 0
    assert "1000 jobs  tidewater" in capsys.readouterr().out


def test_the_records_name_what_is_compared() -> None:
    assert command.VERSIONS["training-operator"] == "v1.9.2"


def test_the_two_training_operators_are_one_installation_with_other_flags() -> None:
    found = systems()
    assert set(found) == set(results.SYSTEMS)
    assert found[results.TUNED].controller is found[results.DEFAULTS].controller
    assert found[results.DEFAULTS].flags == ()
    assert "--kube-api-qps=1000" in found[results.TUNED].flags
    assert len({system.controller.user for system in found.values()}) == 2
