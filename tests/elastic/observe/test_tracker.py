"""An experiment tracker gets every point once, whichever worker is lost and when."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from tidewater.elastic.observe.tracker import Seen, Tracker, Write
from tidewater.elastic.training import Evaluated, Report

REPORT = Report(1, 0, 1, 2, 0, 0.5, 0.1, (), 4, 0.01, 0.01)


class Board:
    """A tracker that removes points as TensorBoard does, and the number of workers that have it open."""

    def __init__(self) -> None:
        self.points: list[tuple[str, int]] = []
        self.opened: list[int] = []
        self.open = 0

    @contextmanager
    def __call__(self, step: int) -> Iterator[Write]:
        self.points = [point for point in self.points if point[1] < step]
        self.opened.append(step)
        self.open += 1
        yield lambda seen: self.points.append((type(seen).__name__, seen.step))
        self.open -= 1


def step(number: int, *, writes: bool) -> Seen:
    return replace(REPORT, step=number, writes=writes)


def evaluation(number: int, *, writes: bool) -> Seen:
    return Evaluated(number, 1, 0.5, writes)


def steps(*numbers: int) -> list[tuple[str, int]]:
    return [("Report", number) for number in numbers]


@given(last=st.integers(1, 6), reported=st.booleans(), ahead=st.booleans())
def test_no_point_is_missing_or_double_when_rank_0_is_lost(last: int, reported: bool, ahead: bool) -> None:
    """The survivor has reported the step ``last`` if it is ahead, and the lost one has or has not."""
    board = Board()
    first, second = Tracker(board), Tracker(board)
    for number in range(1, last + 1):
        if number < last or reported:
            first(step(number, writes=True))
        if number < last or ahead:
            second(step(number, writes=False))
    for number in range(last if not ahead else last + 1, last + 3):
        second(step(number, writes=True))
    assert board.points == steps(*range(1, last + 3))


def test_a_resumed_job_replaces_the_points_since_its_checkpoint() -> None:
    board = Board()
    first, resumed = Tracker(board), Tracker(board)
    for number in range(1, 8):
        first(step(number, writes=True))
    for number in range(5, 7):
        resumed(step(number, writes=True))
    assert board.points == steps(1, 2, 3, 4, 5, 6)


def test_an_evaluation_is_written_by_the_worker_that_writes_and_again_by_its_successor() -> None:
    board = Board()
    first, second = Tracker(board), Tracker(board)
    for tracker, writes in ((first, True), (second, False)):
        for number in (1, 2):
            tracker(step(number, writes=writes))
        tracker(evaluation(2, writes=writes))
    second(step(3, writes=True))
    assert board.points == [*steps(1, 2), ("Evaluated", 2), *steps(3)]
    assert board.opened == [1, 2]


def test_an_evaluation_alone_leaves_the_report_of_its_step() -> None:
    board = Board()
    first, resumed = Tracker(board), Tracker(board)
    first(step(4, writes=True))
    resumed(evaluation(4, writes=True))
    resumed(step(5, writes=True))
    assert board.points == [*steps(4), ("Evaluated", 4), *steps(5)]


def test_steps_before_a_gap_are_not_written_again() -> None:
    board = Board()
    others, cut_off = Tracker(board), Tracker(board)
    cut_off(step(1, writes=False))
    for number in range(1, 5):
        others(step(number, writes=True))
    for number in (5, 6):
        cut_off(step(number, writes=True))
    assert board.points == steps(1, 2, 3, 4, 5, 6)
    assert board.opened == [1, 5]


def test_a_worker_that_ceases_to_write_closes_and_may_open_again() -> None:
    board = Board()
    tracker = Tracker(board)
    tracker(step(1, writes=True))
    assert board.open == 1
    tracker(step(2, writes=False))
    assert board.open == 0
    tracker(step(3, writes=True))
    assert board.points == steps(1, 2, 3)
