"""What a member says counts when those that decide have heard it, and never less than what etcd has."""

from __future__ import annotations

import math
import threading
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

import pytest

from tests.elastic.etcd.fake_client import FakeStore
from tests.elastic.membership.coordinators import Clock, within
from tidewater.contract import keys
from tidewater.elastic.membership import votes as votes_module
from tidewater.elastic.membership.need import Need
from tidewater.elastic.membership.records import vote_to_json
from tidewater.elastic.membership.rules import Generation, Member, Seat, View
from tidewater.elastic.membership.votes import Relay, Votes

ALL = tuple(Member(name, name, "127.0.0.1", 1, "signature", ready_after=0, age=1) for name in "abcdefghi")
"""Nine members; their relays are a, d and g."""
A, B, *_, E = ALL[:5]


def view(*members: Member, deciding: str = "ab") -> View:
    return View(Generation(1, 1, ALL, "start"), 1, members, whole=False, deciding=frozenset(deciding))


@pytest.fixture(autouse=True)
def groups_of_three(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(votes_module, "_GROUP", 3)


class Line:
    """Connections to other members; those named in ``taking`` take votes, and the others don't answer."""

    def __init__(self, taking: str) -> None:
        self.taking = taking
        self.asked: list[tuple[str, int]] = []
        """Ids of those that were asked, and the number of the one to which they should pass the vote on."""
        self.sent: list[dict[str, str]] = []

    def __call__(self, seat: Seat, votes: Mapping[str, str], turn: int, _: float) -> Collection[str] | None:
        self.asked.append((seat.id, turn))
        self.sent.append(dict(votes))
        return votes.keys() if seat.id in self.taking else None


@pytest.fixture
def store(clock: Clock) -> FakeStore:
    return FakeStore(clock)


@pytest.fixture
def lease(store: FakeStore) -> int:
    return store.grant(3600)


def votes_of(me: Member, store: FakeStore, lease: int) -> Votes:
    """Return the votes of a member that has a record and has voted."""
    votes = Votes(store, "job", me.id)
    votes.write(me, lease, View())
    votes.write(replace(me, state_of=1), lease, view(me))
    return votes


@pytest.fixture
def votes(store: FakeStore, lease: int) -> Votes:
    return votes_of(E, store, lease)


VOTE = vote_to_json(replace(E, state_of=1)).decode()


def in_etcd(store: FakeStore, name: str = "e") -> bool:
    return bool(store.read(keys.vote("job", name)).entries)


def test_a_member_without_a_record_writes_it(store: FakeStore, lease: int) -> None:
    votes = Votes(store, "job", "e")
    votes.write(E, lease, view())
    assert store.read(keys.member("job", "e")).entries
    assert not votes.is_due(view(E), 1)


@pytest.mark.parametrize(
    ("taking", "asked"),
    [("d", [("d", 1)]), ("a", [("d", 1), ("a", 0), ("b", 0)]), ("b", [("d", 1), ("a", 0), ("b", 0)])],
    ids=["relay", "first", "second"],
)
def test_a_vote_is_sent_to_the_relay_and_if_that_does_not_answer_to_those_that_decide(
    votes: Votes, store: FakeStore, lease: int, taking: str, asked: list[tuple[str, int]]
) -> None:
    line = Line(taking)
    assert votes.is_due(view(E), 1)
    assert votes.send(view(E), line) == VOTE
    assert line.asked == asked
    assert not votes.is_due(view(E), 1)
    votes.write(replace(E, state_of=1), lease, view(E))
    assert not in_etcd(store)


def test_etcd_has_a_vote_that_no_member_has_taken(votes: Votes, store: FakeStore, lease: int) -> None:
    assert not votes.send(view(E), Line(""))
    votes.write(replace(E, state_of=1), lease, view(E))
    assert in_etcd(store)
    assert not votes.is_due(view(E), 9)


def test_a_vote_that_a_relay_could_not_pass_on_is_in_etcd_at_once(votes: Votes, store: FakeStore, lease: int) -> None:
    asked: list[str] = []

    def answers(seat: Seat, votes: Mapping[str, str], turn: int, _: float) -> Collection[str]:
        asked.append(seat.id)
        return ()

    assert not votes.send(view(E), answers)
    assert asked == ["d"]
    votes.write(replace(E, state_of=1), lease, view(E))
    assert in_etcd(store)


def test_a_newer_vote_is_sent_though_none_has_taken_the_last_one(votes: Votes, store: FakeStore, lease: int) -> None:
    assert not votes.send(view(E), Line(""))
    votes.write(replace(E, state_of=2), lease, view(E))
    assert votes.send(view(E), Line("d"))
    assert not in_etcd(store)


def test_a_member_that_still_waits_sends_its_vote_again_and_at_last_writes_it(
    votes: Votes, store: FakeStore, lease: int
) -> None:
    line = Line("ad")
    for turn in (1, 2):
        assert votes.is_due(view(E), turn)
        assert votes.send(view(E), line)
        assert not votes.is_due(view(E), turn)
    assert line.asked == [("d", 1), ("d", 2)]
    assert votes.is_due(view(E), 3)
    assert not votes.send(view(E), line)
    votes.write(replace(E, state_of=1), lease, view(E))
    assert in_etcd(store)


def test_a_member_that_waits_sends_its_vote_again_when_another_one_begins_to_decide(votes: Votes, lease: int) -> None:
    """Those that have heard it may have ended."""
    waiting, line = replace(E, ready_after=1), Line("d")
    votes.write(waiting, lease, view(waiting, deciding="ab"))
    assert votes.send(view(waiting, deciding="ab"), line)
    assert not votes.is_due(view(waiting, deciding="b"), 1)
    for turn in (1, 2):
        assert votes.is_due(view(waiting, deciding="bc"), turn)
        assert votes.send(view(waiting, deciding="bc"), line)
        assert not votes.is_due(view(waiting, deciding="bc"), turn)
    assert line.asked == [("d", 1), ("d", 1), ("d", 2)]
    assert not votes.send(view(waiting, deciding=""), line)


def test_a_member_that_does_not_wait_sends_its_vote_once(votes: Votes) -> None:
    assert votes.send(view(E), Line("d"))
    assert not votes.is_due(view(E, deciding="bc"), 1)


def test_a_newer_vote_of_a_member_that_waits_for_long_is_sent_as_often(votes: Votes, lease: int) -> None:
    line = Line("d")
    for _ in range(2):
        assert votes.send(view(E), line)
    votes.write(replace(E, state_of=1, unreachable=("a",)), lease, view(E))
    while votes.is_due(view(E), 2):
        assert votes.send(view(E), line)
    assert line.asked == [("d", 1), ("d", 2)] * 2


def test_a_member_that_waits_has_another_one_to_ask_with_each_two_patiences() -> None:
    need = Need(since=100.0)
    assert [need.turn(3.0, now) for now in (100.0, 105.9, 106.0, 112.1)] == [(1, 106), (1, 106), (2, 112), (3, 118)]
    assert Need().turn(3.0, 1000.0) == (1, math.inf)


def test_a_member_in_a_group_of_one_that_decides_sends_its_vote_itself(store: FakeStore, lease: int) -> None:
    me, line = ALL[2], Line("ab")
    votes = votes_of(me, store, lease)
    for _ in range(2):
        assert votes.send(view(me), line)
    assert line.asked == [("a", 0), ("b", 0), ("b", 0), ("a", 0)]


@pytest.mark.parametrize(
    ("deciding", "members"), [("", ALL), ("ab", ALL[:4])], ids=["none decides", "not in the generation"]
)
def test_a_vote_goes_to_etcd_if_the_member_has_no_relay(
    votes: Votes, store: FakeStore, lease: int, deciding: str, members: Iterable[Member]
) -> None:
    stored = replace(view(E, deciding=deciding), generation=Generation(1, 1, tuple(members), "start"))
    votes.write(replace(E, state_of=2), lease, stored)
    assert in_etcd(store)
    assert not votes.is_due(stored, 1)


def test_that_a_member_leaves_is_in_its_record(votes: Votes, store: FakeStore, lease: int) -> None:
    votes.write(replace(E, leaving=True), lease, view(E))
    assert b'"leaving": true' in store.read(keys.member("job", "e")).entries[0].value
    assert not votes.is_due(view(E), 1)


def test_one_that_begins_to_decide_writes_its_own_vote(votes: Votes, store: FakeStore, lease: int) -> None:
    assert votes.send(view(E), Line("d"))
    whole = replace(view(A, B, E), whole=True)
    line = Line("abd")
    assert votes.is_due(whole, 1)
    assert not votes.send(whole, line)
    assert not line.asked
    votes.write(replace(E, state_of=1), lease, whole)
    assert b'"state_of": 1' in store.read(keys.member("job", "e")).entries[0].value
    assert not votes.is_due(whole, 1)


def test_a_relay_sends_its_own_vote_with_those_of_the_others(store: FakeStore, lease: int) -> None:
    relay, line = ALL[3], Line("b")
    votes = votes_of(relay, store, lease)
    assert votes.send(view(relay), line)
    assert line.asked == [("a", 0), ("b", 0)]
    assert line.sent[-1].keys() == {"d"}


def test_votes_that_arrive_shortly_after_one_another_are_sent_on_together(monkeypatch: pytest.MonkeyPatch) -> None:
    both = threading.Event()
    monkeypatch.setattr(votes_module, "rest_seconds", lambda _: both.wait(60) and 0.0)
    relay, line = Relay("d"), Line("b")
    taken: dict[str, Collection[str]] = {}

    def pass_on(name: str, turn: int) -> None:
        taken[name] = relay.pass_on({name: f"vote of {name}"}, turn, view(), line)

    threads = [threading.Thread(target=pass_on, args=each) for each in [("e", 1), ("f", 1), ("x", 2)]]
    for thread in threads:
        thread.start()
    assert within(60, lambda: sorted(map(len, (votes for votes, _ in relay._next.values()))) == [1, 2])
    both.set()
    for thread in threads:
        thread.join()
    assert taken == {name: {name} for name in "efx"}
    assert sorted(line.asked) == [("a", 0)] * 2 + [("b", 0)] * 2
    assert {"e": "vote of e", "f": "vote of f"} in line.sent
    assert not relay._next


def test_a_vote_that_is_not_taken_is_refused_and_those_sent_with_it_are_not() -> None:
    def takes_e(seat: Seat, votes: Mapping[str, str], turn: int, _: float) -> Collection[str]:
        return votes.keys() & {"e"}

    assert Relay("d").pass_on({"e": "", "x": ""}, 1, view(), takes_e) == {"e"}
    assert not Relay("d").pass_on({"x": ""}, 1, view(), takes_e)


def test_all_that_decide_hear_a_vote_since_the_first_may_not_be_able_to_propose() -> None:
    line = Line("abc")
    assert Relay("d").pass_on({"e": "", "f": ""}, 1, view(deciding="abc"), line) == {"e", "f"}
    assert line.asked == [("a", 0), ("b", 0), ("c", 0)]
    assert line.sent == [{"e": "", "f": ""}] * 3


def said(votes: Votes, recorded: View) -> Member:
    (member,) = votes.applied(recorded).members
    return member


def hear(votes: Votes, member: Member, recorded: View) -> bool:
    return votes.heard(member.id, vote_to_json(member).decode(), recorded)


def test_what_was_heard_counts_also_when_all_is_read_again(votes: Votes) -> None:
    given_up = replace(E, ready_after=1, unreachable=("a",))
    assert hear(votes, given_up, view(E))
    assert (votes.news, said(votes, view(E)), votes.news) == (True, given_up, False)
    assert said(votes, view(replace(E))) == given_up


def test_what_etcd_shows_later_but_was_written_before_does_not_take_a_vote_back(votes: Votes) -> None:
    hear(votes, replace(E, ready_after=3, state_of=2), view(E))
    late = replace(E, ready_after=2, host="elsewhere")
    assert said(votes, view(late)) == replace(late, ready_after=3, state_of=2)


def test_what_etcd_has_got_since_counts_and_what_was_heard_before_is_forgotten(votes: Votes) -> None:
    hear(votes, replace(E, ready_after=1, unreachable=("a",)), view(E))
    newer = replace(E, ready_after=1)
    assert said(votes, view(newer)) == newer
    assert said(votes, view(E)) == E


def test_one_that_does_not_decide_for_a_while_keeps_what_it_has_heard(votes: Votes) -> None:
    whole = replace(view(A, E), whole=True)
    given_up = replace(E, ready_after=1)
    hear(votes, given_up, whole)
    assert votes.applied(view(A)).members == (A,)
    assert votes.applied(whole).members == (A, given_up)


def test_a_vote_that_a_later_one_has_overtaken_does_not_take_it_back(votes: Votes) -> None:
    later = replace(E, ready_after=3)
    hear(votes, later, view(E))
    assert hear(votes, replace(E, ready_after=2), view(E))
    assert said(votes, view(E)) == later
    assert hear(votes, E, view(replace(later, state_of=2)))
    assert said(votes, view(replace(later, state_of=2))) == replace(later, state_of=2)


def test_a_vote_ends_with_the_record_of_its_member(votes: Votes) -> None:
    hear(votes, replace(E, ready_after=1), view(E))
    assert votes.applied(replace(view(), whole=True)).members == ()
    assert said(votes, view(E)) == E


def test_a_vote_without_a_record_or_of_another_version_is_not_taken(votes: Votes) -> None:
    assert not hear(votes, E, view(A, B))
    assert not votes.heard("e", '{"version": 99}', view(E))
    assert not votes.heard("e", "no JSON", view(E))
    assert not votes.news
