"""A field's facts come from its declaration in the dataclass."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated

import pytest

from tidewater.elasticjob import model
from tidewater.elasticjob.about import About, fields_of, key_of


@dataclass(frozen=True, kw_only=True)
class Example:
    needed: Annotated[int, About("Needed.")]
    may_be_absent: Annotated[str | None, About("May be absent.")] = None
    filled_in: Annotated[int, About("Filled in.")] = 3
    empty: Annotated[Mapping[str, int], About("Empty.")] = field(default_factory=dict)


def test_type_default_and_requirement_are_those_of_the_dataclass() -> None:
    needed, absent, filled, empty = fields_of(Example)
    assert (needed.type, needed.required, needed.default) == (int, True, None)
    assert (absent.type, absent.required, absent.default) == (str, False, None)
    assert (filled.type, filled.required, filled.default) == (int, False, 3)
    assert (empty.required, empty.default) == (False, {})


@pytest.mark.parametrize(
    ("name", "key"), [("suspend", "suspend"), ("ttl_seconds_after_finished", "ttlSecondsAfterFinished")]
)
def test_a_name_in_the_api_is_the_pythons_in_camel_case(name: str, key: str) -> None:
    assert key_of(name) == key


@pytest.mark.parametrize("described", [model.JobSpec, model.ReplicaSpec, model.SchedulingPolicy, model.Status])
def test_every_field_is_described_in_sentences(described: type) -> None:
    for one in fields_of(described):
        assert one.about.text.endswith("."), one.name
        assert one.about.text[0].isupper(), one.name
