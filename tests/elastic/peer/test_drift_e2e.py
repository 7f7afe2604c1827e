"""A replica with a flipped bit is found and named, and either gets the majority's state or is stopped."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.elastic.schedules.arena import COMMON
from tests.elastic.schedules.forked import Forked, Job
from tests.elastic.schedules.ledger import verdict
from tests.elastic.schedules.script import TOTAL
from tests.farm import Farm
from tidewater.contract import exit_codes

pytestmark = pytest.mark.e2e

FLIP_AT, FOUND_AT = 22, 25
"""A checkpoint is written every ten steps, and the states are compared every five."""


@pytest.fixture
def job(farm: Farm, tmp_path: Path, etcd: str) -> Iterator[Job]:
    # A slow machine must not look like a fault: the others could give up the worker that has the different state.
    patience = ("--heartbeat-seconds", "30", "--lease-seconds", "60")
    job = Job(farm, tmp_path / "job", etcd, *COMMON, *patience, "--min-step-seconds", "0.02", "--compare-every", "5")
    yield job
    job.kill()


def start(
    job: Job, *names: str, flipped: str, policy: str, frozen: str = "", more: tuple[str, ...] = ()
) -> list[Forked]:
    """Start workers; one flips a bit. They get their ranks in this order, and train when all are there.

    ``frozen``: the worker that is stopped when it gives up the step in which the difference is found.
    """
    flags = ("--on-drift", policy, "--min-workers", str(len(names)), *more)
    workers = []
    for name in names:
        armed = {"give-up": "freeze"} if name == frozen else {}
        workers.append(job.start(name, *flags, flip_at=FLIP_AT if name == flipped else 0, armed=armed))
        workers[-1].wait_for(lambda worker: worker.events("joined"))
    return workers


def check_mended(job: Job, flipped: Forked) -> None:
    """Wait until all workers train on, and check that only that one was named, and got the others' state."""
    for worker in job.workers:
        worker.wait_for(lambda worker: worker.last is not None and worker.last.step >= FOUND_AT + 15)
    for worker in job.workers:
        assert [(each["workers"], each["step"]) for each in worker.events("drifted")] == [(flipped.name, str(FOUND_AT))]
    assert flipped.events("state_synced")[-1]["step"] == str(FOUND_AT), flipped.text()
    job.book.refresh()
    problems = verdict(job.book, TOTAL)
    # The flipped replica reports the step of the flip before the flip, and the next ones with a wrong state.
    wrong = [f"step {step}: the replicas' states differ" for step in range(FLIP_AT + 1, FOUND_AT)]
    assert [problem.split(" (")[0] for problem in problems] == wrong, "\n".join([*problems, job.told()])


@pytest.mark.parametrize("flipped", ["a", "c"])
def test_the_replica_that_differs_from_the_majority_is_named_and_gets_its_state(job: Job, flipped: str) -> None:
    workers = start(job, "a", "b", "c", flipped=flipped, policy="mend")
    check_mended(job, workers["abc".index(flipped)])


def test_a_replica_that_stands_still_after_the_comparison_still_has_its_vote(job: Job) -> None:
    # Only the first worker can be armed from its start: the others would be hit while they wait in line.
    a, b, c = start(job, "a", "b", "c", flipped="b", policy="mend", frozen="a", more=("--heartbeat-seconds", "3"))
    c.wait_for(lambda worker: any(event["peer"] == a.name for event in worker.events("peer_lost")))
    a.has_sent_itself(signal.SIGSTOP, "give-up")
    a.signal(signal.SIGCONT)
    check_mended(job, b)


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
