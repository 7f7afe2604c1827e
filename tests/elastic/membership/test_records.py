"""Members and generations as records in etcd."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from tidewater.contract import keys
from tidewater.elastic.errors import RecordError
from tidewater.elastic.etcd.client import Entry, Event
from tidewater.elastic.membership.records import (
    generation_from_json,
    generation_to_json,
    grouped,
    member_from_json,
    member_to_json,
)
from tidewater.elastic.membership.rules import Generation, Member

MEMBER = Member("a", "a", "127.0.0.1", 1, "s", 0, age=3)


def test_records_are_read_from_etcd_as_they_were_written() -> None:
    one = replace(MEMBER, ready_after=2, state_of=1, unreachable=("b", "c"))
    assert member_from_json(member_to_json(one), age=3) == one
    generation = Generation(3, 2**47, (one, replace(MEMBER, id="b")), "joined")
    assert generation_from_json(generation_to_json(generation)) == generation


def test_the_generation_of_an_earlier_version_is_read_since_it_outlives_its_workers() -> None:
    written = json.loads(generation_to_json(Generation(3, 2**47, (MEMBER,), "joined")))
    old = {key: value for key, value in written.items() if key not in ("attempts", "left_out")} | {"version": 3}
    old["members"] = [{key: value for key, value in each.items() if key != "fruitful"} for each in old["members"]]
    assert generation_from_json(json.dumps(old).encode()) == Generation(3, 2**47, (MEMBER,), "joined")


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
