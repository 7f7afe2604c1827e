"""The duration of a membership change is the time from the stop of training to the next step."""

from __future__ import annotations

import pytest

from tidewater.elastic.observe import meter
from tidewater.elastic.observe.meter import Change, Changed


class Clock:
    """Replaces the module's ``time``."""

    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(meter, "time", clock)
    return clock


def evaluating(clock: Clock) -> Change:
    """Return a change in which a worker joined within a second, followed by a minute of evaluation."""
    change = Change()
    change.begin("joined")
    clock.now += 1
    change.goes_on()
    clock.now += 60
    return change


def test_a_change_is_reported_once_with_its_cause_and_the_time_since_training_stopped(clock: Clock) -> None:
    change = Change()
    change.broken()
    clock.now += 2
    change.begin("lost")
    clock.now += 1
    changed = change.over()
    assert changed
    assert (changed.cause, changed.failed, changed.seconds) == ("lost", True, 3)
    assert change.over() is None


def test_the_time_of_a_change_is_divided_into_what_it_was_used_for_also_if_the_first_group_breaks(
    clock: Clock,
) -> None:
    change = Change()
    change.broken()
    for seconds in (1, 100):
        clock.now += seconds
        change.begin("lost")
        change.meets()
        clock.now += 2 * seconds
        change.connected()
        clock.now += 4 * seconds
        if seconds == 1:
            change.broken()
    change.together()
    clock.now += 1000
    changed = change.over()
    assert changed == Changed("lost", True, 1707, {"agreement": 101, "connecting": 202, "hand_over": 404, "step": 1000})
    change.begin("left")
    clock.now += 1
    again = change.over()
    assert again
    assert again.parts == {"agreement": 1, "connecting": 0, "hand_over": 0, "step": 0}


def test_an_evaluation_between_a_change_and_the_next_step_does_not_count_as_recovery(clock: Clock) -> None:
    change = evaluating(clock)
    changed = change.over()
    assert changed
    assert (changed.cause, changed.failed, changed.seconds) == ("joined", False, 1)


def test_two_changes_around_an_evaluation_are_reported_together_without_its_time(clock: Clock) -> None:
    change = evaluating(clock)
    change.broken()
    clock.now += 2
    change.begin("lost")
    change.goes_on()
    clock.now += 60
    changed = change.over()
    assert changed
    assert (changed.cause, changed.failed, changed.seconds) == ("lost", True, 3)
