"""The job continues from a checkpoint if no worker has the state, and never while a worker may still continue."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.elastic.schedules.arena import COMMON
from tests.elastic.schedules.forked import Forked, Job
from tests.elastic.schedules.ledger import Final, verdict
from tests.elastic.schedules.points import arm, was_hit
from tests.elastic.schedules.script import TOTAL
from tests.farm import Farm
from tidewater.contract import exit_codes

pytestmark = pytest.mark.e2e

LEASE_SECONDS = 2
LONG_LEASE_SECONDS = 10
KNOWN_DEAD_SECONDS = 25.0
"""If the processes have certainly ended, no worker waits for the take-over of those that may live: 4 long leases."""
TAKEOVER_SECONDS = 60.0
"""A take-over takes 8 s, four leases; a slow machine gets the rest."""


@pytest.fixture
def job(farm: Farm, tmp_path: Path, etcd: str, request: pytest.FixtureRequest) -> Iterator[Job]:
    """Yield a job; the parameter, if any, is the length of its leases."""
    lease_seconds = getattr(request, "param", LEASE_SECONDS)
    job = Job(
        farm, tmp_path / "job", etcd, *COMMON, "--min-step-seconds", "0.02", "--lease-seconds", str(lease_seconds)
    )
    yield job
    job.kill()


def assert_one_history(job: Job) -> None:
    """Assert that there is one history, except for steps after the checkpoint, which were repeated."""
    job.book.refresh()
    problems = verdict(job.book.without_what_was_undone(), TOTAL)
    assert not problems, "\n".join([*problems, job.told()])


def finals(job: Job, worker: Forked) -> list[Final]:
    job.book.refresh()
    return [each[worker.name] for each in job.book.finals.values() if worker.name in each]


@pytest.mark.parametrize("job", [LONG_LEASE_SECONDS], ids=["long-leases"], indirect=True)
def test_a_kill_of_all_workers_loses_only_steps_since_the_last_checkpoint_and_no_sample(job: Job) -> None:
    workers = [job.start(name) for name in "abc"]
    job.wait_for_all()
    workers[0].wait_for_step(45)
    workers[0].wait_for(
        lambda _: any(int(saved["step"]) >= 40 for each in workers for saved in each.events("checkpoint_saved"))
    )
    for worker in workers:
        worker.signal(signal.SIGKILL)
    for worker in workers:
        worker.wait()
    began = time.monotonic()
    new = [job.start(name) for name in "de"]
    job.wait_for_all(TAKEOVER_SECONDS)
    assert min(final.at for final in finals(job, new[0])) - began <= KNOWN_DEAD_SECONDS
    assert job.book.restored[-1].step >= 40
    assert_one_history(job)


def test_a_frozen_sole_holder_of_the_state_commits_no_step_that_its_successor_commits(job: Job) -> None:
    alone = job.start("alone")
    alone.wait_for_step(30)
    # Between asking whether it may make the step before final and reporting that, it could not notice the freeze.
    arm(alone.folder, "gradients", "freeze")
    alone.wait_for(lambda worker: was_hit(worker.folder, "gradients"))
    alone.has_sent_itself(signal.SIGSTOP, "gradients")
    frozen_at = time.monotonic()
    newcomer = job.start("newcomer")
    newcomer.wait_for_step(1, TAKEOVER_SECONDS)
    print(f"taken over after {time.monotonic() - frozen_at:.1f} s")
    alone.signal(signal.SIGCONT)
    job.wait_for_all(TAKEOVER_SECONDS)
    assert_one_history(job)
    taken_over = min(final.generation for final in finals(job, newcomer))
    first = min(final.at for final in finals(job, newcomer))
    late = [final for final in finals(job, alone) if final.at > first and final.generation < taken_over]
    assert not late, f"{[final.step for final in late]}\n{job.told()}"


def test_a_freeze_of_all_workers_shorter_than_a_lease_is_only_a_pause(job: Job) -> None:
    workers = [job.start(name) for name in "abc"]
    job.wait_for_all()
    for worker in workers:
        worker.signal(signal.SIGSTOP)
    time.sleep(LEASE_SECONDS / 2)
    for worker in workers:
        worker.signal(signal.SIGCONT)
    job.wait_for_all(TAKEOVER_SECONDS)
    assert verdict(job.book, TOTAL) == []


def test_a_freeze_of_all_workers_longer_than_a_lease_loses_no_step(job: Job) -> None:
    workers = [job.start(name) for name in "abc"]
    job.wait_for_all()
    for worker in workers:
        worker.signal(signal.SIGSTOP)
    time.sleep(2 * LEASE_SECONDS)
    for worker in workers:
        worker.signal(signal.SIGCONT)
    job.wait_for_all(TAKEOVER_SECONDS)
    assert all(worker.poll() is None for worker in workers)
    assert verdict(job.book, TOTAL) == [], job.told()


def test_after_all_workers_leave_at_once_the_next_worker_continues_from_their_step(job: Job) -> None:
    workers = [job.start(name) for name in "abc"]
    job.wait_for_all()
    workers[0].wait_for_step(25)
    for worker in workers:
        worker.signal(signal.SIGTERM)
    assert [worker.wait() for worker in workers] == [exit_codes.LEFT] * 3
    job.book.refresh()
    reached = job.book.reached
    again = job.start("again")
    again.wait_for_step(reached + 10)
    assert job.book.restored[-1].step >= reached
    assert verdict(job.book, TOTAL) == [], job.told()
