"""What may happen to a job, one thing at a time. `test_never_stuck` mixes them."""

from __future__ import annotations

import dataclasses

import pytest
from elasticdl.master.tasks import transitions
from elasticdl.master.tasks.plan import EVALUATIONS, EXPORTS
from elasticdl.master.tasks.state import JobState, Rules, Stage, begin
from elasticdl.master.tasks.task_queue import MAX_LOSSES, Owner
from elasticdl.master.tasks.transitions import Outcome

A, B = Owner("worker-0", "a"), Owner("worker-1", "b")
RULES = Rules(servers=2, evaluation_steps=100, evaluation_tasks=2, exports=True)


def new(rules: Rules = RULES, tasks: int = 4) -> JobState:
    return begin(rules, range(1, tasks + 1), plan="plan")


def ask(state: JobState, owner: Owner, *, now: float = 0.0) -> tuple[JobState, int]:
    state, task = transitions.hand_out(state, owner, now=now)
    assert task is not None
    return state, task


def do(state: JobState, owner: Owner, count: int, rules: Rules = RULES) -> JobState:
    for _ in range(count):
        state, task = ask(state, owner)
        state, counted = transitions.report(state, rules, Outcome(task=task, owner=owner, records=10), now=1.0)
        assert counted
    return state


def nothing_to_do(state: JobState) -> bool:
    return transitions.hand_out(state, A, now=0.0)[1] is None


def test_a_task_whose_answer_was_lost_is_given_again() -> None:
    state, task = ask(new(), A)
    again, same = transitions.hand_out(state, A, now=9.0)
    assert (again, same) == (state, task)
    _, other = transitions.hand_out(state, A, now=9.0, holding={task})
    assert other == task + 1


def test_a_report_that_is_repeated_gets_the_same_answer_and_counts_once() -> None:
    state, task = ask(new(), A)
    outcome = Outcome(task=task, owner=A, records=10)
    state, first = transitions.report(state, RULES, outcome, now=1.0)
    state, second = transitions.report(state, RULES, outcome, now=2.0)
    assert (first, second, state.records) == (True, True, 10)


def test_the_report_of_a_worker_that_was_taken_for_dead_does_not_count() -> None:
    state, task = ask(new(), A)
    state = transitions.lost(state, RULES, A)
    state, same = ask(state, B)
    assert same == task
    state, counted = transitions.report(state, RULES, Outcome(task=task, owner=A, records=10), now=1.0)
    assert not counted
    state, counted = transitions.report(state, RULES, Outcome(task=task, owner=B, records=10), now=1.0)
    assert counted
    assert state.records == 10


def test_a_worker_that_comes_back_keeps_its_task_if_nobody_else_has_it() -> None:
    state, task = ask(new(), A)
    state = transitions.attend(transitions.lost(state, RULES, A), RULES, A, [task], now=5.0)
    assert state.work.doing[task].owner == A


def test_a_worker_that_was_restarted_gives_up_the_tasks_of_its_former_process() -> None:
    state, task = ask(new(), A)
    state = transitions.attend(state, RULES, Owner(A.worker, "new"), [], now=5.0)
    assert state.work.returned == (task,)


def test_an_attending_worker_gives_up_what_it_does_not_name() -> None:
    state, first = ask(new(), A)
    state, second = transitions.hand_out(state, A, now=0.0, holding={first})
    state = transitions.attend(state, RULES, A, [first], now=5.0)
    assert list(state.work.doing) == [first]
    assert state.work.returned == (second,)


def test_a_task_that_is_given_back_is_no_failure() -> None:
    state, task = ask(new(), A)
    state, accepted = transitions.report(state, RULES, Outcome(task=task, owner=A, given_back=True), now=1.0)
    assert accepted
    assert (state.work.returned, state.work.failures) == ((task,), {})


def test_a_task_is_late_after_300_seconds_or_three_times_the_slowest() -> None:
    state, task = ask(new(), A, now=0.0)
    assert transitions.expire(state, RULES, now=300.0)[1] == {}
    expired, late = transitions.expire(state, RULES, now=300.1)
    assert late == {task: A}
    assert expired.work.returned == (task,)

    state, _ = transitions.report(state, RULES, Outcome(task=task, owner=A), now=200.0)
    state, task = ask(state, B, now=1000.0)
    assert transitions.expire(state, RULES, now=1600.0)[1] == {}
    assert transitions.expire(state, RULES, now=1600.1)[1] == {task: B}


def test_the_slowest_task_of_one_type_does_not_make_another_type_late() -> None:
    state, task = ask(new(), A, now=0.0)
    state, _ = transitions.report(state, RULES, Outcome(task=task, owner=A), now=200.0)
    assert transitions.limit_seconds(state, transitions.WORK) == 600.0
    assert transitions.limit_seconds(state, transitions.EVALUATION) == 300.0


def fail_often(rules: Rules) -> JobState:
    state = new(rules)
    for attempt in range(rules.retries + 1):
        state, task = ask(state, A, now=100.0 * attempt)
        assert task == 1
        outcome = Outcome(task=1, owner=A, error="bad record")
        state, _ = transitions.report(state, rules, outcome, now=100.0 * attempt)
    return state


def test_a_task_that_fails_too_often_fails_the_job_and_says_why() -> None:
    state = fail_often(RULES)
    assert state.stage is Stage.FAILED
    assert state.reason == "task 1 failed 4 times, at last on worker-0: bad record"
    assert nothing_to_do(state)


def test_with_fault_tolerance_the_job_goes_on_without_the_task() -> None:
    rules = dataclasses.replace(RULES, goes_on_without=True, evaluation_tasks=0, exports=False, servers=0)
    state = do(fail_often(rules), A, 3, rules)
    assert state.stage is Stage.DONE
    assert state.work.done_tasks() == [2, 3, 4]
    assert state.work.left_out == {1: "bad record"}


def test_a_job_of_which_not_one_task_was_done_has_failed() -> None:
    rules = Rules(goes_on_without=True, retries=0)
    state = new(rules, tasks=2)
    for _ in range(2):
        state, task = ask(state, A)
        state, _ = transitions.report(state, rules, Outcome(task=task, owner=A, error="no zoo"), now=1.0)
    assert state.stage is Stage.FAILED
    assert "not one task was done" in state.reason
    assert "no zoo" in state.reason


def test_an_export_that_fails_too_often_fails_the_job_even_with_fault_tolerance() -> None:
    rules = Rules(exports=True, goes_on_without=True, retries=0)
    state = do(new(rules), A, 4, rules)
    state, task = ask(state, A)
    assert task == EXPORTS
    state, _ = transitions.report(state, rules, Outcome(task=task, owner=A, error="disk full"), now=1.0)
    assert state.stage is Stage.FAILED
    assert "disk full" in state.reason


def test_an_evaluation_falls_due_with_each_multiple_of_evaluation_steps() -> None:
    state = transitions.reached(new(), RULES, 99)
    assert state.evaluation is None
    state = transitions.reached(state, RULES, 101)
    assert state.evaluation is not None
    assert state.evaluation.snapshot == 101


def test_no_evaluation_task_is_handed_out_before_all_servers_have_the_snapshot() -> None:
    state = transitions.reached(new(), RULES, 100)
    _, task = ask(state, A)
    assert task == 1
    state = transitions.snapshot_taken(state, RULES, 100, ("s0", "s1"))
    _, task = ask(state, A)
    assert task == EVALUATIONS


def evaluating(version: int = 100) -> JobState:
    return transitions.snapshot_taken(transitions.reached(new(), RULES, version), RULES, version, ("s0", "s1"))


def test_evaluations_that_fall_due_during_another_one_are_one_of_the_version_after_it() -> None:
    state = evaluating()
    for version in (200, 300, 350):
        state = transitions.reached(state, RULES, version)
    assert state.evaluation is not None
    assert state.evaluation.step == 100
    state = transitions.evaluation_concluded(do(state, A, 2), RULES)
    assert state.evaluation is not None
    assert (state.evaluation.number, state.evaluation.snapshot, state.due) == (1, 350, False)


def test_the_steps_of_which_the_evaluations_are_joined_with_a_later_one_are_known() -> None:
    found, state = [], new()
    for version in (99, 101, 199, 200, 250, 510, 520):
        before, state = state, transitions.reached(state, RULES, version)
        found.append(list(transitions.joined(before, state, RULES)))
    assert found == [[], [], [], [200], [], [300, 400, 500], []]
    jumped = transitions.reached(new(), RULES, 301)
    assert list(transitions.joined(new(), jumped, RULES)) == [100, 200], "that of step 300 begins"


def test_a_version_that_goes_back_and_comes_again_is_not_evaluated_twice() -> None:
    state = transitions.evaluation_concluded(do(evaluating(), A, 2), RULES)
    for version in (60, 80, 100, 120):
        state = transitions.reached(state, RULES, version)
    assert state.evaluation is None


def test_tasks_of_an_evaluation_that_was_begun_anew_do_not_count() -> None:
    state, task = ask(evaluating(), A)
    state = transitions.evaluation_begun_anew(state, RULES)
    assert state.evaluation is not None
    assert state.evaluation.snapshot == 101  # a worker may still have the values of the first one
    state = transitions.snapshot_taken(state, RULES, 100, ("s0", "new"))
    state, counted = transitions.report(state, RULES, Outcome(task=task, owner=A), now=1.0)
    assert not counted
    _, other = ask(state, A)
    assert other == EVALUATIONS + RULES.evaluation_tasks


def stored() -> JobState:
    """Return the state after the training and the export, with an evaluation of version 42 under way."""
    state = do(new(), A, 4)
    assert state.stage is Stage.FLUSH
    assert nothing_to_do(state)
    state = transitions.flushed(state, RULES, 42)
    assert (state.stage, state.evaluation) == (Stage.EXPORT, None)
    state = do(state, A, 1)
    assert state.stage is Stage.EVALUATE
    return transitions.snapshot_taken(state, RULES, 42, ("s0", "s1"))


def test_the_end_is_flush_then_export_then_evaluation_of_the_final_model() -> None:
    state = stored()
    assert state.evaluation is not None
    assert state.evaluation.snapshot == 42
    assert transitions.evaluation_concluded(do(state, A, 2), RULES).stage is Stage.DONE


def test_the_final_model_is_not_evaluated_again_if_it_was_evaluated_last() -> None:
    state = do(transitions.evaluation_concluded(do(evaluating(), A, 2), RULES), A, 4)
    state = transitions.flushed(state, RULES, 100)
    assert state.stage is Stage.EXPORT


def test_training_that_ends_during_an_evaluation_stores_the_model_before_the_evaluation_ends() -> None:
    state = evaluating()
    state, first = ask(state, B)
    state, second = transitions.hand_out(state, B, now=0.0, holding={first})
    state = transitions.flushed(do(state, A, 4), RULES, 100)
    state = do(state, A, 1)
    assert (state.stage, state.export.done) == (Stage.EVALUATE, 1)
    for task in (first, second):
        assert task is not None
        state, _ = transitions.report(state, RULES, Outcome(task=task, owner=B), now=1.0)
    assert transitions.evaluation_concluded(state, RULES).stage is Stage.DONE


def test_the_final_model_is_saved_if_checkpoints_are_written() -> None:
    rules = Rules(servers=1, checkpoint_steps=10)
    state = transitions.flushed(do(new(rules), A, 4, rules), rules, 17)
    assert state.stage is Stage.SAVE
    assert transitions.saved(state, rules, 17).stage is Stage.DONE
    again = dataclasses.replace(state, saved=17)
    assert transitions.settle(again, rules).stage is Stage.DONE


def test_at_max_step_no_more_tasks_are_handed_out_and_those_under_way_end() -> None:
    rules = Rules(max_step=50)
    state, task = ask(new(rules), A)
    state = transitions.reached(state, rules, 50)
    assert nothing_to_do(transitions.attend(state, rules, A, [task], now=0.0)) is False  # its own
    assert transitions.hand_out(state, B, now=0.0)[1] is None
    state, counted = transitions.report(state, rules, Outcome(task=task, owner=A), now=1.0)
    assert counted
    assert state.stage is Stage.DONE
    assert state.work.done_tasks() == [task]


def test_a_task_that_comes_back_after_max_step_is_left_out() -> None:
    rules = Rules(max_step=50)
    state, task = ask(new(rules), A)
    state = transitions.lost(transitions.reached(state, rules, 50), rules, A)
    assert state.stage is Stage.DONE
    assert state.work.left_out == {task: "the model has reached max_step 50"}


def test_a_job_that_only_evaluates_evaluates_once_and_ends() -> None:
    rules = Rules(trains=False, servers=2, evaluation_tasks=2)
    state = transitions.settle(begin(rules, range(1, 1), plan="plan"), rules)
    state = transitions.snapshot_taken(state, rules, 0, ("s0", "s1"))
    state = transitions.evaluation_concluded(do(state, A, 2, rules), rules)
    assert (state.stage, state.evaluated) == (Stage.DONE, 0)


def test_a_job_that_predicts_ends_with_its_last_task() -> None:
    rules = Rules(trains=False, servers=2)
    state = do(new(rules), A, 3, rules)
    assert state.stage is Stage.WORK
    assert do(state, A, 1, rules).stage is Stage.DONE


def test_a_job_whose_script_has_not_told_its_data_does_not_end() -> None:
    state = transitions.settle(begin(Rules(), range(1, 1)), Rules())
    assert state.stage is Stage.WORK


@pytest.mark.parametrize("stage", [Stage.DONE, Stage.FAILED])
def test_an_ended_job_stays_as_it_is(stage: Stage) -> None:
    state = dataclasses.replace(new(), stage=stage, reason="why")
    assert transitions.failed(state, "another reason") == state
    assert transitions.settle(state, RULES) == state
    assert nothing_to_do(state)


def test_only_the_last_processes_are_remembered_for_repeated_reports() -> None:
    count = transitions.KEPT_CREDITS + 10
    state = new(tasks=count)
    for index in range(count):
        state = do(state, Owner("worker", str(index)), 1)
    assert len(state.credited) == transitions.KEPT_CREDITS
    assert str(count - 1) in state.credited


def test_a_job_that_may_goes_on_without_a_task_that_kills_its_workers() -> None:
    rules, state = dataclasses.replace(RULES, goes_on_without=True), new()
    for number in range(MAX_LOSSES + 1):
        owner = Owner("worker-0", f"p{number}")  # a pod in which the process is started again
        state = transitions.attend(state, rules, owner, [], now=0.0)
        state, _ = transitions.hand_out(state, owner, now=0.0)
    state = transitions.lost(state, rules, owner)
    assert list(state.work.left_out) == [1]
    assert not state.ended


def test_a_worker_that_said_that_it_leaves_is_no_loss_and_one_that_comes_back_neither() -> None:
    state = new()
    for _ in range(2 * MAX_LOSSES):
        state, task = transitions.hand_out(state, A, now=0.0)
        state = transitions.lost(state, RULES, A, left=True)
        state, task = transitions.hand_out(state, A, now=0.0)
        assert task == 1
        state = transitions.lost(state, RULES, A)
        state = transitions.attend(state, RULES, A, [1], now=0.0)
        state, _ = transitions.report(state, RULES, Outcome(task=1, owner=A, given_back=True), now=0.0)
    assert not state.ended


def test_a_task_that_always_takes_longer_than_the_limit_is_done_at_last() -> None:
    state, now = new(), 0.0
    for _ in range(MAX_LOSSES):
        state, task = transitions.hand_out(state, A, now=now)
        state, late = transitions.expire(state, RULES, now=now + 400.0)
        now += 400.0
        if not late:
            break
    assert task == 1
    assert transitions.report(state, RULES, Outcome(task=1, owner=A), now=now)[1]


def test_a_late_task_that_its_process_still_holds_when_it_asks_is_its_own_again_and_is_not_given_twice() -> None:
    state, task = ask(new(), A)
    state, late = transitions.expire(state, RULES, now=400.0)
    assert list(late) == [task]
    state, other = transitions.hand_out(state, A, now=401.0, holding={task})
    assert other == task + 1
    assert state.work.held_by(A) == (task, task + 1)
