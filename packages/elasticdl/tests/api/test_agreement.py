"""The global batch stays the same when workers come, go, or have no more records."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

import pytest
from elasticdl.api.agreement import Decision, Kind, Row, decide, shares

SIZE = 8
"""Records of a minibatch."""
FULL, NOTHING = Row(full=True), Row()


def decided(*rows: Row, batches: int = 4, turn: int = 0) -> Decision:
    return decide(rows, batches=batches, turn=turn)


def test_workers_contribute_alike() -> None:
    assert decided(FULL, FULL) == Decision(Kind.COMPUTE, (2, 2))
    assert decided(FULL, FULL, FULL) == Decision(Kind.COMPUTE, (2, 1, 1))


def test_with_more_workers_than_minibatches_each_gets_its_turn() -> None:
    turns = [decided(*[FULL] * 6, turn=turn).quotas for turn in range(6)]
    assert [sum(each) for each in zip(*turns, strict=True)] == [4] * 6


def test_what_a_lost_worker_leaves_is_computed_by_the_others() -> None:
    one, other = Row(passes=1, records=8, full=True), Row(passes=1, records=8, full=True)
    assert decided(one, other) == Decision(Kind.COMPUTE, (1, 1))
    assert decided(one) == Decision(Kind.COMPUTE, (3,))


def test_a_newcomer_takes_its_share_of_what_is_missing() -> None:
    assert decided(Row(passes=2, records=16, full=True), FULL) == Decision(Kind.COMPUTE, (0, 2))


def test_a_worker_without_records_contributes_nothing() -> None:
    assert decided(FULL, NOTHING) == Decision(Kind.COMPUTE, (4, 0))


def test_the_model_is_updated_when_the_global_batch_is_whole() -> None:
    assert decided(Row(passes=3, records=24), Row(passes=1, records=8)).kind is Kind.UPDATE


def test_remains_are_used_when_nothing_else_is_left_anywhere() -> None:
    rest = Row(remains=True, held=1, outstanding=2)
    assert decided(rest, Row(remains=True, held=1)) == Decision(Kind.COMPUTE, (1, 1), remains=True)
    assert decided(rest, Row(full=True, held=1)) == Decision(Kind.COMPUTE, (0, 4))


def test_shards_that_are_with_a_lost_worker_are_waited_for() -> None:
    rows = (Row(passes=2, records=16, held=1, outstanding=3), Row(remains=True, held=1))
    assert decided(*rows).kind is Kind.WAIT
    assert decided(rows[0]._replace(outstanding=2), rows[1]).kind is Kind.COMPUTE


def test_the_last_update_has_what_is_left() -> None:
    assert decided(Row(passes=2, records=13, held=1, outstanding=1), NOTHING).kind is Kind.UPDATE


def test_the_job_ends_when_the_master_has_said_so_to_all() -> None:
    ended = Row(stopped=True, outstanding=0)
    assert decided(ended, ended).kind is Kind.FINISH
    assert decided(ended, NOTHING).kind is Kind.WAIT


def test_a_generation_ends_when_all_know_of_the_next_one() -> None:
    assert decided(FULL._replace(knows=True), FULL._replace(knows=True)).kind is Kind.MOVE
    assert decided(FULL._replace(knows=True), FULL).kind is Kind.COMPUTE


@pytest.mark.parametrize("missing", [0, 1, 5, 9])
def test_shares_go_only_to_those_who_can(missing: int) -> None:
    found = shares([True, False, True], [1, 0, 0], missing, 0)
    assert sum(found) == missing
    assert found[1] == 0


@dataclass
class Simulated:
    """A worker with records, in a job without a network."""

    records: int
    held: int = 0
    passes: int = 0
    collected: int = 0

    def row(self, outstanding: int, todo: int) -> Row:
        return Row(
            passes=self.passes,
            records=self.collected,
            full=self.records >= SIZE,
            remains=0 < self.records < SIZE and not todo,
            held=self.held,
            outstanding=outstanding,
            stopped=outstanding == 0,
        )


@pytest.mark.parametrize("seed", range(30))
def test_all_records_are_used_in_global_batches_of_one_size_but_at_the_end(seed: int) -> None:
    draw = random.Random(seed)
    workers = [Simulated(draw.randrange(200), held=1) for _ in range(draw.randrange(1, 6))]
    total, batches = sum(worker.records for worker in workers), draw.randrange(1, 6)
    updates = simulated(workers, batches, draw)
    assert sum(updates) == total
    # Each worker may have one rest: they make the last updates, after all whole ones.
    whole = [update for update in updates if update == batches * SIZE]
    assert updates[: len(whole)] == whole
    assert len(updates) - len(whole) <= 1 + len(workers) // batches + 1


def simulated(workers: Sequence[Simulated], batches: int, draw: random.Random) -> list[int]:
    """Return the records of each update."""
    updates: list[int] = []
    while True:
        outstanding = sum(worker.held for worker in workers if worker.records or worker.collected)
        for worker in workers:
            worker.held = int(bool(worker.records or worker.collected))
        decision = decide([worker.row(outstanding, 0) for worker in workers], batches=batches, turn=len(updates))
        if decision.kind is Kind.FINISH:
            return updates
        assert decision.kind in (Kind.UPDATE, Kind.COMPUTE)
        if decision.kind is Kind.UPDATE:
            updates.append(sum(worker.collected for worker in workers))
            for worker in workers:
                worker.passes = worker.collected = 0
            continue
        for worker, quota in zip(workers, decision.quotas, strict=True):
            for _ in range(min(quota, 1 + draw.randrange(3))):  # one that has lost its turn comes back to it
                used = min(SIZE, worker.records)
                if used == SIZE or (decision.remains and used):
                    worker.records, worker.collected, worker.passes = (
                        worker.records - used,
                        worker.collected + used,
                        worker.passes + 1,
                    )


def test_the_training_ends_at_once_when_one_script_has_said_that_it_is_enough() -> None:
    assert decided(FULL, Row(passes=1, records=8, knows=True, enough=True)).kind is Kind.FINISH
