"""Real workers that make inner steps, through losses, joins and a cold start."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.elastic.schedules.arena import COMMON
from tests.elastic.schedules.forked import Job
from tests.elastic.schedules.ledger import verdict
from tests.elastic.schedules.script import TOTAL
from tests.elastic.workers import Worker
from tests.farm import Farm
from tidewater.contract import exit_codes

pytestmark = pytest.mark.e2e


@pytest.fixture
def job(farm: Farm, tmp_path: Path, etcd: str) -> Iterator[Job]:
    flags = ("--min-step-seconds", "0.05", "--lease-seconds", "2")
    job = Job(farm, tmp_path / "job", etcd, *COMMON, *flags, inner_steps=3)
    yield job
    job.kill()


def test_after_a_cold_start_of_other_workers_every_sample_of_what_counts_was_used_once(job: Job) -> None:
    first = [job.start(name) for name in "abc"]
    job.wait_for_all()
    first[0].wait_for_step(25)
    first[0].wait_for(lambda _: any(each.events("checkpoint_saved") for each in first))
    for worker in first:
        worker.signal(signal.SIGKILL)
    second = [job.start(name) for name in "de"]
    second[0].wait_for_step(40)
    assert any(each.events("checkpoint_loaded") for each in second)
    job.book.refresh()
    problems = verdict(job.book.without_what_was_undone(), TOTAL)
    assert not problems, "\n".join([*problems, job.told()])


def test_workers_that_come_and_go_finish_with_one_state_and_have_learned(start: Callable[..., Worker]) -> None:
    flags = ("--sync-every", "8", "--epochs", "12", "--batch-size", "32", "--min-step-seconds", "0.1")
    a, b = start("a", *flags, "--min-workers", "2"), start("b", *flags, "--min-workers", "2")
    b.wait_for(lambda worker: len(worker.steps()) > 5)
    b.signal(signal.SIGKILL)
    c = start("c", *flags, "--min-workers", "2")
    c.wait_for_world(2)
    assert [each.wait() for each in (a, c)] == [exit_codes.FINISHED, exit_codes.FINISHED]
    (one,), (other,) = a.events("finished"), c.events("finished")
    assert (one["state"], one["step"]) == (other["state"], other["step"])
    assert float(one["accuracy"]) > 0.9
