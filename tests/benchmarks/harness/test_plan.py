"""A run makes the turns that are missing, in alternating order, and its time is known before."""

from __future__ import annotations

from collections import Counter

from benchmarks.harness.plan import Series, Turn, table, wanted

ONE = Series("kill", ("ours",), "kill: pause", runs=3, seconds=30.0)
OTHER = Series("kill", ("theirs",), "kill: pause", runs=3, seconds=60.0)
TOGETHER = Series("checkpoint", ("theirs", "ours"), "time lost", runs=1, seconds=60.0)


def nothing(measure: str, system: str) -> int:
    return 0


def test_every_second_round_has_the_reverse_order_so_that_all_see_the_same_machine() -> None:
    turns = wanted([[ONE, OTHER]], nothing)
    assert [turn.series for turn in turns] == [ONE, OTHER, OTHER, ONE, ONE, OTHER]
    assert [turn.number for turn in turns] == [0, 0, 1, 1, 2, 2]


def test_a_block_begins_when_the_one_before_it_is_complete() -> None:
    assert wanted([[TOGETHER], [ONE]], nothing) == [Turn(TOGETHER, 0), *(Turn(ONE, number) for number in range(3))]


def test_what_the_file_has_is_not_measured_again() -> None:
    had = Counter({("kill: pause", "ours"): 2, ("kill: pause", "theirs"): 1, ("time lost", "theirs"): 1})
    assert wanted([[ONE, OTHER], [TOGETHER]], lambda *key: had[key]) == [Turn(OTHER, 1), Turn(ONE, 2), Turn(OTHER, 2)]


def test_the_plan_says_how_long_it_takes() -> None:
    lines = table(wanted([[ONE, OTHER], [TOGETHER]], nothing), setup_seconds=30.0).splitlines()
    assert [line.split() for line in lines] == [
        ["kill", "ours", "3", "turns", "1.5", "min"],
        ["kill", "theirs", "3", "turns", "3.0", "min"],
        ["checkpoint", "theirs,", "ours", "1", "turns", "1.0", "min"],
        ["in", "all", "7", "turns", "6.0", "min"],
    ]
    assert table([]).split() == ["in", "all", "0", "turns", "0.0", "min"]
