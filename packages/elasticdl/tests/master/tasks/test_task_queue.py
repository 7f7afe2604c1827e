"""A task is to do, being done, done or left out, and never two of these."""

from __future__ import annotations

import dataclasses

from elasticdl.master.tasks.task_queue import Owner, Queue, Status, pause_seconds

A, B = Owner("worker-0", "a"), Owner("worker-1", "b")


def taken(queue: Queue, *owners: Owner, now: float = 0.0) -> Queue:
    for owner in owners:
        queue, task = queue.take(owner, now)
        assert task is not None
    return queue


def test_tasks_are_handed_out_in_order_until_there_are_none() -> None:
    queue = Queue.of(range(5, 7))
    queue, first = queue.take(A, 0.0)
    queue, second = queue.take(B, 0.0)
    queue, none = queue.take(A, 0.0)
    assert (first, second, none) == (5, 6, None)
    assert (queue.todo, queue.done, queue.finished) == (0, 0, False)


def test_another_process_of_the_same_worker_is_not_the_owner() -> None:
    queue = taken(Queue.of(range(1, 3)), A)
    assert queue.finish(1, Owner(A.worker, "another")) is None


def test_tasks_that_come_back_are_next_in_ascending_order() -> None:
    queue = taken(Queue.of(range(1, 6)), A, A, B).put_back([2, 1])
    handed = []
    for _ in range(4):
        queue, task = queue.take(B, 0.0)
        handed.append(task)
    assert handed == [1, 2, 4, 5]


def test_a_task_that_nobody_does_is_not_put_back() -> None:
    queue = taken(Queue.of(range(1, 4)), A)
    assert queue.put_back([3]) == queue
    done = queue.finish(1, A)
    assert done is not None
    assert done.put_back([1]) == done


def test_a_task_that_is_done_in_the_end_forgets_its_failures() -> None:
    failed = taken(Queue.of(range(1, 2)), A).fail(1, A, "no", retries=3, now=0.0)
    assert failed is not None
    done = taken(failed, B, now=1.0).finish(1, B)
    assert done is not None
    assert done.failures == {}


def failing(queue: Queue, owner: Owner, now: float) -> Queue:
    """Return the queue after task 1 has failed on a process."""
    failed = taken(queue, owner, now=now).fail(1, owner, "no", retries=3, now=now)
    assert failed is not None
    return failed


def test_a_task_that_has_failed_goes_to_another_process_after_a_pause_that_grows() -> None:
    queue, both = failing(Queue.of(range(1, 2)), A, 0.0), ("a", "b")
    assert [queue.take(owner, 0.9, both)[1] for owner in (A, B)] == [None, None]
    assert [queue.take(owner, 1.0, both, 300.0)[1] for owner in (A, B)] == [None, 1]
    assert [queue.take(A, now, both, 300.0)[1] for now in (300.9, 301.0)] == [None, 1], "the other one may hang"
    assert queue.take(A, 1.0, ("a",), 300.0)[1] == 1, "there is no other one"
    queue = failing(queue, B, 1.0)
    assert [queue.take(owner, 2.9, both)[1] for owner in (A, B)] == [None, None]
    assert [queue.take(owner, 3.0, both, 300.0)[1] for owner in (A, B)] == [1, 1]


def test_a_task_with_a_pause_that_a_master_before_this_one_knew_is_handed_out_again() -> None:
    queue = dataclasses.replace(failing(Queue.of(range(1, 2)), A, 0.0), pauses={})  # they are not in the record
    assert queue.take(A, 5.0, ("a", "b"), 300.0)[1] == 1


def test_the_pause_of_a_task_grows_to_a_minute_and_no_longer() -> None:
    assert [pause_seconds(failures) for failures in (1, 2, 6, 7, 2000)] == [1.0, 2.0, 32.0, 60.0, 60.0]


def test_other_tasks_are_done_during_the_pause_of_one() -> None:
    assert failing(Queue.of(range(1, 3)), A, 0.0).take(A, 0.0)[1] == 2


def test_only_the_owner_can_let_a_task_fail() -> None:
    assert taken(Queue.of(range(1, 2)), A).fail(1, B, "no", retries=0, now=0.0) is None


def test_the_reason_of_a_task_that_is_left_out_is_cut_to_a_length() -> None:
    failed = taken(Queue.of(range(1, 2)), A).fail(1, A, "x" * 10_000, retries=0, now=0.0)
    assert failed is not None
    assert len(failed.left_out[1]) == 300


def test_a_task_that_came_back_can_be_claimed_and_no_other() -> None:
    queue = taken(Queue.of(range(1, 4)), A, B).put_back([1])
    assert queue.claimed([1], A, 5.0).doing[1].owner == A
    assert queue.claimed([2], A, 5.0) == queue
    assert queue.claimed([3], A, 5.0) == queue
    assert queue.claimed([99], A, 5.0) == queue


def test_a_number_outside_is_of_no_task() -> None:
    queue = Queue.of(range(1, 3))
    assert [queue.status(task) for task in (0, 1, 3)] == [Status.UNKNOWN, Status.TODO, Status.UNKNOWN]
