"""Members and generations as records in etcd (JSON with a version), and the view that they form.

    store.put(keys.member(job, me.id), member_to_json(me))
    me = member_from_json(entry.value, age=entry.create_revision)

An unknown version or shape raises RecordError: another version of the code takes part in the job.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import asdict, replace
from typing import Any

from tidewater.contract import keys
from tidewater.elastic.errors import Missed, RecordError
from tidewater.elastic.etcd import codec
from tidewater.elastic.etcd.client import Entry, Event
from tidewater.elastic.membership.rules import Broken, Generation, Member, Saved, Seat, View

_MEMBERS, _VOTES, _DECIDING = "members/", "votes/", "deciding/"
_SEAT, _FURTHER = ("id", "worker", "host", "peer_port"), ("shard_ports", "shard_hosts")
_VOTED = ("ready_after", "state_of", "unreachable", "fruitful")


def member_to_json(member: Member) -> bytes:
    """Return the record under ``keys.member``."""
    content = asdict(member)
    del content["age"]
    if not member.shard_hosts:
        del content["shard_hosts"]
    return codec.encode(content, version=keys.MEMBER_VERSION)


def member_from_json(data: bytes, *, age: int) -> Member:
    """Raise RecordError for a version or shape this code does not know."""
    content = _content(data, "member", keys.MEMBER_VERSION)
    return _member({**content, "age": age}, "member")


def generation_to_json(generation: Generation) -> bytes:
    """Return the record under ``keys.generation``."""
    # The members' whole records are under their own keys: this one is sent to all of them for each change.
    rows = [_row(each) for each in generation.members]
    content = asdict(replace(generation, members=()))
    return codec.encode({**content, "members": rows}, version=keys.GENERATION_VERSION)


def generation_from_json(data: bytes) -> Generation:
    """Raise RecordError for a version or shape this code does not know."""
    # The record outlives the workers, so a new version of the program finds that of the old one.
    content = _content(data, "generation", keys.GENERATION_VERSION, older=(3, 4))
    members = content.get("members")
    if not isinstance(members, list):
        raise RecordError("generation record: members is not a list")
    if members and isinstance(members[0], dict):  # before version 5, with the members' whole records
        content["state_of"] = max(int(each.get("state_of", 0)) for each in members)
        content["signature"] = members[0].get("signature")
        members = [[each.get(name) for name in _SEAT] for each in members]
    try:
        content["members"] = tuple(_seat(*each) for each in members)
    except TypeError as error:
        raise RecordError(f"generation record: {error}") from error
    return codec.build(Generation, content, "generation")


def change_to_json(before: Generation | None, after: Generation) -> bytes:
    """Return the record under ``keys.change``: in what ``after`` differs from ``before``.

    If more than that members are gone and others follow those that stay, it says only that there is a new generation.
    """
    rows = [_row(each) for each in after.members]
    former = [_row(each) for each in before.members] if before else []
    here = set(map(_id, rows))
    stay = [row for row in former if _id(row) in here]
    content = asdict(replace(after, members=()))
    content |= {"of": None, "gone": [], "members": []}
    if before and rows[: len(stay)] == stay:
        gone = [_id(row) for row in former if _id(row) not in here]
        content |= {"of": before.uuid, "gone": gone, "members": rows[len(stay) :]}
    return codec.encode(content, version=keys.CHANGE_VERSION)


def generation_from_change(data: bytes, before: Generation | None) -> Generation:
    """Return the generation after a change. Raise Missed unless ``before`` is the one before it or that one itself, and
    RecordError for a version or shape this code does not know."""
    content = _content(data, "change", keys.CHANGE_VERSION)
    try:
        of, gone, rows = content.pop("of"), frozenset(content.pop("gone")), content.pop("members")
        came = tuple(_seat(*each) for each in rows)
    except (KeyError, TypeError) as error:
        raise RecordError(f"change record: {error}") from error
    if before and before.uuid == content.get("uuid"):
        return before
    if before is None or before.uuid != of:
        raise Missed("the generation before this change is not known")
    stay = tuple(each for each in before.members if each.id not in gone)
    return codec.build(Generation, {**content, "members": stay + came}, "change")


def _id(row: Sequence[Any]) -> str:
    return str(row[0])


def _row(member: Seat) -> list[Any]:
    """Return what others need to reach a member; ports and hosts of further processes only if it has any."""
    further = [member.shard_ports, member.shard_hosts] if member.shard_hosts else [member.shard_ports]
    return [*(getattr(member, name) for name in _SEAT), *(each for each in further if each)]


def _seat(  # as ``_row`` gives them
    name: str, worker: str, host: str, port: int, ports: Iterable[int] = (), hosts: Iterable[str] = ()
) -> Seat:
    return Seat(name, worker, host, port, shard_ports=tuple(ports), shard_hosts=tuple(hosts))


def saved_to_json(saved: Saved) -> bytes:
    """Return the record under ``keys.saved``."""
    return codec.encode(asdict(saved), version=keys.SAVED_VERSION)


def saved_from_json(data: bytes) -> Saved:
    """Raise RecordError for a version or shape this code does not know."""
    return codec.build(Saved, _content(data, "saved", keys.SAVED_VERSION), "saved")


def broken_to_json(broken: Broken) -> bytes:
    """Return the record under ``keys.broken``."""
    return codec.encode(asdict(broken), version=keys.BROKEN_VERSION)


def broken_from_json(data: bytes) -> Broken:
    """Raise RecordError for a version or shape this code does not know."""
    return codec.build(Broken, _content(data, "broken", keys.BROKEN_VERSION), "broken")


def vote_to_json(member: Member) -> bytes:
    """Return the record under ``keys.vote``: what may change in a member, but for ``leaving``, which is for all."""
    return codec.encode(vote_of(member), version=keys.VOTE_VERSION)


def vote_of(member: Member) -> dict[str, Any]:
    """Return the fields of its vote."""
    return {name: getattr(member, name) for name in _VOTED}


def vote_from_json(data: bytes, member: Member) -> Member:
    """Return the member with its vote. Raise RecordError for a version or shape this code does not know."""
    content = _content(data, "vote", keys.VOTE_VERSION)
    if content.keys() != set(_VOTED):
        raise RecordError(f"vote record has {sorted(content)} instead of {sorted(_VOTED)}")
    return replace(member, **{**content, "unreachable": tuple(content["unreachable"])})


def replaced(entries: tuple[Entry, ...], _: View) -> View:
    """Return the view that consists of these records of a job."""
    return _changed(View(), ((entry.key, entry) for entry in entries))


def replaced_in_part(entries: tuple[Entry, ...], count: int, _: View) -> View:
    """Return the view that consists of these records, which concern one process of ``count``."""
    return replace(_changed(View(), ((entry.key, entry) for entry in entries)), whole=False, count=count)


def applied(events: Iterable[Event], view: View) -> View:
    """Return ``view`` after these changes. Takes time in proportion to the sum of changes and members."""
    return _changed(view, ((event.key, event.entry) for event in events))


def newly_refused(before: View, view: View) -> list[tuple[str, str]]:
    """Return the ids of members with a record of another version that ``before`` didn't have, and what to say.

    Raise RecordError if such a member is in the generation: then this process is the one with another version.
    """
    for member_id, reason in view.unread:
        if view.generation and view.generation.rank(member_id) is not None:
            raise RecordError(reason)
    return [each for each in view.unread if each not in before.unread]


def grouped(events: Iterable[Event]) -> list[list[Event]]:
    """Return the events in groups, in order, so that no group has both content of a key and its deletion.

    The last content of a member's record before its deletion counts (see ``suspects``).
    """
    groups: list[list[Event]] = [[]]
    written: set[str] = set()
    for event in events:
        if event.entry:
            written.add(event.key)
        elif event.key in written:
            groups.append([])
            written = set()
        groups[-1].append(event)
    return groups


def _changed(view: View, changes: Iterable[tuple[str, Entry | None]]) -> View:
    """Return ``view`` with these contents of keys; without a key that has none."""
    members = {member.id: member for member in view.members}
    unread, written, deciding = dict(view.unread), dict[str, int](), set(view.deciding)
    others: dict[str, Any] = {}
    for key, entry in changes:
        name = _name(key)
        if name.startswith(_MEMBERS):
            member_id = name.removeprefix(_MEMBERS)
            members.pop(member_id, None)  # the member that was written last comes last
            unread.pop(member_id, None)
            if entry:
                written[member_id] = entry.mod_revision
                try:
                    members[member_id] = member_from_json(entry.value, age=entry.create_revision)
                except RecordError as error:
                    unread[member_id] = str(error)
        elif name.startswith(_VOTES):
            member_id = name.removeprefix(_VOTES)
            # A vote goes with its member. A newer record of the member has all that a vote has.
            if entry and member_id in members and entry.mod_revision > written.get(member_id, 0):
                members[member_id] = vote_from_json(entry.value, members[member_id])
        elif name.startswith(_DECIDING):
            (deciding.add if entry else deciding.discard)(name.removeprefix(_DECIDING))
        elif name == "change" and not view.whole:  # then the generation's own record may be missing
            others |= _followed(others.get("generation", view.generation), entry)
        else:
            others |= _fields(name, entry)
    others |= {"unread": tuple(unread.items()), "deciding": frozenset(deciding)}
    return replace(view, members=tuple(members.values()), **others)


def _followed(before: Generation | None, entry: Entry | None) -> dict[str, Any]:
    """Return the fields of a view after a change of the generation. Raise Missed if all must be read again."""
    if entry is None:
        raise Missed("the record of the last change is gone")
    generation = generation_from_change(entry.value, before)
    return {"generation": generation, "generation_revision": entry.mod_revision, "changes": True}


def _fields(name: str, entry: Entry | None) -> dict[str, Any]:
    """Return the fields of a view that this key, which is not a member's, fills; none for one that it doesn't show."""
    if name == "generation":
        generation = generation_from_json(entry.value) if entry else None
        return {"generation": generation, "generation_revision": entry.mod_revision if entry else 0}
    if name == "change":
        return {"changes": entry is not None}
    if name == "broken":
        broken = broken_from_json(entry.value) if entry else None
        return {"broken": broken, "broken_revision": entry.mod_revision if entry else 0}
    if name == "saved":
        return {"saved": saved_from_json(entry.value) if entry else None}
    if name == "finished":
        return {"finished": entry.value.decode() if entry else ""}
    return {}


def _name(key: str) -> str:
    """Return the key below the job's prefix ``/tidewater/<job>/``."""
    return key.split("/", 3)[3]


def _content(data: bytes, what: str, version: int, *, older: Collection[int] = ()) -> dict[str, Any]:
    remedy = "let all workers run the same code, or give the job a new name"
    return codec.decode(data, what, version=version, reader="worker", remedy=remedy, older=older)


def _member(content: dict[str, Any], what: str) -> Member:
    # JSON has no tuples.
    tuples = {name: tuple(content.get(name, ())) for name in ("unreachable", *_FURTHER)}
    return codec.build(Member, {**content, **tuples}, what)
