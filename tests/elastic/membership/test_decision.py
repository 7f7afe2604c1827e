"""The rules that decide which workers train together."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidewater.elastic.membership.decision import MOST_ATTEMPTS, REST, Inputs, Kind, decide
from tidewater.elastic.membership.rules import Generation, Limits, Member, View, has_heirs, lost_members


def member(
    name: str, age: int, *, ready_after: int = 0, leaving: bool = False, kind: str = "s", state_of: int = 0
) -> Member:
    return Member(name, name, "127.0.0.1", 1, kind, ready_after, leaving, state_of, age=age)


def view(number: int, inside: str, *living: Member) -> View:
    """Return generation ``number`` of the members named in ``inside``, and the members that live now."""
    ages = {each.id: each.age for each in living}
    members = tuple(member(name, ages.get(name, 0)) for name in inside)
    return View(Generation(number, 99, members, "start"), 7, living)


def inputs(me: str, **more: object) -> Inputs:
    given: dict[str, Any] = {"uuid": 5, "changed_at": 100, **more}
    return Inputs(me=me, limits=Limits(1, 3, patience_seconds=3), **given)


def names(generation: Generation | None) -> str:
    return "".join(each.id for each in generation.members) if generation else ""


def test_the_oldest_worker_forms_the_first_generation_of_all_present_workers() -> None:
    start = View(members=(member("b", 2), member("a", 1)))
    action = decide(start, inputs("a"), now=100)
    assert action.kind is Kind.PROPOSE
    assert action.generation is not None
    assert (names(action.generation), action.generation.number, action.generation.cause) == ("ab", 1, "start")
    assert decide(start, inputs("b"), now=100).kind is Kind.WAIT


def test_generations_keep_their_lineage_until_etcd_loses_its_data() -> None:
    alone = (member("a", 1, ready_after=4),)
    begun = decide(View(members=alone), inputs("a"), now=100).generation
    assert begun is not None
    assert (begun.lineage, begun.number) == (f"{inputs('a').uuid:012x}", 5)
    later = decide(View(replace(begun, number=4), 7, alone), inputs("a", uuid=6), now=200).generation
    assert later is not None
    assert (later.lineage, later.uuid) == (begun.lineage, 6)


def test_nothing_happens_while_nothing_changes() -> None:
    assert decide(view(4, "ab", member("a", 1), member("b", 2)), inputs("a"), now=100) == REST


def test_a_newcomer_is_added_after_the_survivors() -> None:
    grown = view(4, "ba", member("a", 1), member("b", 2), member("c", 3, ready_after=4))
    action = decide(grown, inputs("b"), now=100)
    assert names(action.generation) == "bac"
    assert action.generation is not None
    assert action.generation.cause == "joined"


def test_a_newcomer_that_has_not_heard_of_the_current_generation_is_not_added() -> None:
    assert decide(view(4, "a", member("a", 1), member("c", 3, ready_after=3)), inputs("a"), now=100) == REST


def test_at_most_the_maximum_number_of_workers_are_members() -> None:
    full = view(4, "abc", *(member(name, age) for age, name in enumerate("abc")), member("d", 9, ready_after=4))
    assert decide(full, inputs("a"), now=100) == REST


def test_a_leaving_worker_is_left_out_and_may_propose_so_itself() -> None:
    action = decide(view(4, "ab", member("a", 1, leaving=True), member("b", 2)), inputs("a"), now=100)
    assert names(action.generation) == "b"
    assert action.generation is not None
    assert action.generation.cause == "left"


def test_the_last_leaving_worker_proposes_an_empty_generation() -> None:
    action = decide(view(4, "a", member("a", 1, leaving=True)), inputs("a"), now=100)
    assert action.kind is Kind.PROPOSE
    assert names(action.generation) == ""


def test_after_a_break_silent_members_are_waited_for_until_the_patience_ends() -> None:
    broken = view(4, "abc", member("a", 1, ready_after=4), member("b", 2), member("c", 3, ready_after=4))
    waiting = decide(broken, inputs("a"), now=101)
    assert (waiting.kind, waiting.wake_at) == (Kind.WAIT, 103)
    assert names(decide(broken, inputs("a"), now=103).generation) == "ac"


def test_a_member_that_is_known_to_be_dead_is_not_waited_for() -> None:
    broken = view(4, "abc", member("a", 1, ready_after=4), member("b", 2), member("c", 3, ready_after=4))
    action = decide(broken, inputs("a", dead=frozenset("b")), now=100)
    assert names(action.generation) == "ac"
    assert action.generation is not None
    assert action.generation.cause == "lost"


def test_a_worker_that_was_left_behind_is_readmitted_only_on_request() -> None:
    """The record of a frozen worker exists until its lease expires."""
    assert decide(view(5, "a", member("a", 1), member("b", 2, ready_after=0)), inputs("a"), now=100) == REST


def test_if_the_oldest_worker_does_not_propose_the_next_one_does_after_its_patience() -> None:
    broken = view(4, "abc", member("b", 2, ready_after=4), member("c", 3, ready_after=4))
    assert decide(broken, inputs("c"), now=102.9).kind is Kind.WAIT
    assert decide(broken, inputs("c"), now=103).kind is Kind.PROPOSE


def test_in_a_large_job_the_next_one_has_the_time_to_hear_what_the_others_say() -> None:
    everyone = "".join(map(chr, range(ord("A"), ord("A") + 40)))
    broken = view(4, everyone, *(member(name, age, ready_after=4) for age, name in enumerate(everyone[1:])))
    assert decide(broken, inputs("B"), now=100).kind is Kind.PROPOSE
    assert decide(broken, inputs("C"), now=111.9).kind is Kind.WAIT
    assert decide(broken, inputs("C"), now=112).kind is Kind.PROPOSE


def test_a_newcomer_with_other_traits_is_never_admitted() -> None:
    stranger = member("b", 2, ready_after=4, kind="t")
    assert decide(view(4, "a", member("a", 1), stranger), inputs("a"), now=100) == REST
    broken = view(4, "ac", member("a", 3, ready_after=4), stranger)
    assert names(decide(broken, inputs("a"), now=100).generation) == "a"
    assert decide(broken, inputs("b"), now=900) == REST


def test_without_a_generation_the_traits_of_the_oldest_applicant_decide() -> None:
    start = View(members=(member("b", 2, kind="t"), member("a", 1), member("c", 3)))
    assert names(decide(start, inputs("a"), now=100).generation) == "ac"
    assert decide(start, inputs("b"), now=900) == REST


def test_workers_with_new_traits_continue_a_job_whose_workers_are_all_gone() -> None:
    abandoned = view(4, "ab", member("c", 3, ready_after=4, kind="t"), member("d", 4, ready_after=4, kind="s"))
    assert names(decide(abandoned, inputs("c", ended=frozenset("ab")), now=100).generation) == "c"


def test_the_generation_number_keeps_increasing_when_etcd_has_lost_its_data() -> None:
    action = decide(View(members=(member("a", 1, ready_after=8),)), inputs("a"), now=100)
    assert action.generation is not None
    assert action.generation.number == 9


def test_a_finished_job_needs_no_generations() -> None:
    assert decide(View(finished="{}", members=(member("a", 1),)), inputs("a"), now=100) == REST


def test_a_worker_that_left_gracefully_does_not_count_as_lost() -> None:
    before = view(4, "abc").generation
    assert before is not None
    after = view(5, "ab", member("a", 1), member("b", 2))
    assert lost_members(after, before, "a") == []
    assert lost_members(replace(after, members=(member("a", 1),)), before, "a") == ["b"]


@pytest.mark.parametrize(
    ("now", "inherits"),
    [
        (view(5, "b", member("b", 2)), True),
        (view(5, "", member("b", 2, leaving=True)), False),
        (view(6, "d", member("d", 9)), False),
        (view(6, "d", member("d", 9, state_of=5)), True),
        (view(6, "d"), False),
    ],
    ids=["a peer stayed", "all leave", "a newcomer without the state", "a newcomer that has it", "it is gone"],
)
def test_the_heirs_of_a_generation_are_the_workers_with_its_state(now: View, inherits: bool) -> None:
    before = view(4, "abc").generation
    assert before is not None
    assert has_heirs(now, before) is inherits


def test_a_generation_without_visible_members_is_replaced_only_after_all_have_stopped() -> None:
    """Members that are frozen or cut off from etcd may still commit steps."""
    unseen = view(4, "ab", member("c", 9, ready_after=4))
    for known, may_at in (
        ({"missing_since": {"a": 100, "b": 110}}, 150),
        ({"missing_since": {"a": 100, "b": 110}, "ended": frozenset("b")}, 140),
        ({"missing_since": {"a": 100, "b": 110}, "ended": frozenset("ab")}, 100),
    ):
        assert decide(unseen, inputs("c", **known), now=may_at).kind is Kind.PROPOSE
        if may_at > 100:
            waiting = decide(unseen, inputs("c", **known), now=may_at - 1)
            assert (waiting.kind, waiting.wake_at) == (Kind.WAIT, may_at)


def test_a_newcomer_without_the_state_does_not_continue_without_its_holders() -> None:
    before = (member("a", 1, state_of=3), member("c", 9))
    frozen = View(Generation(4, 99, before, "joined", state_of=3), 7, (before[0], member("c", 9, ready_after=4)))
    assert decide(frozen, inputs("c"), now=900).kind is Kind.WAIT
    assert decide(frozen, inputs("c", ended=frozenset("a")), now=900).kind is Kind.PROPOSE
    vanished = replace(frozen, members=frozen.members[1:])
    assert decide(vanished, inputs("c", missing_since={"a": 800}), now=839).kind is Kind.WAIT
    assert decide(vanished, inputs("c", missing_since={"a": 800}), now=840).kind is Kind.PROPOSE


def test_a_worker_left_behind_does_not_continue_without_the_holders_of_the_latest_state() -> None:
    before = (member("a", 1, state_of=3), member("b", 2, state_of=1))
    frozen = View(Generation(4, 99, before, "joined", state_of=3), 7, (before[0], replace(before[1], ready_after=4)))
    assert decide(frozen, inputs("b"), now=900).kind is Kind.WAIT


def test_any_survivor_with_the_state_continues_at_once() -> None:
    before = (member("a", 1, state_of=3), member("b", 2, state_of=3), member("c", 3))
    living = (replace(before[0], state_of=4), replace(before[1], ready_after=4), replace(before[2], ready_after=4))
    broken = View(Generation(4, 99, before, "joined", state_of=3), 7, living)
    assert names(decide(broken, inputs("b", dead=frozenset("a")), now=100).generation) == "bc"


def test_a_newcomer_does_not_replace_the_last_members() -> None:
    """The last members may not know of the newcomer and continue."""
    leaving = view(4, "a", member("a", 1, leaving=True), member("c", 9, ready_after=4))
    assert decide(leaving, inputs("c"), now=900).kind is Kind.WAIT
    assert names(decide(leaving, inputs("a"), now=100).generation) == "c"


def cut(*pairs: str) -> dict[str, tuple[str, ...]]:
    """Return the unreachable members of each member, from pairs like "ab"."""
    found: dict[str, tuple[str, ...]] = {}
    for one, other in map(tuple, pairs):
        found[one], found[other] = (*found.get(one, ()), other), (*found.get(other, ()), one)
    return found


@pytest.mark.parametrize(
    ("pairs", "together"),
    [
        pytest.param(("ab", "ac"), "bc", id="the-first-is-cut-off"),
        pytest.param(("ac", "bc"), "ab", id="the-last-is-cut-off"),
        pytest.param(("ab", "ac", "bc"), "a", id="each-from-each"),
        pytest.param(("ab",), "ac", id="one-pair"),
    ],
)
def test_after_a_network_partition_the_largest_connected_group_continues(pairs: tuple[str, ...], together: str) -> None:
    unreachable = cut(*pairs)
    living = [
        replace(member(name, age, ready_after=4), unreachable=unreachable.get(name, ()))
        for age, name in enumerate("abc")
    ]
    for name in "abc":
        assert names(decide(view(4, "abc", *living), inputs(name), now=900).generation) == together


def test_a_worker_that_cannot_reach_the_others_waits_until_it_can() -> None:
    alone = replace(member("b", 2, ready_after=5), unreachable=("a",))
    assert decide(view(5, "a", member("a", 1), alone), inputs("a"), now=100) == REST
    again = replace(alone, unreachable=())
    assert names(decide(view(5, "a", member("a", 1), again), inputs("a"), now=100).generation) == "ab"


def test_having_the_state_outweighs_the_number_of_workers() -> None:
    has_it = member("a", 1, ready_after=4, state_of=3)
    newer = [replace(member(name, 9, ready_after=4), unreachable=("a",)) for name in "bc"]
    assert names(decide(view(4, "abc", has_it, *newer), inputs("b"), now=900).generation) == "a"


def all_give_up(state: View, *, fruitful: str = "") -> View:
    """Return the view after all members of the current generation have given it up, and the next one was proposed."""
    assert state.generation is not None
    number = state.number
    living = tuple(
        replace(each, ready_after=number, fruitful=number if each.id in fruitful else each.fruitful)
        for each in state.members
        if state.generation.rank(each.id) is not None
    )
    rest = tuple(each for each in state.members if each.id not in {one.id for one in living})
    broken = replace(state, members=(*living, *rest))
    proposals = [decide(broken, inputs(each.id), now=900).generation for each in living]
    (next_one,) = {names(each): each for each in proposals if each}.values()
    return replace(broken, generation=next_one)


def test_of_workers_that_break_one_generation_after_the_other_without_a_step_the_youngest_is_left_out_for_good() -> (
    None
):
    state = view(4, "abc", member("b", 1), member("c", 2), member("a", 3))
    for _ in range(MOST_ATTEMPTS - 1):
        state = all_give_up(state)
        assert names(state.generation) == "abc"
    state = all_give_up(state)
    assert state.generation is not None
    assert (names(state.generation), state.generation.left_out) == ("bc", "a")
    again = tuple(replace(each, ready_after=state.number) if each.id == "a" else each for each in state.members)
    assert decide(replace(state, members=again), inputs("b"), now=900) == REST
    state = all_give_up(replace(state, members=again))
    assert names(state.generation) == "bc"


def test_a_generation_with_a_step_or_a_loss_or_a_change_begins_the_count_anew() -> None:
    state = view(4, "ab", member("a", 1), member("b", 2))
    for _ in range(MOST_ATTEMPTS - 1):
        state = all_give_up(state)
    assert state.generation is not None
    assert state.generation.attempts == MOST_ATTEMPTS - 1
    stepped = all_give_up(state, fruitful="b").generation
    lost = all_give_up(replace(state, members=tuple(each for each in state.members if each.id == "b"))).generation
    newcomer = member("c", 9, ready_after=state.number)
    joined = decide(replace(state, members=(*state.members, newcomer)), inputs("a"), now=900).generation
    assert [names(each) for each in (stepped, lost, joined)] == ["ab", "b", "abc"]
    assert [(each.attempts, each.left_out) for each in (stepped, lost, joined) if each] == [(0, "")] * 3


def test_each_further_attempt_of_the_same_members_waits_twice_as_long() -> None:
    state, waits = view(4, "ab", member("a", 1), member("b", 2)), []
    for _ in range(MOST_ATTEMPTS):
        broken = tuple(replace(each, ready_after=state.number) for each in state.members)
        given_up = decide(replace(state, members=broken), replace(inputs("a"), changed_at=100.0), now=100.0)
        waits.append((given_up.wake_at or 100.0) - 100.0)
        state = all_give_up(state)
    assert waits == [0.0, 0.5, 1.0, 2.0, 4.0, 8.0]


def test_members_that_others_cannot_reach_do_not_count_as_the_same() -> None:
    state = view(4, "abc", *(member(name, age) for age, name in enumerate("abc", 1)))
    for _ in range(MOST_ATTEMPTS - 1):
        state = all_give_up(state)
    cut_off = {"a": ("c",), "b": ("c",), "c": ("a", "b")}
    state = all_give_up(replace(state, members=tuple(replace(e, unreachable=cut_off[e.id]) for e in state.members)))
    assert state.generation is not None
    assert (names(state.generation), state.generation.attempts, state.generation.left_out) == ("ab", 0, "")


@given(
    ages=st.permutations(range(1, 4)),
    states=st.lists(st.integers(0, 3), min_size=3, max_size=3),
    size=st.integers(1, 3),
)
def test_generations_without_a_step_end_and_the_last_worker_has_the_state(
    ages: list[int], states: list[int], size: int
) -> None:
    living = [member(name, ages[at], state_of=states[at]) for at, name in enumerate("abc"[:size])]
    state = view(4, "abc"[:size], *living)
    latest, last = max(each.state_of for each in living), ""
    for _ in range(size * MOST_ATTEMPTS):
        last = names(state.generation) or last
        state = all_give_up(state)
    assert names(state.generation) == ""
    assert [each.state_of for each in living if each.id == last] == [latest]


@given(
    number=st.integers(1, 5),
    inside=st.sets(st.sampled_from("abcdef")),
    living=st.dictionaries(
        st.sampled_from("abcdef"), st.tuples(st.integers(1, 99), st.integers(0, 6), st.booleans()), max_size=6
    ),
    now=st.floats(100, 200),
)
def test_any_proposal_has_only_willing_live_members_and_at_most_the_maximum(
    number: int, inside: set[str], living: dict[str, tuple[int, int, bool]], now: float
) -> None:
    members = [member(name, age, ready_after=ready, leaving=leaving) for name, (age, ready, leaving) in living.items()]
    state = view(number, "".join(sorted(inside)), *members)
    proposals = [action for name in living if (action := decide(state, inputs(name), now)).kind is Kind.PROPOSE]
    for action in proposals:
        assert action.generation is not None
        assert action.generation.number > number
        assert len(action.generation.members) <= 3
        for each in action.generation.members:
            assert not living[each.id][2]
            assert each.id in inside or living[each.id][1] >= number
    assert len({names(action.generation) for action in proposals}) <= 1
