"""The log format is an interface for people and tools."""

from __future__ import annotations

import io
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidewater.elastic.observe.log import MOST_REPORTS, Lasting, Log, is_reported, line, parse


def test_a_report_begins_with_the_fields_of_the_design_in_order() -> None:
    stream = io.StringIO()
    log = Log("w-0", stream=stream, clock=lambda: 0.12)
    log.progress(step=120, epoch=3, world_size=2, generation=4, loss=0.31212, samples_per_s=850)
    assert stream.getvalue() == (
        "step=120 epoch=3 world_size=2 generation=4 loss=0.3121 samples_per_s=850 "
        "worker=w-0 time=1970-01-01T00:00:00.120Z\n"
    )


def test_events_begin_with_their_name_and_debug_events_are_off_by_default() -> None:
    stream = io.StringIO()
    log = Log("w-0", stream=stream, clock=lambda: 0.0)
    log.event("peer_lost", peer="w 1")
    log.debug("detail")
    assert stream.getvalue().startswith('event=peer_lost peer="w 1" worker=w-0 ')
    assert stream.getvalue().count("\n") == 1


@given(st.text(st.characters(exclude_categories=["Cs", "Cc"])))
def test_any_text_is_logged_and_parsed_unchanged(text: str) -> None:
    assert parse(line(value=text, next=1)) == {"value": text, "next": "1"}


def test_a_lasting_trouble_is_said_at_once_then_at_growing_intervals_and_anew_after_a_pause() -> None:
    now = 0.0
    said: list[float] = []
    log = Log("a", stream=io.StringIO(), listener=lambda name, fields: said.append(now))
    lasting = Lasting(log, "etcd_unreachable", clock=lambda: now)
    for second in (*range(1000), *range(2000, 2012)):
        now = float(second)
        lasting.say(error="refused")
    assert said == [0, 10, 30, 70, 150, 310, 630, 2000, 2010]


def reporting(size: int, reports: int) -> list[list[int]]:
    """Return the ranks that report a step, for each of so many reported steps."""
    return [[rank for rank in range(size) if is_reported(number, rank, size)] for number in range(reports)]


@pytest.mark.parametrize("size", [1, 2, 31, 32])
def test_in_a_small_job_every_worker_reports(size: int) -> None:
    assert reporting(size, 3) == [list(range(size))] * 3


@pytest.mark.parametrize("size", [33, 64, 100, 1000, 1024])
def test_in_a_large_job_few_workers_report_a_step_rank_0_always_and_the_others_in_turn(size: int) -> None:
    turns = math.ceil(size / MOST_REPORTS)
    found = reporting(size, turns)
    assert all(0 in ranks and MOST_REPORTS // 2 <= len(ranks) <= MOST_REPORTS + 1 for ranks in found)
    assert sorted({rank for ranks in found for rank in ranks}) == list(range(size))
