"""A run of the benchmark makes the turns that are missing, in alternating order, and its time is known before."""

from __future__ import annotations

from collections import Counter

import pytest

from benchmarks.controller import plan, results
from benchmarks.controller.plan import Pace, Turn

PAIR = [results.TIDEWATER, results.TUNED]
RATE = results.named(1000, results.RATE)


def nothing(measure: str, system: str) -> int:
    return 0


def test_every_second_round_has_the_reverse_order() -> None:
    turns = plan.wanted([1000], PAIR, turns=3, have=nothing)
    assert [turn.system for turn in turns] == [*PAIR, *reversed(PAIR), *PAIR]
    assert [turn.number for turn in turns] == [0, 0, 1, 1, 2, 2]


def test_what_the_file_has_is_not_measured_again() -> None:
    had = Counter({(RATE, results.TIDEWATER): 2, (RATE, results.TUNED): 1})
    turns = plan.wanted([1000], PAIR, turns=3, have=lambda *key: had[key])
    assert [(turn.system, turn.number) for turn in turns] == [
        (results.TUNED, 1),
        (results.TIDEWATER, 2),
        (results.TUNED, 2),
    ]


def test_the_slow_system_has_fewer_turns_and_none_that_would_take_an_hour() -> None:
    turns = plan.wanted(plan.SIZES, [results.DEFAULTS], turns=5, have=nothing)
    assert Counter(turn.jobs for turn in turns) == {100: 3, 1000: 2}
    assert len(plan.wanted([100], [results.DEFAULTS], turns=1, have=nothing)) == 1


def test_the_comparison_has_at_least_five_turns_of_each_of_the_pair() -> None:
    turns = plan.wanted([plan.HEADLINE], PAIR, turns=5, have=nothing)
    assert Counter(turn.system for turn in turns) == dict.fromkeys(PAIR, 5)


@pytest.mark.parametrize(("jobs", "rests"), [(100, False), (1000, True), (5000, True)])
def test_calls_at_rest_are_measured_with_many_jobs(jobs: int, rests: bool) -> None:
    assert Turn(results.TIDEWATER, jobs, 0).rests == rests


def test_the_plan_tells_how_long_it_takes() -> None:
    pace = Pace(resizes=10, resize_seconds=1.0, rest_seconds=60.0)
    turn = Turn(results.TIDEWATER, 1000, 0)
    assert turn.seconds(pace) == pytest.approx(35 + 20 + 10 + 10 + 60 + 100)
    told = plan.told([turn, Turn(results.TIDEWATER, 1000, 1)], pace)
    assert told.splitlines()[-1].split() == ["in", "all", "2", "turns", "7.8", "min"]
    assert plan.told([], pace).split() == ["in", "all", "0", "turns", "0.0", "min"]


def test_every_measure_has_a_unit_and_a_name_that_can_be_read_back() -> None:
    for measure, unit in results.UNITS.items():
        name = results.named(1000, measure)
        assert results.split(name) == (1000, measure)
        assert results.unit(name) == unit
        assert results.call_of(measure) is None
    call = results.call("create pods")
    assert results.call_of(call) == "create pods"
    assert results.unit(results.named(100, call)) == "calls"
