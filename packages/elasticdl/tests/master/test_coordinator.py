"""Calls from many threads: no call is answered before the state is saved, and calls share a save."""

from __future__ import annotations

import dataclasses
import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest
from elasticdl.job import JobArgs
from elasticdl.master.coordinator import Coordinator
from elasticdl.master.executor import Actor, Checkpoints
from elasticdl.master.resume import prepared, resumed
from elasticdl.master.scores import Scores
from elasticdl.master.servers import Servers
from elasticdl.master.store import Fenced, Fields, MemoryStore
from elasticdl.master.tasks.decide import Action
from elasticdl.master.tasks.state import Stage
from elasticdl.master.tasks.task_queue import MAX_LOSSES, Owner
from elasticdl.master.tasks.transitions import EVALUATION, Outcome
from elasticdl.ps import checkpoint
from elasticdl.zoo.metrics import Accuracy, Metrics

from packages.elasticdl.tests.master.jobs import metrics, write_job

PATIENCE_SECONDS = 60
OWNERS = [Owner(f"worker-{index}", f"p{index}") for index in range(8)]


class SlowStore(MemoryStore):
    """A store in which a test decides when a save ends, and how."""

    def __init__(self) -> None:
        super().__init__()
        self.begun, self.may_end = threading.Semaphore(0), threading.Semaphore(0)
        self.slow = False
        self.saves = 0
        self.error: Exception | None = None

    def save(self, fields: Fields) -> None:
        self.saves += 1
        if self.slow:
            self.begun.release()
            assert self.may_end.acquire(timeout=PATIENCE_SECONDS)
        if self.error:
            raise self.error
        super().save(fields)


def coordinator(args: JobArgs, store: MemoryStore) -> Coordinator:
    job = prepared(args, servers=0)
    state, plans = resumed(store.take_over(), job)
    one = Coordinator(job.setup, plans, store, state)
    for owner in OWNERS:
        one.attend(owner, [], owner)
    return one


def when(one: Coordinator, condition: Callable[[], bool]) -> None:
    with one._changed:
        assert one._changed.wait_for(condition, PATIENCE_SECONDS)


def test_calls_that_come_while_the_state_is_saved_share_the_next_save(tmp_path: Path) -> None:
    store = SlowStore()
    one = coordinator(write_job(tmp_path), store)
    store.slow, store.saves = True, 0
    with ThreadPoolExecutor(8) as threads:
        answers = [threads.submit(one.hand_out, owner, []) for owner in OWNERS]
        assert store.begun.acquire(timeout=PATIENCE_SECONDS)
        when(one, lambda: len(one.state.work.doing) == len(OWNERS))
        assert not any(answer.done() for answer in answers)
        store.may_end.release(2)
        assert sorted(answer.result(PATIENCE_SECONDS).task for answer in answers) == list(range(1, 9))
    assert store.saves == 2
    fields = store.take_over()
    assert fields is not None
    assert len(fields["work"]["doing"]) == len(OWNERS)


def test_nobody_is_answered_by_a_master_that_another_one_has_replaced(tmp_path: Path) -> None:
    store = SlowStore()
    one = coordinator(write_job(tmp_path), store)
    store.slow, store.error = True, Fenced("another master has taken over", "This one ends.")
    with ThreadPoolExecutor(8) as threads:
        answers = [threads.submit(one.hand_out, owner, []) for owner in OWNERS]
        when(one, lambda: len(one.state.work.doing) == len(OWNERS))
        store.may_end.release()
        assert all(isinstance(answer.exception(PATIENCE_SECONDS), Fenced) for answer in answers)
    with pytest.raises(Fenced):
        one.next_action()


def test_the_end_is_told_once_it_is_saved(tmp_path: Path) -> None:
    store = SlowStore()
    one = coordinator(write_job(tmp_path), store)
    store.slow = True
    with ThreadPoolExecutor(3) as threads:
        threads.submit(one.fail, "it is enough")
        when(one, lambda: one.state.ended)
        told: list[Future[object]] = [threads.submit(one.hand_out, OWNERS[0], []), threads.submit(one.next_action)]
        assert store.begun.acquire(timeout=PATIENCE_SECONDS)
        assert not any(each.done() for each in told)
        store.may_end.release()
        assert [each.result(PATIENCE_SECONDS) is not None for each in told] == [True, True]
    assert told[1].result() is Action.END


@pytest.mark.parametrize("late", [False, True], ids=["before", "after"])
def test_a_worker_whose_broken_stream_is_seen_before_or_after_its_new_one_stays(tmp_path: Path, late: bool) -> None:
    one, owner, old, new = coordinator(write_job(tmp_path), MemoryStore()), Owner("late", "p"), object(), object()
    for stream in (new, old) if late else (old, new):
        one.attend(owner, [], stream)
    task = one.hand_out(owner, []).task
    assert task
    one.gone(owner, old)
    assert list(one.state.work.doing) == [task]
    one.gone(owner, new)
    assert one.state.work.returned == (task,)


def test_the_end_waits_for_the_workers_to_leave_and_names_those_that_do_not(tmp_path: Path) -> None:
    one = coordinator(write_job(tmp_path), MemoryStore())
    *others, last = OWNERS
    for owner in others:
        one.gone(owner, owner)
    assert one.wait_until_all_are_gone(one._clock()) == [last.worker]
    with ThreadPoolExecutor(1) as threads:
        waits = threads.submit(one.wait_until_all_are_gone, one._clock() + PATIENCE_SECONDS)
        one.gone(last, last)
        assert waits.result(PATIENCE_SECONDS) == []


def test_a_job_that_ends_because_its_workers_die_stays_so_for_the_next_master(tmp_path: Path) -> None:
    store = MemoryStore()
    one = coordinator(write_job(tmp_path, task_fault_tolerance=False), store)
    for owner in OWNERS[: MAX_LOSSES + 1]:
        assert one.hand_out(owner, []).task == 1
        one.gone(owner, owner)
    assert one.next_action() is Action.END
    fields = store.take_over()
    assert fields is not None
    assert fields["stage"] == Stage.FAILED
    assert fields["reason"] == "task 1: 6 workers died or took too long, at last worker-5"


def test_by_default_a_job_goes_on_without_a_task_that_fails_again_and_again(tmp_path: Path) -> None:
    one = coordinator(write_job(tmp_path, max_task_retries=0), MemoryStore())
    broken, other = OWNERS[:2]
    assert one.report(Outcome(task=one.hand_out(broken, []).task, owner=broken, error="ValueError: no number"), {})
    while task := one.hand_out(other, []).task:
        assert one.report(Outcome(task=task, owner=other, records=10), {})
    assert (one.state.stage, one.state.work.done, sorted(one.state.work.left_out)) == (Stage.DONE, 9, [1])


def test_a_worker_that_left_with_its_task_is_no_loss(tmp_path: Path) -> None:
    one = coordinator(write_job(tmp_path), MemoryStore())
    for owner in OWNERS:
        assert one.hand_out(owner, []).task == 1
        one.leave(owner)
        one.gone(owner, owner)
    assert not one.state.ended
    assert one.state.work.losses == {}


def test_an_evaluation_that_is_joined_with_the_next_one_is_in_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    one = coordinator(
        write_job(tmp_path, validation_data=str(tmp_path / "test.csv"), evaluation_steps=5), MemoryStore()
    )
    for version in (4, 5, 9, 11, 12, 25):
        one.reached(version)
    assert [each.getMessage() for each in caplog.records] == [
        f"The evaluation due at step {step} is joined with the next one" for step in (10, 15, 20, 25)
    ]


class Broken(Accuracy):
    """A metric with a mistake, which shows at the end."""

    def compute(self) -> float:
        return 1 / 0


def test_a_metric_that_raises_an_error_ends_the_job_with_it(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    store = MemoryStore()
    one = coordinator(write_job(tmp_path, validation_data=str(tmp_path / "test.csv")), store)
    scores = Scores(lambda: Metrics({"accuracy": Broken()}))
    actor = threading.Thread(target=Actor(one, store, None, scores, Checkpoints("", 0, "")).run)
    actor.start()
    while not (assignment := one.hand_out(OWNERS[0], [])).stop:
        if not assignment.task:
            when(one, lambda: one.state.ended or bool(one.state.evaluation and one.state.evaluation.ready))
            continue
        states = metrics(1, 5) if assignment.kind == EVALUATION else {}
        assert one.report(Outcome(task=assignment.task, owner=OWNERS[0], records=1), states)
        if one.state.evaluation and one.state.evaluation.queue.finished:
            when(one, lambda: one.state.ended)
    actor.join(PATIENCE_SECONDS)
    assert assignment.reason.startswith("metric accuracy failed: ZeroDivisionError: division by zero")


class NoServers(Servers):
    """Servers that are not asked."""

    def __init__(self) -> None:
        self.saved: list[int] = []

    def save(self, directory: str, version: int, run: str) -> None:
        self.saved.append(version)


def test_a_checkpoint_next_to_those_of_a_job_that_began_at_the_same_moment_fails_the_job(tmp_path: Path) -> None:
    folder = str(tmp_path / "checkpoints")
    job, store, servers = prepared(write_job(tmp_path), servers=0), MemoryStore(), NoServers()
    rules = dataclasses.replace(job.setup.rules, servers=1, checkpoint_steps=5)
    one = Coordinator(dataclasses.replace(job.setup, rules=rules), job.plans, store, resumed(None, job)[0])
    checkpoint.check_unused(folder, "mine/1")
    checkpoint.commit(folder, 5, [], run="other/1")
    one.reached(5)
    Actor(one, store, servers, None, Checkpoints(folder, 3, "mine/1")).run()
    assert one.state.stage is Stage.FAILED
    assert "has checkpoints of another run" in one.state.reason
    assert servers.saved == []
