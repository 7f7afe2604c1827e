"""A step that does not fit in one worker's memory is repeated with smaller micro-batches, everywhere alike."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.elastic.schedules.arena import COMMON
from tests.elastic.schedules.forked import Forked, Job
from tests.elastic.schedules.ledger import Attempt, verdict
from tests.elastic.schedules.script import BATCH_SIZE, TOTAL
from tests.farm import Farm
from tidewater.contract import exit_codes

pytestmark = pytest.mark.e2e

STEPS = -(-TOTAL // BATCH_SIZE)
"""In an epoch. All workers evaluate at its end."""
SHARE = -(-BATCH_SIZE // 3)
"""The largest of three workers."""


@pytest.fixture
def job(farm: Farm, tmp_path: Path, etcd: str) -> Iterator[Job]:
    job = Job(farm, tmp_path / "job", etcd, *COMMON, "--min-step-seconds", "0.01", "--lease-seconds", "3")
    yield job
    job.kill()


def assert_no_sample_is_lost_or_repeated(job: Job) -> None:
    job.book.refresh()
    assert verdict(job.book.without_what_was_undone(), TOTAL) == [], job.told()


def passes(job: Job, first: int = 1) -> list[Attempt]:
    """Return the passes of all final steps from ``first`` on."""
    job.book.refresh()
    return [attempt for step, made in job.book.history().items() if step >= first for attempt in made]


def go_on(worker: Forked, steps: int = 2 * STEPS) -> int:
    """Wait until the worker has made as many steps more. Return the first of them."""
    worker.wait_for_step(1)
    assert worker.last is not None
    reached = worker.last.step
    worker.wait_for_step(reached + steps)
    return reached + 1


def leave(job: Job) -> None:
    for worker in job.living:
        worker.signal(signal.SIGTERM)
        assert worker.wait() == exit_codes.LEFT


def three_begin(job: Job) -> None:
    """Let three workers make the first steps, save them and leave."""
    for name in "abc":
        job.start(name, "--min-workers", "3")
    job.wait_for_all()
    leave(job)


def test_a_step_that_does_not_fit_in_a_newcomers_memory_is_repeated_by_all_with_smaller_micro_batches(job: Job) -> None:
    large = job.start("large")
    large.wait_for_step(3)
    small = job.start("small", memory=2)
    go_on(small)
    most = int(small.events("out_of_memory")[-1]["micro_batch"])
    assert most < BATCH_SIZE
    assert large.events("out_of_memory") == []
    assert max(len(attempt.samples) for attempt in passes(job, go_on(large))) <= most
    assert (large.poll(), small.poll()) == (None, None)
    assert_no_sample_is_lost_or_repeated(job)


def test_the_loss_of_workers_makes_no_micro_batch_larger_than_those_before(job: Job) -> None:
    three_begin(job)
    survivor, *others = (job.start(name, memory=SHARE) for name in "def")
    job.wait_for_all()
    for worker in others:
        worker.signal(signal.SIGKILL)
    go_on(survivor)
    newcomer = job.start("newcomer", memory=SHARE)
    go_on(newcomer)
    survivor.signal(signal.SIGKILL)
    go_on(newcomer)
    assert max(len(attempt.samples) for attempt in passes(job)) == SHARE
    assert all(worker.events("out_of_memory") == [] for worker in job.workers)
    assert_no_sample_is_lost_or_repeated(job)


def test_a_resume_has_the_micro_batches_of_before_and_a_given_micro_batch_replaces_them(job: Job) -> None:
    three_begin(job)
    for size, arguments in ((SHARE, ()), (BATCH_SIZE, ("--micro-batch", str(BATCH_SIZE))), (BATCH_SIZE, ())):
        first = go_on(job.start("alone", *arguments))
        assert max(len(attempt.samples) for attempt in passes(job, first)) == size
        leave(job)
    assert_no_sample_is_lost_or_repeated(job)


def test_a_worker_whose_memory_is_too_small_for_one_sample_ends_with_a_sentence_and_never_joins(job: Job) -> None:
    usual = job.start("usual")
    hopeless = job.start("hopeless", memory=0)
    assert hopeless.wait() == exit_codes.USAGE
    assert "one sample does not fit in the memory of this worker" in hopeless.text()
    go_on(usual)
    assert usual.events("step_discarded") == []
    assert max(len(attempt.samples) for attempt in passes(job)) == BATCH_SIZE


def test_gradients_that_overflow_in_one_worker_are_skipped_by_all(job: Job) -> None:
    at, common = 9, ("--amp", "fp16", "--min-workers", "2")
    workers = [job.start("a", *common), job.start("b", *common, overflow_at=at)]
    for worker in workers:
        worker.wait_for_step(at + 2 * STEPS)
    job.book.refresh()
    digests = {step: {final.digest for final in finals.values()} - {""} for step, finals in job.book.finals.items()}
    assert all(len(each) <= 1 for each in digests.values())
    before, after = ({final.scale for final in job.book.finals[step].values()} for step in (at - 1, at))
    (scale,) = before
    assert after == {scale / 2}
