"""The work queue: each job once, never twice at the same time, failures later."""

from __future__ import annotations

import asyncio

from tests.controller.fakes import virtual
from tidewater.controller.cluster.mirror import Key
from tidewater.controller.work import FIRST_BACKOFF_SECONDS, LONGEST_BACKOFF_SECONDS, WorkQueue, backoff

A, B = Key("default", "a"), Key("default", "b")


async def test_a_job_that_is_added_many_times_is_taken_once() -> None:
    work = WorkQueue()
    for _ in range(3):
        work.add(A)
    work.add(B)
    assert [await work.take(), await work.take()] == [A, B]
    assert len(work) == 0


async def test_a_job_is_not_taken_while_it_is_worked_on_and_is_taken_again_afterwards() -> None:
    work = WorkQueue()
    work.add(A)
    await work.take()
    work.add(A)
    assert len(work) == 0
    work.done(A)
    assert await work.take() == A
    work.done(A)
    assert work.idle


async def test_of_two_times_for_a_job_the_earlier_counts() -> None:
    work = WorkQueue()
    work.add_after(A, 30)
    work.add_after(A, 5)
    work.add_after(A, 60)
    await work.take()
    assert virtual.seconds() == 5


async def test_taking_a_job_forgets_the_time_that_it_waits_for() -> None:
    work = WorkQueue()
    work.add_after(A, 30)
    work.add(A)
    work.done(await work.take())
    await asyncio.sleep(60)
    assert work.idle


async def test_every_failure_in_a_row_doubles_the_back_off_up_to_its_limit() -> None:
    work = WorkQueue()
    pauses = []
    for _ in range(14):
        work.add(A)
        pauses.append(work.failed(await work.take()))
        assert await work.take() == A
        work.failed(A)
    assert FIRST_BACKOFF_SECONDS / 2 <= pauses[0] <= FIRST_BACKOFF_SECONDS
    assert LONGEST_BACKOFF_SECONDS / 2 <= pauses[-1] <= LONGEST_BACKOFF_SECONDS


async def test_a_success_ends_the_back_off() -> None:
    work = WorkQueue()
    for _ in range(5):
        work.add(A)
        work.failed(await work.take())
    work.add(A)
    work.done(await work.take())
    work.add(A)
    assert work.failed(await work.take()) <= FIRST_BACKOFF_SECONDS


async def test_the_back_off_lasts_as_long_as_the_api_server_asks_for() -> None:
    work = WorkQueue()
    work.add(A)
    assert work.failed(await work.take(), at_least=7.0) == 7.0


async def test_several_workers_share_the_jobs() -> None:
    work, taken = WorkQueue(), list[Key]()

    async def worker() -> None:
        taken.append(await work.take())

    workers = [asyncio.create_task(worker()) for _ in range(2)]
    await asyncio.sleep(1)
    work.add(A)
    work.add(B)
    await asyncio.gather(*workers)
    assert taken == [A, B]


def test_the_back_off_of_very_many_failures_is_a_number() -> None:
    assert backoff(10_000) <= LONGEST_BACKOFF_SECONDS
