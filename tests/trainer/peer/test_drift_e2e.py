"""A replica in which a bit has flipped is found, named, and mended from the majority or stopped."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from contract import exit_codes
from tests.trainer.schedules.arena import COMMON
from tests.trainer.schedules.farm import Farm, Forked, Job
from tests.trainer.schedules.ledger import verdict
from tests.trainer.schedules.script import TOTAL

pytestmark = pytest.mark.e2e

FLIP_AT, FOUND_AT = 22, 25
"""A checkpoint is written every ten steps, and the states are compared every five."""


@pytest.fixture
def job(farm: Farm, tmp_path: Path, etcd: str) -> Iterator[Job]:
    job = Job(farm, tmp_path / "job", etcd, *COMMON, "--min-step-seconds", "0.02", "--compare-every", "5")
    yield job
    job.kill()


def start(job: Job, *names: str, flipped: str, policy: str, more: tuple[str, ...] = ()) -> list[Forked]:
    """Start workers of which one flips a bit, and wait until they train together."""
    flags = ("--on-drift", policy, "--min-workers", str(len(names)), *more)
    return [job.start(name, *flags, flip_at=FLIP_AT if name == flipped else 0) for name in names]


@pytest.mark.parametrize("flipped", ["a", "c"])
def test_the_replica_that_differs_from_the_majority_is_named_and_gets_its_state(job: Job, flipped: str) -> None:
    workers = start(job, "a", "b", "c", flipped=flipped, policy="mend")
    for worker in workers:
        worker.wait_for(lambda worker: worker.last is not None and worker.last.step >= FOUND_AT + 15)
    name = next(worker.name for worker in workers if worker.name.startswith(flipped))
    for worker in workers:
        assert [(event["workers"], event["step"]) for event in worker.events("drifted")] == [(name, str(FOUND_AT))]
    mended = {worker.name: [event["step"] for event in worker.events("state_synced")][-1:] for worker in workers}
    assert mended[name] == [str(FOUND_AT)], mended
    job.book.refresh()
    problems = verdict(job.book, TOTAL)
    # The flipped replica reports the step of the flip before the flip, and the next ones with a wrong state.
    wrong = [f"step {step}: the replicas' states differ" for step in range(FLIP_AT + 1, FOUND_AT)]
    assert [problem.split(" (")[0] for problem in problems] == wrong, "\n".join([*problems, job.told()])


def test_with_the_policy_stop_all_workers_end_and_say_who_differs_and_where_to_start_again(job: Job) -> None:
    # Slow steps, so that there is a checkpoint by then, even if a slow disk is still busy with that of step 20.
    workers = start(job, "a", "b", "c", flipped="b", policy="stop", more=("--min-step-seconds", "0.2"))
    assert [worker.wait() for worker in workers] == [exit_codes.USAGE] * 3
    for worker in workers:
        assert f"after step {FOUND_AT} the state of {workers[1].name} differs from that of the other" in worker.text()
        assert re.search("the last checkpoint before is that of step (10|20):", worker.text())


def test_two_replicas_that_differ_stop_because_nobody_knows_which_one_is_right(job: Job) -> None:
    workers = start(job, "a", "b", flipped="b", policy="mend")
    assert [worker.wait() for worker in workers] == [exit_codes.USAGE] * 2
    a, b = (worker.name for worker in workers)
    for worker in workers:  # it names them by rank, and the first one that is ready has rank 0
        says = f"after step {FOUND_AT} the states of ({a}, {b}|{b}, {a}) differ, and no majority"
        assert re.search(says, worker.text()), worker.text()
