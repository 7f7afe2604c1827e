"""Which members of a large job decide."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.elastic.membership.test_decision import member
from tidewater.elastic.membership.deciders import DECIDERS, MOST_WITHOUT, Role, oldest, unrecorded_break
from tidewater.elastic.membership.rules import Broken, Generation, View, is_broken, lost_members

PATIENCE = 3.0
LARGE = tuple(member(f"m{age}", age) for age in range(MOST_WITHOUT + 8))
WHOLE = View(Generation(4, 9, LARGE, "start"), 7, LARGE)


def who(view: View, dead: str = "", *, waited: float = 0.0) -> set[str]:
    return {each.id for each in oldest(view, frozenset(dead.split()), waited, PATIENCE)}


def gives_up(view: View, name: str) -> View:
    members = tuple(replace(each, ready_after=view.number) if each.id == name else each for each in view.members)
    return replace(view, members=members)


def test_in_a_small_job_each_member_decides() -> None:
    few = replace(WHOLE, members=LARGE[:MOST_WITHOUT])
    roles = [Role(each.id, PATIENCE) for each in few.members]
    for role in roles:
        role.noted(few, 0.0)
    assert all(role.decides for role in roles)


def test_in_a_large_job_the_oldest_members_of_the_generation_decide() -> None:
    assert who(WHOLE) == {"m0", "m1", "m2"}
    waiting = member("old", -1, ready_after=4)
    assert who(replace(WHOLE, members=(*LARGE, waiting))) == {"m0", "m1", "m2"}
    assert who(replace(WHOLE, members=LARGE[2:])) == {"m2", "m3", "m4"}


def test_without_a_generation_or_its_members_the_oldest_that_live_decide() -> None:
    assert who(replace(WHOLE, generation=None)) == {"m0", "m1", "m2"}
    others = tuple(replace(each, id=f"n{each.age}") for each in LARGE)
    assert who(replace(WHOLE, members=others)) == {"n0", "n1", "n2"}


def test_some_more_decide_for_the_dead_and_with_each_patience_that_passes() -> None:
    assert who(WHOLE, "m0 m2") == {"m1", "m3", "m4"}
    assert who(WHOLE, waited=PATIENCE) == {f"m{age}" for age in range(2 * DECIDERS)}
    newcomer = member("new", 99, ready_after=4)
    everyone = " ".join(each.id for each in LARGE)
    assert who(replace(WHOLE, members=(*LARGE, newcomer)), everyone) == {"new"}


@pytest.mark.parametrize(("dead", "steps_in_at"), [("m0 m1 m2", 102.0), ("", 103.5)])
def test_a_member_that_waits_steps_in_for_those_that_are_dead_or_silent(dead: str, steps_in_at: float) -> None:
    role, view = Role("m3", PATIENCE), gives_up(WHOLE, "m3")
    role.noted(view, 0.0)
    assert not role.decides
    asked: list[str] = []

    def is_dead(each: object) -> bool:
        asked.append(each.id)  # type: ignore[attr-defined]
        return asked[-1] in dead.split()

    times = [101.0 + 0.25 * tick for tick in range(20)]
    found = [now for now in times if role.steps_in(view, is_dead, now, 101.0 if dead else 100.0)]
    assert found[0] <= steps_in_at
    assert len(asked) <= 16
    role.noted(replace(view, saved=None), 0.0 if dead else found[0] - 100.0)
    assert role.decides


def test_a_member_that_trains_asks_nothing_of_those_that_decide() -> None:
    role = Role("m9", PATIENCE)
    role.noted(WHOLE, 0.0)

    def is_dead(each: object) -> bool:
        raise AssertionError(each)

    assert not role.steps_in(WHOLE, is_dead, 900.0, 100.0)


def test_those_that_decide_record_a_break_once_and_the_others_know_of_it() -> None:
    broken = gives_up(WHOLE, "m20")
    found = unrecorded_break(broken)
    assert found == Broken(4, "m20")
    assert unrecorded_break(replace(broken, broken=found)) is None
    unaware = replace(WHOLE, broken=found)
    generation = WHOLE.generation
    assert generation
    assert is_broken(unaware)
    assert lost_members(unaware, generation, "m9") == ["m20"]
    later = replace(unaware, generation=replace(generation, number=5))
    assert not is_broken(later)
    assert lost_members(later, generation, "m9") == []


def test_a_small_job_records_no_break() -> None:
    assert unrecorded_break(gives_up(replace(WHOLE, members=LARGE[:8]), "m2")) is None


@given(st.sets(st.integers(0, len(LARGE) - 1)), st.sets(st.integers(0, len(LARGE) - 1)), st.floats(0, 60))
def test_members_that_live_decide_whatever_is_dead(gone: set[int], dead: set[int], waited: float) -> None:
    view = replace(WHOLE, members=tuple(each for each in LARGE if each.age not in gone))
    alive = {each.id for each in view.members if each.age not in dead}
    found = who(view, " ".join(f"m{age}" for age in dead), waited=waited)
    assert found <= alive
    assert bool(found) == bool(alive)
    assert len(found) >= min(DECIDERS, len(alive))
