"""Turns are interleaved, and what a file has is not measured again."""

from __future__ import annotations

from collections import Counter

from benchmarks.elasticdl.plan import MEASURES, REPLACE, ROOMS, told, wanted
from benchmarks.elasticdl.systems import REPLACEMENT, SHARING, SYSTEMS

NAMES = [system.name for system in SYSTEMS[:3]]


def test_every_system_has_as_many_turns_of_each_measure_as_asked_for() -> None:
    turns = wanted(NAMES, list(MEASURES), runs=5, have=lambda measure, system: 0)
    count = Counter((turn.measure, turn.system.name) for turn in turns)
    rates = {(measure, name): 5 for measure in ("computing", "paced") for name in NAMES}
    shared = {(ROOMS, system.name): 5 for system in SHARING}
    assert count == {**rates, **shared, (REPLACE, REPLACEMENT.name): 5}


def test_rounds_go_there_and_back_so_that_all_systems_see_the_same_machine() -> None:
    turns = wanted(NAMES, ["computing"], runs=2, have=lambda measure, system: 0)
    assert [turn.system.name for turn in turns] == [*NAMES, *reversed(NAMES)]


def test_what_was_recorded_is_not_wanted_again() -> None:
    have = {(MEASURES["computing"], NAMES[0]): 1, (MEASURES["computing"], NAMES[1]): 2}
    turns = wanted(NAMES[:2], ["computing"], runs=2, have=lambda measure, system: have[measure, system])
    assert [(turn.system.name, turn.number) for turn in turns] == [(NAMES[0], 1)]


def test_the_plan_says_how_long_it_takes() -> None:
    assert "in all" in told(wanted(NAMES, ["paced"], runs=1, have=lambda measure, system: 0))


def test_two_jobs_take_turns_after_everything_that_would_wait_for_their_cluster() -> None:
    turns = wanted(NAMES[:1], list(MEASURES), runs=2, have=lambda measure, system: 0)
    assert [turn.on_cluster for turn in turns] == [False] * 6 + [True] * 4
    gangs, elastic = (system.name for system in SHARING)
    assert [turn.system.name for turn in turns[6:]] == [gangs, elastic, elastic, gangs]
