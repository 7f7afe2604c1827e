"""Members without a record get a grace period or are lost."""

from __future__ import annotations

import threading
import time
from dataclasses import replace

import pytest

from tests.elastic.membership.test_decision import inputs, member, view
from tidewater.elastic.membership import suspects
from tidewater.elastic.membership.decision import REST, Kind, decide
from tidewater.elastic.membership.rules import Generation, Seat, View, is_broken, silent
from tidewater.elastic.membership.suspects import Missing, Roll, Sign, excused, heard, noted, unheard

GRACE = 2.0
WHOLE = view(4, "ab", member("a", 1), member("b", 2))
GAP = replace(WHOLE, members=(member("a", 1),))


def gap(now: float = 100) -> Missing:
    """Return a state in which ``b`` is missing since ``now``."""
    return noted(Missing(), GAP, WHOLE, now)


def test_a_missing_record_is_kept_for_a_grace_period() -> None:
    missing = noted(Missing(), WHOLE, View(), now=99)
    assert missing == Missing(4)
    missing = noted(noted(missing, GAP, WHOLE, now=100), GAP, GAP, now=101)
    assert missing.since == {"b": 100}
    kept = excused(GAP, missing, GRACE, now=101.9)
    assert kept.member("b") == member("b", 2)
    assert decide(kept, inputs("a"), now=101.9) == REST
    assert excused(GAP, missing, GRACE, now=102) == GAP
    assert noted(missing, WHOLE, GAP, now=103).since == {}


def test_a_member_that_does_not_answer_has_no_grace_period() -> None:
    for sign in (Sign.SILENT, Sign.ENDED):
        missing = heard(gap(), {"b": sign})
        assert excused(GAP, missing, GRACE, now=100) == GAP
    assert missing.ended == {"b"}


def test_a_member_that_has_ended_stays_removed() -> None:
    missing = heard(heard(gap(), {"b": Sign.ENDED}), {"b": Sign.SILENT})
    assert missing.ended == {"b"}


def test_each_generation_has_its_own_grace_period() -> None:
    later = noted(heard(gap(), {"b": Sign.SILENT}), view(5, "bc", member("c", 3)), View(), now=105)
    assert (later.number, later.since, later.signs) == (5, {"b": 105}, {})


def test_a_missing_record_keeps_its_last_value() -> None:
    given_up = replace(WHOLE, members=(member("a", 1), member("b", 2, ready_after=4)))
    assert is_broken(excused(GAP, noted(Missing(), GAP, given_up, now=100), GRACE, now=101))


def test_a_leaving_member_has_no_grace_period() -> None:
    leaving = replace(WHOLE, members=(member("a", 1), member("b", 2, leaving=True)))
    missing = noted(Missing(), GAP, leaving, now=100)
    assert excused(GAP, noted(missing, GAP, GAP, now=101), GRACE, now=101) == GAP


def test_a_newcomer_does_not_take_over_the_job_while_all_records_are_missing() -> None:
    empty = view(4, "ab", member("c", 9, ready_after=4, kind="t"))
    kept = excused(empty, noted(Missing(), empty, View(), now=100), GRACE, now=101)
    assert decide(kept, inputs("c"), now=900).kind is Kind.WAIT


def test_members_are_asked_if_their_record_is_missing_or_they_are_silent_after_a_break() -> None:
    assert unheard(WHOLE) == ()
    assert [each.id for each in unheard(GAP)] == ["b", "a"]
    given_up = replace(WHOLE, members=(member("a", 1), member("b", 2, ready_after=4)))
    assert [each.id for each in unheard(given_up)] == ["a"]


def broken(members: int, *survivors: int) -> View:
    """Return a generation of so many members, given up by these survivors."""
    all_of_it = tuple(member(f"m{age}", age, ready_after=4 * (age in survivors)) for age in range(members))
    return View(Generation(4, 9, all_of_it, "start"), 7, all_of_it)


def test_of_very_many_silent_members_all_are_asked_in_turns_and_what_was_found_stays() -> None:
    roll, asked, ended = Roll(), list[str](), {f"m{age}" for age in range(0, 1000, 7)}

    def is_dead(seat: Seat) -> bool:
        asked.append(seat.id)
        return seat.id in ended

    after = broken(1000, 1, 2, 3)
    for _ in range(16):
        found = roll.dead(after, 50.0, is_dead, now=100.0)
    assert sorted(set(asked)) == sorted(each.id for each in silent(after))
    assert max(asked.count(each) for each in set(asked)) <= 2
    assert found == ended
    ended.clear()
    for _ in range(16):
        found = roll.dead(after, 50.0, is_dead, now=100.0)
    assert found == frozenset(), "those that answer again after an interruption"


def test_the_members_of_another_generation_are_asked_anew() -> None:
    roll = Roll()
    assert roll.dead(broken(3, 0), 0.0, lambda seat: seat.id == "m1", now=100.0) == {"m1"}
    later = broken(3, 0)
    assert later.generation
    later = replace(later, generation=replace(later.generation, number=5))
    assert roll.dead(later, 0.0, lambda seat: False, now=100.0) == frozenset()


def test_while_more_of_very_many_give_it_up_those_that_are_left_are_not_asked() -> None:
    roll, after = Roll(), broken(1000, 1)
    assert roll.dead(after, 99.9, lambda seat: True, now=100.0) == frozenset()
    few = broken(20, 1)
    assert len(Roll().dead(few, 99.9, lambda seat: True, now=100.0)) == 19


def test_silent_members_are_asked_side_by_side_once_one_takes_long() -> None:
    """Each may take as long as a connection does that is never answered."""
    others = threading.Barrier(18, timeout=60)
    first: list[Seat] = []

    def ask(seat: Seat) -> bool:
        if not first:
            first.append(seat)
            time.sleep(0.02)
            return True
        return others.wait() < 0

    assert Roll().dead(broken(20, 1), 0.0, ask, now=100.0) == {first[0].id}


def test_members_that_answer_at_once_are_asked_without_a_thread_for_each(monkeypatch: pytest.MonkeyPatch) -> None:
    """Threads take longer than the answers, and the others wait for this decision."""
    monkeypatch.setattr(suspects, "_ALONE_SECONDS", 60.0)
    this = threading.current_thread()
    assert len(Roll().dead(broken(20, 1), 0.0, lambda seat: threading.current_thread() is this, now=100.0)) == 19
