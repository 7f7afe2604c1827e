"""How many turns each controller has with each number of jobs, and how long they take."""

from __future__ import annotations

import pytest

from benchmarks.controller import plan, results
from benchmarks.controller.plan import Pace
from benchmarks.controller.systems import systems


def runs(sizes: tuple[int, ...], system: str, turns: int) -> dict[str, int]:
    return {
        series.label.strip(): series.runs for (series,) in plan.blocks(sizes, [system], turns, Pace()) if series.runs
    }


def test_the_slow_system_has_fewer_turns_and_none_that_would_take_an_hour() -> None:
    assert runs(plan.SIZES, results.DEFAULTS, 5) == {"100 jobs": 3, "1000 jobs": 2}
    assert runs((100,), results.DEFAULTS, 1) == {"100 jobs": 1}


@pytest.mark.parametrize("system", [results.TIDEWATER, results.TUNED])
def test_the_comparison_has_five_turns_of_each_of_the_pair(system: str) -> None:
    assert runs((plan.HEADLINE,), system, 5) == {"1000 jobs": 5}


@pytest.mark.parametrize(("jobs", "rest"), [(100, 0), (1000, 60), (5000, 60)])
def test_a_turn_takes_the_longer_the_more_jobs_it_has_and_rests_with_many(jobs: int, rest: int) -> None:
    pace = Pace(resizes=10, resize_seconds=1.0, rest_seconds=60.0)
    assert pace.seconds(results.TUNED, jobs) == pytest.approx(35 + jobs / 50 + jobs / 100 + 10 + rest)
    events = min(3 * jobs, 2000) / 20
    assert pace.seconds(results.TIDEWATER, jobs) == pytest.approx(pace.seconds(results.TUNED, jobs) + events)


def test_the_two_training_operators_are_one_installation_with_other_flags() -> None:
    found = systems()
    assert set(found) == set(results.SYSTEMS)
    assert found[results.TUNED].controller is found[results.DEFAULTS].controller
    assert found[results.DEFAULTS].flags == ()
    assert "--kube-api-qps=1000" in found[results.TUNED].flags
    assert len({system.controller.user for system in found.values()}) == 2


def test_every_measure_has_a_unit_and_a_name_that_can_be_read_back() -> None:
    for measure, unit in results.UNITS.items():
        name = results.named(1000, measure)
        assert results.split(name) == (1000, measure)
        assert results.unit(name) == unit
        assert results.call_of(measure) is None
    call = results.call("create pods")
    assert results.call_of(call) == "create pods"
    assert results.unit(results.named(100, call)) == "calls"


def test_every_measure_of_a_large_job_has_a_unit_and_a_name_that_can_be_read_back() -> None:
    for measure, unit in results.LARGE_UNITS.items():
        name = results.large(1000, measure)
        assert results.pods_of(name) == (1000, measure)
        assert results.unit(name) == unit
    assert results.unit(results.large(1000, results.pod_call("create pods"))) == "calls"
    assert results.pods_of(results.named(1000, results.RATE))[0] == 0


def test_one_job_with_many_pods_is_measured_only_if_asked_for_and_three_times_at_most() -> None:
    assert plan.blocks((), [results.TIDEWATER], 5, Pace()) == []
    ((series,),) = plan.blocks((), [results.TIDEWATER], 5, Pace(), pods=(1000,))
    assert (series.label, series.runs) == (" 1000 pods", plan.LARGE_TURNS)
