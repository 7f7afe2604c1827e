"""Newcomers that come shortly after one another are admitted together, and a single one at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.elastic.membership.test_decision import member
from tidewater.elastic.membership.arrivals import Arrivals
from tidewater.elastic.membership.decision import Inputs, Kind, decide
from tidewater.elastic.membership.rules import Generation, Limits, Member, View, newcomers

LIMITS = Limits(1, 4096)
TICK_SECONDS = 0.01
LONG = 1e6

Admitted = list[tuple[int, float]]
"""Size and time of each generation."""


def admitted(times: Sequence[float], inside: int, *, age: float = LONG, tick: float = TICK_SECONDS) -> Admitted:
    """Return the generations that follow one of that age if newcomers come at these times; none is before if `inside`
    is 0."""
    members = tuple(member(f"m{index}", index + 1) for index in range(inside))
    now = Generation(1, 1, members, "start") if inside else None
    seen = Arrivals().noted(now.number if now else 0, frozenset(), -age)
    pending, found, changed_at, time = sorted(times), Admitted(), -1.0, 0.0
    while pending or len(members) > (len(now.members) if now else 0):
        while pending and pending[0] <= time:
            pending.pop(0)
            members += (member(f"n{len(members)}", len(members) + 1, ready_after=now.number if now else 0),)
        view = View(now, now.number if now else 0, members)
        seen = seen.noted(view.number, [each.id for each in newcomers(view)], time)
        changed_at = time if changed_at < 0 and newcomers(view) else changed_at
        action = decide(
            view, Inputs(members[0].id if members else "", LIMITS, changed_at=changed_at, arrivals=seen), time
        )
        if action.kind is Kind.PROPOSE and action.generation:
            now, changed_at = action.generation, -1.0
            found.append((len(now.members), time))
        time += tick
    return found


@pytest.mark.parametrize("inside", [1, 16, 1000])
def test_a_single_newcomer_of_a_settled_generation_does_not_wait(inside: int) -> None:
    assert admitted([0.0], inside) == [(inside + 1, 0.0)]


@pytest.mark.parametrize("many", [3, 15, 63])
def test_all_that_come_at_once_are_in_the_second_generation_at_last(many: int) -> None:
    times = [index * 0.005 for index in range(many)]
    sizes = [size for size, _ in admitted(times, 1)]
    assert sizes[-1] == many + 1
    assert len(sizes) == 2


@pytest.mark.parametrize("age", [0.0, LONG])
@pytest.mark.parametrize("many", [4, 16, 64])
def test_all_that_start_at_once_are_in_the_first_generation(many: int, age: float) -> None:
    times = [index * 0.005 for index in range(many)]
    assert [size for size, _ in admitted(times, 0, age=age)] == [many]


def test_a_single_worker_that_starts_waits_for_a_moment_only() -> None:
    ((size, at),) = admitted([0.0], 0)
    assert size == 1
    assert at == pytest.approx(0.03, abs=2 * TICK_SECONDS)


def test_three_hundred_that_come_within_ten_seconds_are_in_after_a_few_generations() -> None:
    found = admitted([index * 0.03 for index in range(300)], 1, tick=0.02)
    assert found[-1][0] == 301
    assert len(found) <= 12


@given(
    st.lists(st.floats(0.0, 30.0), min_size=1, max_size=40),
    st.integers(0, 30),
    st.floats(0.0, 60.0),
)
def test_every_newcomer_is_admitted_and_none_waits_longer_than_the_bound(
    times: list[float], inside: int, age: float
) -> None:
    found = admitted(times, inside, age=age, tick=0.1)
    assert found[-1][0] == inside + len(times)
    longest = 20 * (0.03 + 0.002 * (inside + len(times)))
    for index, came in enumerate(sorted(times), 1):
        at = next(at for size, at in found if size >= inside + index)
        assert at - came <= longest + 0.2


def test_a_leaving_member_a_loss_and_the_first_newcomer_after_it_do_not_wait() -> None:
    inside = (member("a", 1), member("b", 2))
    now = Generation(4, 9, inside, "start")
    seen = Arrivals().noted(4, frozenset("c"), 100.0)

    def kind(*living: Member, cause: str = "start") -> Kind:
        return decide(
            View(replace(now, cause=cause), 7, living), Inputs("a", LIMITS, changed_at=100.0, arrivals=seen), 100.0
        ).kind

    newcomer = member("c", 3, ready_after=4)
    assert kind(*inside, newcomer) is Kind.WAIT
    assert kind(*inside, newcomer, cause="joined") is Kind.WAIT
    assert kind(*inside, newcomer, cause="lost") is Kind.PROPOSE
    assert kind(inside[0], member("b", 2, leaving=True), newcomer) is Kind.PROPOSE
    assert kind(member("a", 1, ready_after=4), newcomer) is Kind.PROPOSE


def test_the_second_oldest_proposes_only_if_the_oldest_has_not_when_the_wait_for_more_is_over() -> None:
    """Newcomers may come for longer than a turn lasts, and all that had their turns meanwhile would propose at once."""
    limits = Limits(1, 8, patience_seconds=0.1)
    inside = [member(f"m{index}", index + 1) for index in range(3)]
    coming = [member(each, index + 9, ready_after=4) for index, each in enumerate("cd")]
    seen = Arrivals().noted(4, "c", 100.0).noted(4, "cd", 100.3)
    view, over_at = View(Generation(4, 9, tuple(inside), "joined"), 7, (*inside, *coming)), seen.over_at(5)

    def proposing(seconds: float) -> list[str]:
        inputs = {each.id: Inputs(each.id, limits, changed_at=100.0, arrivals=seen) for each in view.members}
        return [me for me in inputs if decide(view, inputs[me], over_at + seconds).kind is Kind.PROPOSE]

    assert proposing(-0.01) == []
    assert proposing(0.01) == ["m0"]
    assert proposing(0.11) == ["m0", "m1"]
