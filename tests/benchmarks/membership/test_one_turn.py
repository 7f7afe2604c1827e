"""The benchmark really measures: a whole turn with a real etcd and few members."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.harness.command import make_turns, parse
from benchmarks.harness.plan import wanted
from benchmarks.harness.records import Records, Row, rows
from benchmarks.membership import results
from benchmarks.membership.__main__ import Membership

pytestmark = pytest.mark.e2e


def turn(members: int, folder: Path) -> dict[str, Row]:
    """Make a turn; return what it has measured, by measure. Nothing of it is to be measured again."""
    benchmark = Membership()
    given = parse(benchmark, ["--members", str(members), "--runs", "1", "--out", str(folder / "membership.jsonl")])
    records = Records(given.out, benchmark.versions(), {})
    turns = wanted(benchmark.blocks(given), records.count)
    with benchmark.opened(given, turns, folder, print) as make:
        assert make_turns(turns, make, records, print) == []
    assert wanted(benchmark.blocks(given), records.count) == []
    return {row.measure: row for row in rows(records.all)}


def test_a_turn_measures_every_change_and_is_not_made_again(tmp_path: Path) -> None:
    found = turn(12, tmp_path)
    each = {results.named(12, change, measure) for change in results.CHANGES for measure in results.UNITS}
    assert found.keys() == {results.load(12), *each}
    for change in results.CHANGES:
        assert found[results.named(12, change, results.GENERATIONS)].median >= 1
        assert found[results.named(12, change, results.SECONDS)].median > 0
    # The newcomer's record twice, once with the state; the others' with the state; the generation.
    assert found[results.named(12, results.JOINS, results.WRITES)].low >= 12


def test_a_change_of_a_large_job_is_no_write_to_etcd_for_each_member(tmp_path: Path) -> None:
    """What they say goes over connections of their own, as in a job: see ``membership.votes``.

    Those that decide may all be among the ten that are lost; then each member writes what it says.
    """
    found = turn(48, tmp_path)
    for change in (results.LOST, results.JOINS):
        assert found[results.named(48, change, results.WRITES)].low < 30
