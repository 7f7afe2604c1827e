"""Times, losses and goodput are computed from the workers' records."""

from __future__ import annotations

import pytest

from benchmarks.elastic.timeline import (
    Line,
    Pair,
    Span,
    disturbances,
    first_step,
    kept_samples,
    longest_gap,
    pairs,
    parse,
    step_seconds,
    steps_lost,
    undisturbed_samples,
)


def line(node: int, step: int, at: float, world: int = 3, samples: int = 48) -> Line:
    return Line(node, step, world, at, 0.5, samples)


def test_a_line_that_a_killed_worker_left_half_written_is_skipped() -> None:
    text = "17 3 52000000000 0.41 48\n18 3 52500000000 0.40 48\n19 3 530000"
    assert parse(1, text) == [Line(1, 17, 3, 52.0, 0.41, 48), Line(1, 18, 3, 52.5, 0.40, 48)]


def test_a_step_of_two_workers_ends_when_the_last_worker_ends_it() -> None:
    first = "100000000 101000000 120000000\n133000000 135000000 155000000\n170000000 171000000 190000000\n"
    second = "103000000 104000000 119000000\n134000000 134500000 156000000\n"
    assert pairs([first, second]) == [Pair(system=0.014, plain=0.021)]


def test_training_continues_with_the_first_step_by_the_survivors_alone() -> None:
    lines = [
        line(0, 7, 10.1),  # in progress at the signal: all three workers had finished their part
        line(2, 8, 10.2, world=2),  # by the worker that the others left out
        line(1, 8, 10.6, world=2),
        line(0, 8, 10.5, world=2),
    ]
    assert first_step(lines, nodes={0, 1}, world=2, after=10.0) == lines[3]
    assert first_step(lines, nodes={0, 1}, world=2, after=11.0) is None


def test_a_gap_is_measured_between_steps_of_one_worker() -> None:
    lines = [line(0, 1, 1.0), line(1, 1, 1.4), line(0, 2, 2.0), line(1, 2, 1.9), line(2, 2, 9.0)]
    assert longest_gap(lines, nodes={0, 1}, begin=0.0, end=10.0) == pytest.approx(1.0)


def test_a_gap_counts_if_it_overlaps_the_measured_time() -> None:
    lines = [line(0, step, at) for step, at in enumerate((0.0, 5.0, 5.1, 5.9, 6.0, 10.0))]
    assert longest_gap(lines, nodes={0}, begin=5.05, end=5.95) == pytest.approx(0.8)
    assert longest_gap(lines, nodes={0}, begin=4.0, end=5.05) == pytest.approx(5.0)
    assert longest_gap([], nodes={0}, begin=0.0, end=1.0) == 0.0


def test_steps_repeated_after_a_checkpoint_count_as_lost() -> None:
    before = [line(0, step, step / 10) for step in range(150)]
    assert steps_lost(before, line(0, 101, 70.0, world=2)) == 49
    assert steps_lost(before, line(0, 150, 70.0, world=2)) == 0


def test_a_step_recorded_by_two_workers_does_not_count_as_lost() -> None:
    lines = [line(0, 9, 1.0), line(1, 8, 1.0), line(0, 10, 1.3, world=2)]
    assert steps_lost(lines, line(1, 9, 1.2, world=2)) == 0


def test_kept_samples_count_each_step_of_the_measured_time_once() -> None:
    lines = [
        line(0, 1, 0.5),
        line(0, 2, 1.5),
        line(1, 2, 1.6),
        line(0, 3, 2.0),
        line(0, 2, 2.5, world=2),  # repeated after a restart
        line(0, 4, 3.0, world=2, samples=32),
        line(0, 5, 4.0),
    ]
    assert kept_samples(lines, 1.0, 3.5) == 48 + 48 + 32


def test_a_repeated_step_is_not_counted_again() -> None:
    assert kept_samples([line(0, 7, 0.5), line(0, 7, 1.5)], 1.0, 2.0) == 0


def test_a_steps_time_starts_at_the_end_of_the_previous_step() -> None:
    lines = [line(0, 4, 1.0), line(0, 5, 1.25), line(1, 6, 1.3), line(0, 6, 1.75), line(0, 8, 9.0)]
    assert step_seconds(lines, node=0, first=5, last=8) == pytest.approx([0.25, 0.5])


def even(node: int, begin: float, end: float, *, pace: int, first: int) -> list[Line]:
    """Return a worker's steps, ``pace`` per second."""
    count = round((end - begin) * pace)
    return [line(node, first + index, begin + (index + 0.5) / pace, samples=1) for index in range(count)]


def test_a_disturbance_lasts_until_the_killed_worker_trains_with_all_the_others_again() -> None:
    lines = [line(1, 5, 10.2), line(0, 6, 11.0, world=2), line(1, 7, 17.0, world=2), line(1, 8, 18.0)]
    assert disturbances(lines, [(10.5, 1)], world=3, end=99.0) == [Span(10.5, 18.0)]
    assert disturbances(lines, [(20.0, 1)], world=3, end=99.0) == [Span(20.0, 99.0)]
    assert disturbances(lines, [(21.0, 1), (10.5, 1)], world=3, end=99.0) == [Span(10.5, 99.0)]


def test_goodput_is_the_same_on_a_machine_that_becomes_slower_halfway() -> None:
    fast = [*even(0, 0, 100, pace=10, first=0), *even(0, 110, 200, pace=10, first=1000)]
    slow = [*even(0, 200, 300, pace=5, first=1900), *even(0, 310, 400, pace=5, first=2400)]
    trace, record = Span(30.0, 370.0), Span(0.0, 400.0)
    stood_still = [Span(100.0, 110.0), Span(300.0, 310.0)]
    undisturbed = undisturbed_samples([*fast, *slow], stood_still, trace, record)
    assert undisturbed == pytest.approx(170 * 10 + 170 * 5)
    assert kept_samples([*fast, *slow], trace.begin, trace.end) == undisturbed - 10 * 10 - 10 * 5


def test_the_absence_of_one_worker_of_three_is_a_third_of_the_pace() -> None:
    whole = [*even(0, 0, 50, pace=9, first=0), *even(0, 60, 100, pace=9, first=510)]
    lines = [*whole, *even(0, 50, 60, pace=6, first=450)]
    disturbed, trace, record = [Span(50.0, 60.0)], Span(10.0, 90.0), Span(0.0, 100.0)
    possible = undisturbed_samples(lines, disturbed, trace, record, absent=[Span(50.0, 60.0)], world=3)
    assert possible == pytest.approx(kept_samples(lines, trace.begin, trace.end))
    assert undisturbed_samples(lines, disturbed, trace, record) == pytest.approx(80 * 9)


def test_repeated_steps_lower_the_goodput() -> None:
    lines = [*even(0, 0, 50, pace=10, first=0), *even(0, 60, 100, pace=10, first=400)]
    undisturbed = undisturbed_samples(lines, [Span(50.0, 60.0)], Span(0.0, 100.0), Span(0.0, 100.0))
    assert undisturbed == pytest.approx(1000)
    assert kept_samples(lines, 0.0, 100.0) == 800


def test_if_a_worker_never_returns_goodput_uses_the_pace_before_the_kill() -> None:
    lines = even(0, 0, 50, pace=10, first=0)
    undisturbed = undisturbed_samples(lines, [Span(50.0, 120.0)], Span(20.0, 100.0), Span(0.0, 120.0))
    assert undisturbed == pytest.approx(800)
