"""The benchmark really measures: a whole turn with a real etcd and few members."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.harness.command import make_turns, parse
from benchmarks.harness.plan import wanted
from benchmarks.harness.records import Records, rows
from benchmarks.membership import results
from benchmarks.membership.__main__ import Membership

pytestmark = pytest.mark.e2e


def test_a_turn_measures_every_change_and_is_not_made_again(tmp_path: Path) -> None:
    benchmark = Membership()
    given = parse(benchmark, ["--members", "12", "--runs", "1", "--out", str(tmp_path / "membership.jsonl")])
    records = Records(given.out, benchmark.versions(), {})
    turns = wanted(benchmark.blocks(given), records.count)
    with benchmark.opened(given, turns, tmp_path, print) as make:
        assert make_turns(turns, make, records, print) == []
    found = {row.measure: row for row in rows(records.all)}
    each = {results.named(12, change, measure) for change in results.CHANGES for measure in results.UNITS}
    assert found.keys() == {results.load(12), *each}
    for change in results.CHANGES:
        assert found[results.named(12, change, results.GENERATIONS)].median >= 1
        assert found[results.named(12, change, results.SECONDS)].median > 0
    # The newcomer's record twice, once with the state; the others' with the state; the generation.
    assert found[results.named(12, results.JOINS, results.WRITES)].low >= 12
    assert wanted(benchmark.blocks(given), records.count) == []
