"""Members and generations as records in etcd."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidewater.contract import keys
from tidewater.elastic.errors import Missed, RecordError
from tidewater.elastic.etcd.client import Entry, Event
from tidewater.elastic.membership import records
from tidewater.elastic.membership.records import (
    applied,
    change_to_json,
    generation_from_change,
    generation_from_json,
    generation_to_json,
    grouped,
    member_from_json,
    member_to_json,
    replaced,
    replaced_in_part,
    saved_to_json,
    vote_from_json,
    vote_to_json,
)
from tidewater.elastic.membership.rules import Generation, Member, Saved, Seat, View

MEMBER = Member("a", "a", "127.0.0.1", 1, "s", 0, age=3)
SEAT = Seat("a", "a", "127.0.0.1", 1)


def test_records_are_read_from_etcd_as_they_were_written() -> None:
    one = replace(MEMBER, ready_after=2, state_of=1, unreachable=("b", "c"), shard_ports=(4, 5))
    assert member_from_json(member_to_json(one), age=3) == one
    assert b"shard_hosts" not in member_to_json(one)
    far = replace(one, shard_hosts=("127.0.0.1", "127.0.0.2"))
    assert member_from_json(member_to_json(far), age=3) == far
    seats = [SEAT, replace(SEAT, id="b"), replace(SEAT, id="c", shard_ports=(4, 5))]
    seats.append(replace(SEAT, id="d", shard_ports=(4, 5), shard_hosts=("127.0.0.1", "127.0.0.2")))
    generation = Generation(3, 2**47, tuple(seats), "joined", "line", 2, "c", 1)
    assert generation_from_json(generation_to_json(generation)) == generation


def test_the_generations_record_has_of_each_member_what_others_need_to_reach_it() -> None:
    """It is sent to all members for each change: with their whole records, bytes would grow by 300 for each of them."""
    many = tuple(Member(f"w-{rank}-0a1b2c", f"w-{rank}", "10.0.100.200", 40000, "s" * 64, 7) for rank in range(1024))
    generation = Generation(8, 2**47, many, "joined", "0" * 12)
    data = generation_to_json(generation)
    assert len(data) < 60 * len(many)
    assert [each.address for each in generation_from_json(data).members] == [each.address for each in many]


def histories() -> st.SearchStrategy[list[Generation]]:
    """Return some generations, one after the other: members leave and come, now and then in any order."""
    ids = st.lists(st.sampled_from("abcdefgh"), unique=True)

    def members(before: list[str], ids: list[str], mixed: bool, port: int) -> tuple[Seat, ...]:
        kept = [each for each in before if each in ids]
        order = ids if mixed else [*kept, *(each for each in ids if each not in kept)]
        ports = {each: port if each == order[0] and mixed else 1 for each in order}
        return tuple(Seat(each, each, "127.0.0.1", ports[each], shard_ports=(4,) * (each > "d")) for each in order)

    def history(steps: list[tuple[list[str], bool, int]]) -> list[Generation]:
        found: list[Generation] = []
        for number, (wanted, mixed, port) in enumerate(steps, 1):
            before = [each.id for each in found[-1].members] if found else []
            seats = members(before, wanted, mixed, port)
            found.append(Generation(number, 100 + number, seats, "joined", "line", number % 3, "", number - 1, "s"))
        return found

    return st.lists(st.tuples(ids, st.booleans(), st.integers(1, 2)), min_size=1, max_size=8).map(history)


@given(histories(), st.lists(st.booleans(), min_size=8, max_size=8))
def test_changes_lead_to_the_generation_that_the_whole_record_has_or_to_none(
    history: list[Generation], seen: list[bool]
) -> None:
    """The reader misses some of them, and then reads the whole record."""
    known: Generation | None = None
    before: Generation | None = None
    for after, is_seen in zip(history, seen, strict=False):
        whole = generation_from_json(generation_to_json(after))
        change = change_to_json(before, after)
        fits = before is not None and known == before
        if is_seen:
            try:
                known = generation_from_change(change, known)
                assert fits
            except Missed:
                stay = [each for each in (before.members if before else ()) if after.rank(each.id) is not None]
                assert not fits or list(after.members[: len(stay)]) != stay, "it is read only if it must be"
                known = whole
            assert known == whole
            assert generation_from_change(change, known) is known, "who has it already, has it after that, too"
        before = whole


def test_a_change_has_the_members_that_go_and_come_and_no_other() -> None:
    many = tuple(Seat(f"w-{rank}-0a1b2c", f"w-{rank}", "10.0.100.200", 40000) for rank in range(1024))
    before = Generation(8, 2**47, many[:-1], "joined", "0" * 12, signature="s" * 64)
    after = replace(before, number=9, uuid=2**46, members=(*many[:7], *many[8:]))
    change = change_to_json(before, after)
    assert len(change) < 500
    assert generation_from_change(change, before) == after


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        pytest.param({"version": 99}, "version 99", id="other-version"),
        pytest.param({"of": 1, "gone": []}, "members", id="no-members"),
        pytest.param({"of": 1, "gone": [], "members": [["b"]]}, "worker", id="no-address"),
        pytest.param({"of": 1, "gone": [], "members": [], "surprise": 1}, "surprise", id="unknown-field"),
    ],
)
def test_an_unreadable_change_is_an_error_that_names_the_cause(fields: dict[str, object], words: str) -> None:
    data = json.dumps({"version": keys.CHANGE_VERSION, **fields}).encode()
    with pytest.raises(RecordError, match=words):
        generation_from_change(data, Generation(1, 1, (SEAT,), "start"))


def changed(before: Generation | None, after: Generation, revision: int) -> Event:
    path = keys.change("job")
    return Event(path, Entry(path, change_to_json(before, after), 1, revision), revision)


def test_a_view_that_is_not_whole_follows_changes_of_the_generation() -> None:
    first = generation_from_json(generation_to_json(Generation(1, 11, (SEAT, replace(SEAT, id="b")), "start")))
    second, third = replace(first, number=2, uuid=12, members=(SEAT,)), replace(first, number=3, uuid=13)
    path = keys.generation("job")
    whole = Event(path, Entry(path, generation_to_json(first), 1, 5), 5)
    view = applied([whole], replaced_in_part((), 900, View()))
    assert not view.changes
    view = applied([whole, changed(None, first, 5)], replaced_in_part((), 900, View()))
    assert (view.changes, view.generation, view.generation_revision) == (True, first, 5)
    later = applied([changed(first, second, 6), changed(second, third, 8)], view)
    assert (later.generation, later.generation_revision) == (third, 8)
    for missed in (changed(second, third, 8), replace(changed(second, third, 8), entry=None)):
        with pytest.raises(Missed):
            applied([missed], view)


def test_a_whole_view_has_the_generation_from_its_own_record() -> None:
    path = keys.generation("job")
    first, second = Generation(1, 11, (SEAT,), "start"), Generation(2, 12, (SEAT,), "joined")
    entry = Entry(path, generation_to_json(second), 1, 5)
    view = applied([changed(first, second, 5), Event(path, entry, 5)], View())
    assert (view.changes, view.generation, view.generation_revision) == (True, second, 5)
    assert not applied([replace(changed(first, second, 6), entry=None)], view).changes


@pytest.mark.parametrize("version", [3, 4])
def test_the_generation_of_an_earlier_version_is_read_since_it_outlives_its_workers(version: int) -> None:
    """It has the members' whole records."""
    whole = {"id": "a", "worker": "w", "host": "10.0.0.1", "peer_port": 1, "signature": "s", "ready_after": 0}
    whole |= {"leaving": False, "state_of": 2, "unreachable": []}
    old = {"version": version, "number": 3, "uuid": 2**47, "members": [whole], "cause": "joined", "lineage": "line"}
    if version == 4:
        whole["fruitful"], old["attempts"], old["left_out"] = 1, 2, ""
    expected = Generation(3, 2**47, (Seat("a", "w", "10.0.0.1", 1),), "joined", "line", state_of=2, signature="s")
    assert generation_from_json(json.dumps(old).encode()) == replace(expected, attempts=2 * (version == 4))


@pytest.mark.parametrize(
    ("data", "words"),
    [
        pytest.param(b"{", "not JSON", id="not-json"),
        pytest.param(b'{"version": 99}', "version 99", id="other-version"),
        pytest.param(
            json.dumps({"version": keys.GENERATION_VERSION, "surprise": 1, "members": []}).encode(),
            "surprise",
            id="unknown-field",
        ),
        pytest.param(json.dumps({"version": keys.GENERATION_VERSION}).encode(), "members", id="no-members"),
        pytest.param(
            json.dumps({"version": keys.GENERATION_VERSION, "members": [["a"]]}).encode(), "worker", id="no-address"
        ),
    ],
)
def test_an_unreadable_record_is_an_error_that_names_the_cause(data: bytes, words: str) -> None:
    with pytest.raises(RecordError, match=words):
        generation_from_json(data)


@pytest.mark.parametrize(
    ("changes", "groups"),
    [
        ("", [""]),
        ("+a +b +a", ["+a +b +a"]),
        ("-a +a +b -c", ["-a +a +b -c"]),
        ("+a +b -a -b", ["+a +b", "-a -b"]),
        ("+a -a +a -a", ["+a", "-a +a", "-a"]),
    ],
)
def test_the_content_of_a_record_and_its_deletion_are_never_applied_together(changes: str, groups: list[str]) -> None:
    events = [
        Event(each[1:], Entry(each[1:], b"", 1, number) if each[0] == "+" else None, number)
        for number, each in enumerate(changes.split())
    ]
    found = grouped(events)
    assert [" ".join(f"{'+' if each.entry else '-'}{each.key}" for each in group) for group in found] == groups
    assert [event for group in found for event in group] == events


def written(key: str, revision: int) -> Event:
    """Return what the job's record ``key`` becomes at that revision."""
    values = {
        "generation": generation_to_json(Generation(revision, 1, (MEMBER,), "joined")),
        "saved": saved_to_json(Saved(revision, "here")),
        "finished": b"{}",
        "secret": b"not for the view",
    }
    name = key.removeprefix("members/")
    value = values.get(key) or member_to_json(replace(MEMBER, id=name, ready_after=revision))
    path = f"/tidewater/job/{key}"
    return Event(path, Entry(path, value, revision, revision), revision)


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["members/a", "members/b", "members/c", "generation", "saved", "finished", "secret"]),
            st.booleans(),
        ),
        max_size=12,
    )
)
def test_changes_that_are_applied_together_give_the_view_that_they_give_one_by_one(
    changes: list[tuple[str, bool]],
) -> None:
    events = [written(key, revision) for revision, (key, _) in enumerate(changes, 1)]
    events = [each if stays else replace(each, entry=None) for each, (_, stays) in zip(events, changes, strict=True)]
    one_by_one = View()
    for event in events:
        one_by_one = applied([event], one_by_one)
    assert applied(events, View()) == one_by_one
    last = {each.key: each for each in events}
    read = replaced(tuple(each.entry for each in last.values() if each.entry), View())
    assert replace(read, members=()) == replace(one_by_one, members=())
    assert set(read.members) == set(one_by_one.members)


def vote(name: str, revision: int, ready_after: int) -> Event:
    path = f"/tidewater/job/votes/{name}"
    return Event(
        path, Entry(path, vote_to_json(replace(MEMBER, ready_after=ready_after)), revision, revision), revision
    )


def test_a_vote_changes_what_a_member_says_and_counts_less_than_a_newer_record_and_nothing_without_its_member() -> None:
    view = applied([written("members/a", 1), vote("a", 2, 7), vote("b", 3, 7)], View())
    assert [(each.id, each.ready_after) for each in view.members] == [("a", 7)]
    newer = [written("members/a", 3).entry, vote("a", 2, 7).entry]
    assert replaced(tuple(each for each in newer if each), View()).members[0].ready_after == 3
    older = [written("members/a", 1).entry, vote("a", 2, 7).entry]
    assert replaced(tuple(each for each in older if each), View()).members[0].ready_after == 7
    gone = applied([replace(vote("a", 4, 7), entry=None)], view)
    assert gone.members == view.members
    assert applied([replace(written("members/a", 5), entry=None)], view).members == ()


def test_a_view_of_what_concerns_one_process_says_that_it_is_not_whole_also_after_changes() -> None:
    entries = [written("members/a", 1).entry, vote("a", 2, 7).entry]
    view = replaced_in_part(tuple(each for each in entries if each), 900, View())
    assert (view.whole, view.count, [each.ready_after for each in view.members]) == (False, 900, [7])
    later = applied([vote("a", 3, 8)], view)
    assert (later.whole, later.count, [each.ready_after for each in later.members]) == (False, 900, [8])


@pytest.mark.parametrize("data", [b'{"version": 99}', b'{"version": 1, "ready_after": 3}'])
def test_a_vote_that_cannot_be_read_is_an_error(data: bytes) -> None:
    with pytest.raises(RecordError, match="vote record has"):
        vote_from_json(data, MEMBER)


@pytest.mark.parametrize("members", [4, 64])
def test_a_group_of_changes_costs_each_member_of_the_view_a_constant_number_of_steps(
    members: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a step for each member and each change, a thousand members would cost each of them a million steps."""

    class Counted(Member):
        asked = 0

        def __getattribute__(self, name: str) -> object:
            if name == "id":
                Counted.asked += 1
            return super().__getattribute__(name)

    monkeypatch.setattr(records, "Member", Counted)
    events = [written(f"members/m{index}", index + 1) for index in range(members)]
    view = applied(events, View())
    Counted.asked = 0
    applied(events, view)
    assert 0 < Counted.asked <= 4 * members
