"""Which members of a large job decide."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.elastic.membership.test_decision import member
from tidewater.elastic.membership.deciders import (
    DECIDERS,
    MOST_WITHOUT,
    Elders,
    Role,
    chosen,
    is_large,
    unrecorded_break,
)
from tidewater.elastic.membership.rules import Broken, Generation, Member, Seat, View, first_lost, lost_members

PATIENCE, GRACE = 3.0, 2.0
LARGE = tuple(member(f"m{age}", age) for age in range(MOST_WITHOUT + 8))
GENERATION = Generation(4, 9, LARGE, "start")
WHOLE = View(GENERATION, 7, LARGE, deciding=frozenset(["m0", "m1", "m2"]))
SINCE = 100.0


def who(view: View, dead: str = "", *, waited: float = 0.0) -> set[str]:
    return {each.id for each in chosen(view, frozenset(dead.split()), waited, PATIENCE)}


def gives_up(view: View, name: str) -> View:
    members = tuple(replace(each, ready_after=view.number) if each.id == name else each for each in view.members)
    return replace(view, members=members)


def of(name: str, view: View = WHOLE) -> View:
    """Return what a member that doesn't decide knows of a whole view."""
    own = tuple(each for each in view.members if each.id == name)
    return replace(view, members=own, whole=False, count=len(view.members))


def age(each: Member) -> int:
    return each.age


def after_an_outage(*gone: str) -> View:
    """Return the view of all after etcd was away: records have come back in another order, some haven't."""
    back = tuple(replace(each, age=1000 - each.age) for each in LARGE if each.id not in gone)
    return replace(WHOLE, members=back, deciding=frozenset())


class Process:
    """One member's role, and what it asks of others."""

    def __init__(self, name: str, dead: str = "", living: Sequence[Member] = LARGE) -> None:
        self.role, self.dead, self.living = Role(name, PATIENCE), dead.split(), living
        self.asked: list[str] = []
        self.elders = Elders(self._is_dead, self._recorded, self._oldest, GRACE)

    def _oldest(self, number: int) -> list[Member]:
        return sorted(self.living, key=age)[:number]

    def _recorded(self, seats: Sequence[Seat]) -> list[Seat]:
        there = {each.id for each in self.living}
        return [seat for seat in seats if seat.id in there]

    def _is_dead(self, each: Seat) -> bool:
        self.asked.append(each.id)
        return each.id in self.dead

    def steps_in_at(self, view: View, *, until: float = 1000.0) -> float:
        """Return how many seconds it waits before it steps in; infinity if it doesn't."""
        while (now := self.role.asks_at(view, SINCE)) < SINCE + until:
            if self.role.steps_in(view, self.elders, now, SINCE):
                return now - SINCE
        return math.inf


def test_in_a_small_job_each_member_decides() -> None:
    fewest = LARGE[:MOST_WITHOUT]
    few = replace(WHOLE, members=fewest, generation=replace(GENERATION, members=fewest))
    roles = [Role(each.id, PATIENCE) for each in few.members]
    for role in roles:
        role.noted(few, 0.0)
    assert all(role.decides for role in roles)


def test_in_a_large_job_the_first_members_of_the_generation_decide() -> None:
    assert who(WHOLE) == {"m0", "m1", "m2"}
    waiting = member("old", -1, ready_after=4)
    assert who(replace(WHOLE, members=(*LARGE, waiting))) == {"m0", "m1", "m2"}
    assert who(replace(WHOLE, members=LARGE[2:])) == {"m2", "m3", "m4"}
    assert who(replace(WHOLE, generation=replace(GENERATION, members=LARGE[::-1]))) == {"m39", "m38", "m37"}


def test_without_a_generation_or_its_members_the_oldest_that_live_decide() -> None:
    assert who(replace(WHOLE, generation=None)) == {"m0", "m1", "m2"}
    others = tuple(replace(each, id=f"n{each.age}") for each in LARGE)
    assert who(replace(WHOLE, members=others[::-1])) == {"n0", "n1", "n2"}


def test_some_more_decide_for_the_dead_and_with_each_patience_that_passes() -> None:
    assert who(WHOLE, "m0 m2") == {"m1", "m3", "m4"}
    assert who(WHOLE, waited=PATIENCE) == {f"m{age}" for age in range(2 * DECIDERS)}
    newcomer = member("new", 99, ready_after=4)
    everyone = " ".join(each.id for each in LARGE)
    assert who(replace(WHOLE, members=(*LARGE, newcomer)), everyone) == {"new"}


@pytest.mark.parametrize(("name", "reads"), [("m0", True), ("m2", True), ("m3", False), ("m39", False)])
def test_a_member_that_finds_itself_first_in_a_generation_reads_everything(name: str, reads: bool) -> None:
    role = Role(name, PATIENCE)
    role.noted(of(name), 0.0)
    assert role.decides is reads


def test_a_member_that_has_read_everything_and_found_others_to_decide_does_not_read_it_again() -> None:
    few = replace(GENERATION, members=LARGE[30:])
    view, role = replace(WHOLE, generation=few), Role("m39", PATIENCE)
    later = replace(view, generation=replace(few, number=5))
    decides = []
    for each in (of("m39", view), view, of("m39", view), of("m39", later)):
        role.noted(each, 0.0)
        decides.append(role.decides)
    assert decides == [True, False, False, True]


def test_a_job_that_has_become_small_is_decided_by_all_that_see_it() -> None:
    role = Role("m39", PATIENCE)
    role.noted(WHOLE, 0.0)
    role.noted(of("m39"), 0.0)
    assert not role.decides
    role.noted(replace(of("m39"), generation=replace(GENERATION, members=LARGE[-5:]), count=5), 0.0)
    assert role.decides


@pytest.mark.parametrize(
    ("name", "dead", "seconds"),
    [
        ("m3", "m0 m1 m2", 0.6),
        ("m11", "m0 m1 m2 m3 m4 m5 m6 m7 m8", 0.7),
        ("m5", "", 3.5),
        ("m39", "", 41.0),
    ],
)
def test_a_member_that_waits_steps_in_for_those_that_are_dead_or_silent(name: str, dead: str, seconds: float) -> None:
    process, view = Process(name, dead), gives_up(WHOLE, name)
    assert process.steps_in_at(of(name, view)) <= seconds
    process.role.noted(of(name, view), seconds)
    assert process.role.decides
    process.role.noted(view, seconds)
    assert process.role.decides, "also when it has read everything"


@pytest.mark.parametrize(
    ("name", "dead", "at_once"), [("m3", "m0 m1", True), ("m4", "m0 m1 m2", True), ("m20", "m1 m2 m3", False)]
)
def test_only_the_next_ones_step_in_at_once(name: str, dead: str, at_once: bool) -> None:
    seconds = Process(name, dead).steps_in_at(of(name, gives_up(WHOLE, name)), until=PATIENCE)
    assert (seconds < PATIENCE) is at_once


def test_a_newcomer_steps_in_if_all_before_it_have_ended_or_have_no_record() -> None:
    newcomer = member("new", 99, ready_after=4)
    view = replace(WHOLE, members=(newcomer,))
    gone = Process("new", living=[newcomer])
    assert gone.steps_in_at(replace(of("new", view), count=900)) <= 900 / 256 * PATIENCE
    waits = Process("new", living=[*LARGE, newcomer])
    assert waits.steps_in_at(of("new", replace(WHOLE, members=(*LARGE, newcomer))), until=30.0) == math.inf
    assert len(waits.asked) < 100


def test_a_member_that_trains_asks_nothing_of_those_that_decide() -> None:
    process = Process("m9")
    assert process.role.asks_at(of("m9"), SINCE) == math.inf
    assert process.steps_in_at(of("m9", gives_up(WHOLE, "m9")), until=2.0) == math.inf
    assert process.asked, "in contrast to one that waits"


def test_a_leaver_waits_for_those_that_decide_too() -> None:
    leaves = replace(WHOLE, members=tuple(replace(each, leaving=each.id == "m3") for each in LARGE))
    assert Process("m3", "m0 m1 m2").steps_in_at(of("m3", leaves)) <= 0.6


def test_after_an_outage_of_etcd_the_next_in_rank_steps_in_at_once_for_those_that_do_not_come_back() -> None:
    """The first ones answer, but don't reach etcd: no member can make a step, and no sum fails."""
    view = after_an_outage("m0", "m1", "m2")
    process = Process("m3", living=view.members)
    waited = process.steps_in_at(of("m3", view))
    assert GRACE <= waited <= GRACE + 0.6, "they had the time that each member has for its record"
    process.role.noted(view, waited)
    assert process.role.decides
    oldest = Process("m39", living=view.members)
    assert oldest.steps_in_at(of("m39", view), until=GRACE + PATIENCE) == math.inf, "its record came back first"


def test_after_an_outage_from_which_the_first_ones_come_back_no_other_steps_in() -> None:
    view = after_an_outage()
    processes = [Process(each.id, living=view.members) for each in LARGE[DECIDERS:]]
    times = [each.steps_in_at(of(each.role.me, view), until=GRACE + PATIENCE) for each in processes]
    assert min(times) == math.inf


def test_a_member_asks_etcd_for_few_before_it_while_those_decide() -> None:
    process = Process("m39")
    sizes = list[int]()
    recorded = process.elders.recorded

    def counted(seats: Sequence[Seat]) -> Iterable[Seat]:
        sizes.append(len(seats))
        return recorded(seats)

    process.elders = replace(process.elders, recorded=counted)
    process.steps_in_at(of("m39", gives_up(WHOLE, "m39")), until=PATIENCE)
    assert sizes == [8]


@given(
    st.permutations(range(len(LARGE))),
    st.sets(st.integers(0, len(LARGE) - 1)),
    st.sets(st.integers(0, len(LARGE) - 1)),
)
def test_those_step_in_that_a_view_of_all_chooses(order: list[int], gone: set[int], ended: set[int]) -> None:
    dead = {f"m{number}" for number in ended}
    living = tuple(replace(each, age=order[each.age]) for each in LARGE if each.age not in gone)
    view = replace(WHOLE, members=living, deciding=frozenset())
    processes = [Process(each.id, " ".join(dead), living) for each in living if each.id not in dead]
    until = GRACE + PATIENCE
    step_in = {each.role.me for each in processes if each.steps_in_at(of(each.role.me, view), until=until) < until}
    assert step_in == who(view, " ".join(dead))


def test_a_newcomer_asks_at_once_if_none_decides_and_otherwise_never_seldom() -> None:
    newcomer = member("new", 99, ready_after=4)
    full = replace(WHOLE, members=(newcomer,), generation=replace(GENERATION, members=LARGE * 25))
    process = Process("new", living=[newcomer])
    restarted = of("new", replace(full, deciding=frozenset()))
    assert process.steps_in_at(restarted) <= 0.5, "a thousand were lost with all that decide"
    process = Process("new", living=[*LARGE, newcomer])
    times, now = list[float](), SINCE
    while now < SINCE + 600.0:
        times.append(now := process.role.asks_at(of("new", full), SINCE))
        process.role.steps_in(of("new", full), process.elders, now, SINCE)
    assert max(later - earlier for earlier, later in itertools.pairwise(times)) <= 10.0
    assert process.role.asks_at(of("new", replace(full, deciding=frozenset())), SINCE) <= now, "those that did ended"


def test_those_that_decide_record_a_break_once_and_the_others_know_of_it() -> None:
    found = unrecorded_break(gives_up(WHOLE, "m20"))
    assert found == Broken(4, "m20", "m20")
    assert unrecorded_break(replace(gives_up(WHOLE, "m20"), broken=found)) is None
    unaware = of("m9")
    assert first_lost(unaware) is None
    assert lost_members(unaware, GENERATION, "m9") == []
    aware = replace(unaware, broken=found)
    assert first_lost(aware) == found
    assert lost_members(aware, GENERATION, "m9") == ["m20"]
    later = replace(aware, generation=replace(GENERATION, number=5))
    assert first_lost(later) is None
    assert lost_members(later, GENERATION, "m9") == []


@pytest.mark.parametrize(("lost", "names"), [("m20", ["m20"]), ("new", [])])
def test_a_break_of_the_next_generation_ends_this_one_only_if_its_own_member_is_lost(
    lost: str, names: list[str]
) -> None:
    grown = replace(GENERATION, number=5, members=(*LARGE, member("new", 99)))
    aware = replace(of("m9"), generation=grown, broken=Broken(5, lost, lost))
    assert lost_members(aware, GENERATION, "m9") == names


def test_a_small_job_records_no_break() -> None:
    small = replace(WHOLE, members=LARGE[:8], generation=replace(GENERATION, members=LARGE[:8]))
    assert unrecorded_break(gives_up(small, "m2")) is None


def test_a_loss_after_which_a_large_job_is_small_is_recorded_for_those_that_still_follow() -> None:
    left = replace(WHOLE, members=LARGE[: MOST_WITHOUT // 2])
    assert unrecorded_break(left) == first_lost(left)
    assert first_lost(left) is not None
    assert is_large(left)
    assert is_large(of("m9"))


@given(st.sets(st.integers(0, len(LARGE) - 1)), st.sets(st.integers(0, len(LARGE) - 1)), st.floats(0, 60))
def test_members_that_live_decide_whatever_is_dead(gone: set[int], dead: set[int], waited: float) -> None:
    view = replace(WHOLE, members=tuple(each for each in LARGE if each.age not in gone))
    alive = {each.id for each in view.members if each.age not in dead}
    found = who(view, " ".join(f"m{age}" for age in dead), waited=waited)
    assert found <= alive
    assert bool(found) == bool(alive)
    assert len(found) >= min(DECIDERS, len(alive))


@given(st.sets(st.integers(0, len(LARGE) - 1)), st.sets(st.integers(0, len(LARGE) - 1)))
def test_one_of_those_that_are_left_decides_soon(ended: set[int], hangs: set[int]) -> None:
    dead = " ".join(f"m{age}" for age in ended)
    left = [each for each in LARGE if each.age not in ended | hangs]
    living = [each for each in LARGE if each.age not in ended]
    times = []
    for each in left:
        process, view = Process(each.id, dead, living), of(each.id, gives_up(WHOLE, each.id))
        process.role.noted(view, 0.0)
        times.append(0.0 if process.role.decides else process.steps_in_at(view, until=120.0))
    assert not times or min(times) <= PATIENCE * (1 + len(hangs) / DECIDERS) + 2.0
