"""Every worker that took part in a final step calls ``on_step`` for it once, and stateful objects are equal everywhere.

Some workers train a model of one number in lock-step, without processes. A test decides which of them learn that a step
is final, and when a state is handed over or saved.
"""

from __future__ import annotations

import io
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from tests.elastic.checkpoint.conftest import Told
from tests.elastic.session.lockstep import Worker, apply, assert_whole, begin, settle, train
from tidewater.elastic.data.sampler import Cursor
from tidewater.elastic.errors import ConfigError, Diverged
from tidewater.elastic.observe.log import Log, parse
from tidewater.elastic.observe.meter import Changed
from tidewater.elastic.session import reports
from tidewater.elastic.training import Report


def test_a_worker_of_a_large_job_logs_its_turns_and_each_change_of_the_membership() -> None:
    output = io.StringIO()
    worker = Worker("w-3", Log("w-3", stream=output))
    for step in range(1, 65):
        worker.state.advance(Cursor(0, step), 1)
        changed = Changed("lost", True, 0.1) if step == 10 else None
        worker.reports.applied(Report(step, 0, 1, 1000, 3, 0.5, 0.1, (3,), 1000, 0.01, 0.01), changed)
        worker.reports.settle(-1)
    lines = [parse(line) for line in output.getvalue().splitlines()]
    assert [int(each["step"]) for each in lines if "event" not in each] == [3, 10, 35]  # every 32nd, of 1,000 workers
    assert [int(each["step"]) for each in lines if "event" in each] == [10]


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_state_that_is_not_finite_is_not_saved_and_ends_all_workers(value: float) -> None:
    workers = [Worker(name, Log(name)) for name in "ab"]
    train(1, *workers)
    begin(1, *workers)
    for rank, worker in enumerate(workers):
        worker.reports.settle(rank)
        apply(1, 2, worker, rank)
        worker.model.weight.data.fill_(value)
    for rank, worker in enumerate(workers):
        with pytest.raises(Diverged, match="after step 2 the parameter weight is not a finite number"):
            worker.reports.settle(rank)
        assert worker.saved == []


def test_a_newcomer_gets_the_stateful_objects_as_after_the_last_step(quiet: Log) -> None:
    a, newcomer = Worker("a", quiet), Worker("newcomer", quiet)
    for _ in range(3):
        train(1, a)
    newcomer.take(a.give())
    settle(a, newcomer)
    assert_whole(3, quiet, a, newcomer)
    assert newcomer.reported == [(3, -1, ())]
    assert newcomer.counted == []
    assert a.steps == a.counted == [1, 2, 3]


def test_rank_0_of_the_moment_in_which_a_step_becomes_final_writes_it(quiet: Log) -> None:
    a, b, newcomer = (Worker(name, quiet) for name in ("a", "b", "newcomer"))
    for _ in range(3):
        train(1, a, b)
    newcomer.take(b.give())  # a is lost before step 3 is final
    settle(b, newcomer)
    train(2, b, newcomer)
    settle(b, newcomer)
    assert (a.wrote, b.wrote, newcomer.wrote) == ([1, 2], [3, 4], [])


def test_a_rank_0_that_was_left_behind_does_not_write_what_the_others_have_written(quiet: Log) -> None:
    a, b = Worker("a", quiet), Worker("b", quiet)
    train(1, a, b)
    for _ in range(3):
        train(2, b)
    a.state.stale = True
    a.take(b.give())
    settle(b, a)
    assert a.steps == [1, 4]
    assert (a.wrote, b.wrote) == ([], [1, 2, 3, 4])


def test_of_the_last_workers_that_leave_rank_0_of_the_step_writes_it(quiet: Log) -> None:
    a, b = Worker("a", quiet), Worker("b", quiet)
    train(1, a, b)
    for worker in (a, b):
        worker.reports.settle(-1)
    assert (a.wrote, b.wrote) == ([1], [])


def test_the_stateful_objects_of_a_leavers_checkpoint_miss_no_step(quiet: Log) -> None:
    leaver, again = Worker("leaver", quiet), Worker("again", quiet)
    for _ in range(3):
        train(1, leaver)
    saved = leaver.give()
    leaver.reports.settle(-1)
    again.take(saved)
    settle(again)
    assert_whole(3, quiet, leaver, again)
    assert leaver.steps == [1, 2, 3]


def test_a_job_that_continues_from_a_periodic_checkpoint_calls_on_step_after_the_next_passes_as_before(
    quiet: Log,
) -> None:
    a, again = Worker("a", quiet), Worker("again", quiet)
    for _ in range(3):
        train(1, a)
    again.take(a.saved[0])
    again.reports.announce()
    assert again.reported == []
    train(2, again)
    assert again.reported == [(2, -1, ())]
    settle(again)
    assert_whole(3, quiet, again)
    assert again.counted == [3]


def test_a_checkpoint_between_two_steps_has_what_on_step_has_changed(quiet: Log) -> None:
    a, again = Worker("a", quiet), Worker("again", quiet)
    for _ in range(2):
        train(1, a)
    settle(a)  # as before an evaluation
    again.take(a.saved[0])
    settle(again)
    assert again.reported == []
    assert_whole(2, quiet, again)


def test_a_final_step_is_logged_and_counted_at_once_and_only_once(quiet: Log) -> None:
    a = Worker("a", quiet)
    train(1, a)
    for _ in range(2):
        a.reports.announce()
        assert (a.counted, a.reported) == ([1], [])
    train(1, a)
    assert (a.counted, a.reported) == ([1], [(1, 0, (0,))])


def test_a_checkpoint_is_due_when_the_last_one_is_older_than_the_longest_time(
    quiet: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1000.0
    monkeypatch.setattr(reports, "time", SimpleNamespace(monotonic=lambda: now))
    a = Worker("a", quiet)
    a.often(minutes=10)
    train(1, a)
    assert not a.reports.is_time_to_save()
    now += 600
    assert a.reports.is_time_to_save()
    train(1, a)
    a.reports.save_after = a.state.step  # as all members have learned in the sums of this step
    assert not a.reports.is_time_to_save(), "it was asked for"
    a.reports.settle(0)
    assert [tree["step"] for tree in a.saved] == [2]
    train(1, a)
    assert not a.reports.is_time_to_save()


def test_a_rank_that_missed_the_sums_of_the_next_step_still_reports_both_steps(quiet: Log) -> None:
    a, b = Worker("a", quiet), Worker("b", quiet)
    train(1, a, b)
    begin(1, a, b)
    a.reports.settle(0)
    apply(1, 2, a, 0)  # only a has got the sums of step 2
    b.take(a.give())
    settle(a, b)
    assert_whole(2, quiet, a, b)
    assert a.reported == [(1, 0, (0,)), (2, 0, (0,))]
    assert b.reported == [(1, 1, (1,)), (2, 1, (1,))]
    assert b.counted == [1, 2]


def test_a_rank_that_was_left_behind_reports_the_step_that_it_made_with_the_others(quiet: Log) -> None:
    a, b = Worker("a", quiet), Worker("b", quiet)
    train(1, a, b)
    for _ in range(3):
        train(2, a)
    b.state.stale = True
    b.take(a.give())
    settle(a, b)
    assert_whole(4, quiet, a, b)
    assert b.reported == [(1, 1, (1,)), (4, -1, ())]


def test_a_step_that_was_undone_is_never_reported_and_leaves_no_trace(quiet: Log) -> None:
    a, b = Worker("a", quiet), Worker("b", quiet)
    train(1, a, b)
    begin(1, a, b)
    b.reports.settle(1)
    apply(1, 2, b, 1)  # only b has got the sums of step 2
    for _ in range(2):
        train(2, a)  # b is cut off: a repeats step 2
    b.state.stale = True
    b.take(a.give())
    settle(a, b)
    assert_whole(3, quiet, a, b)
    assert b.reported == [(1, 1, (1,)), (3, -1, ())]


def test_a_step_that_others_have_reported_already_is_reported_once(quiet: Log) -> None:
    """a has confirmed the last step, for an evaluation, and b has not learnt of it."""
    a, b, newcomer = (Worker(name, quiet) for name in ("a", "b", "newcomer"))
    train(1, a, b)
    a.reports.settle(0)
    a.state.evaluated = 1
    for worker in (b, newcomer):
        worker.take(a.give())
    settle(a, b, newcomer)
    assert_whole(1, quiet, a, b, newcomer)
    assert b.reported == [(1, 1, (1,))]
    assert newcomer.reported == []
    assert b.state.evaluated == 1


def test_a_worker_that_has_reported_a_step_keeps_its_stateful_objects_when_the_others_have_not(quiet: Log) -> None:
    a, b = Worker("a", quiet), Worker("b", quiet)
    train(1, a, b)
    b.reports.settle(1)
    b.state.stale = True
    b.take(a.give())
    settle(a, b)
    assert_whole(1, quiet, a, b)
    assert b.steps == [1]
    assert not b.state.stale


def test_a_worker_takes_over_a_state_of_its_own_step_if_its_own_is_not_to_be_trusted(quiet: Log) -> None:
    a, b = Worker("a", quiet), Worker("b", quiet)
    train(1, a, b)
    with torch.no_grad():
        b.model.weight += 1
    b.state.present = False
    b.take(a.give())
    settle(a, b)
    assert_whole(1, quiet, a, b)
    assert b.reported == [(1, 1, (1,))]


def test_a_step_of_an_unknown_history_is_dropped(quiet: Log) -> None:
    a, b = Worker("a", quiet), Worker("b", quiet)
    train(1, a, b)
    train(2, a)
    b.take({**a.give(), "runs": []})
    assert b.reported == []


def test_a_value_that_cannot_be_stored_and_appears_in_the_first_step_ends_the_workers_by_name(quiet: Log) -> None:
    a, b = Worker("a", quiet), Worker("b", quiet)
    train(1, a, b)
    for rank, worker in enumerate((a, b)):
        worker.sum.state_dict = lambda: {"value": [object()]}  # type: ignore[method-assign]
        with pytest.raises(ConfigError, match=r"builtins\.object at stateful\.sum\.value\.0, which can't be stored"):
            worker.reports.settle(rank)


def test_a_state_that_cannot_be_saved_later_in_training_ends_all_with_the_third_checkpoint(quiet: Log) -> None:
    def broken() -> dict[str, Any]:
        raise KeyError("gone")

    a, b = Worker("a", quiet), Worker("b", quiet)
    for _ in range(3):
        train(1, a, b)
    whole = a.sum.state_dict
    for bad in (True, False, True):  # a failure that passes costs one checkpoint
        for worker in (a, b):
            worker.sum.state_dict = broken if bad else whole  # type: ignore[method-assign]
        train(1, a, b)
        train(1, a, b)
    assert a.failed == [4, 8]
    for _ in range(3):
        train(1, a, b)
    begin(1, a, b)
    for rank, worker in enumerate((a, b)):
        with pytest.raises(
            ConfigError, match=r"3 checkpoints in a row could not be written: .*stateful\['sum'\] raises KeyError"
        ):
            worker.reports.settle(rank)
    assert a.failed == [4, 8, 10, 12]


def test_a_buffer_that_is_sent_and_not_saved_ends_all_with_the_third_checkpoint_too(quiet: Log) -> None:
    a, b = Worker("a", quiet), Worker("b", quiet)
    for worker in (a, b):
        worker.model.register_buffer("mask", torch.zeros(2), persistent=False)
    for _ in range(3):
        train(1, a, b)
    for worker in (a, b):
        worker.model.mask = torch.zeros(2).to_sparse()
    for _ in range(5):
        train(1, a, b)
    for rank, worker in enumerate((a, b)):
        with pytest.raises(ConfigError, match=r"3 checkpoints in a row could not .* has a torch.sparse_coo .* buffers"):
            worker.reports.settle(rank)


def test_attributes_that_a_step_changes_are_named_once_and_those_that_on_step_changes_are_not(told: Told) -> None:
    a, newcomer = Worker("a", told.log), Worker("newcomer", told.log)
    counted: Any = a.model
    for _ in range(3):
        train(1, a)
        counted.calls = a.state.step
    assert [each["names"] for each in told.of("attributes_differ")] == ["calls"]
    newcomer.take(a.give())
    assert newcomer.model.calls == counted.calls

    tuning: Any = newcomer.model

    def tuned(report: Report) -> None:
        tuning.temperature = report.step

    object.__setattr__(newcomer.reports._worker.training, "on_step", tuned)
    for _ in range(3):
        train(2, newcomer)
    assert tuning.temperature == 5
    assert len(told.of("attributes_differ")) == 1
