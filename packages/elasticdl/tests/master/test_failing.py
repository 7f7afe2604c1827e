"""One broken worker costs the others nothing, and is replaced."""

from __future__ import annotations

from pathlib import Path

import pytest
from elasticdl.master.coordinator import Assignment, Coordinator
from elasticdl.master.failing import PROOFS, Failing
from elasticdl.master.resume import prepared, resumed
from elasticdl.master.store import MemoryStore
from elasticdl.master.tasks.state import Stage
from elasticdl.master.tasks.task_queue import LONGEST_PAUSE_SECONDS, Owner
from elasticdl.master.tasks.transitions import Outcome

from packages.elasticdl.tests.master.jobs import write_job

BROKEN, WHOLE = Owner("worker-0", "broken"), Owner("worker-1", "whole")


class Clock:
    """Moves by itself, as each call takes some time."""

    now = 0.0

    def __call__(self) -> float:
        self.now += 0.02
        return self.now


def test_the_rest_after_a_failure_doubles_and_ends_with_a_task_that_is_done() -> None:
    failing = Failing()
    for number, seconds in enumerate((1, 2, 4)):
        failing.failed("p", now=100.0 * number)
        assert failing.rests("p", 100.0 * number + seconds - 0.1)
        assert not failing.rests("p", 100.0 * number + seconds)
    for _ in range(2000):
        failing.failed("p", now=1000.0)
    assert not failing.rests("p", 1000.0 + LONGEST_PAUSE_SECONDS)
    failing.done("p", failed_on=())
    assert not failing.rests("p", 1000.0)


def test_only_tasks_that_others_have_done_prove_that_a_process_is_broken() -> None:
    failing = Failing()
    for _ in range(10):
        failing.failed("p", now=0.0)
    assert not failing.is_broken("p")
    for _ in range(PROOFS):
        assert not failing.is_broken("p")
        failing.done("q", failed_on=("p", "p", "gone"))
    assert failing.is_broken("p")
    assert not failing.is_broken("gone")


@pytest.mark.parametrize("seconds", [0.5, 100.0], ids=["quick", "slow"])
def test_a_worker_that_only_fails_fails_neither_a_task_nor_the_job_and_is_replaced(
    tmp_path: Path, seconds: float
) -> None:
    clock, job = Clock(), prepared(write_job(tmp_path, num_epochs=20), servers=0)
    state, plans = resumed(None, job)
    one = Coordinator(job.setup, plans, MemoryStore(), state, clock)
    for owner in (BROKEN, WHOLE):
        one.attend(owner, [], owner)
    failures, assignment, task, until = 0, Assignment(), 0, 0.0
    while not one.state.ended:
        if not assignment.replace:
            assignment = one.hand_out(BROKEN, [])
            if assignment.task:
                failures += 1
                one.report(Outcome(task=assignment.task, owner=BROKEN, error="no such file"), {})
        if task and clock.now >= until:
            assert one.report(Outcome(task=task, owner=WHOLE, records=10), {})
            task = 0
        if not task and (task := one.hand_out(WHOLE, []).task):
            until = clock.now + seconds
        clock.now += seconds / 20
    assert assignment.replace
    assert failures < 20
    assert (one.state.stage, one.state.work.done, one.state.work.left_out) == (Stage.DONE, 200, {})
