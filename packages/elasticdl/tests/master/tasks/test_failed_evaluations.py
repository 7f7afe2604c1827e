"""An evaluation that fails ends the job as failed, after the trained model is stored."""

from __future__ import annotations

import dataclasses

from elasticdl.master.tasks import transitions
from elasticdl.master.tasks.plan import EVALUATIONS
from elasticdl.master.tasks.state import JobState, Rules, Stage
from elasticdl.master.tasks.transitions import Outcome

from packages.elasticdl.tests.master.tasks.test_transitions import RULES, A, ask, do, evaluating, stored


def failing(state: JobState, rules: Rules, task: int) -> JobState:
    """Return the state after one task has failed as often as it is tried."""
    for attempt in range(rules.retries + 1):
        state, found = ask(state, A, now=100.0 * attempt)
        assert found == task
        outcome = Outcome(task=task, owner=A, error="no such column")
        state, _ = transitions.report(state, rules, outcome, now=100.0 * attempt)
    return state


def test_the_last_evaluation_fails_the_job_once_the_model_is_stored() -> None:
    state = failing(stored(), RULES, EVALUATIONS)
    assert state.evaluation is not None
    assert (state.stage, state.evaluation.queue.finished) == (Stage.EVALUATE, True)
    state = transitions.evaluation_concluded(state, RULES)
    assert state.stage is Stage.FAILED
    assert state.reason == f"task {EVALUATIONS} failed 4 times, at last on worker-0: no such column"


def test_an_evaluation_that_fails_during_the_training_is_the_last_one_and_fails_the_job_at_the_end() -> None:
    state = transitions.evaluation_concluded(failing(evaluating(), RULES, EVALUATIONS), RULES)
    state = transitions.reached(state, RULES, 200)
    assert (state.stage, state.evaluation) == (Stage.WORK, None)
    state = do(transitions.flushed(do(state, A, 4), RULES, 240), A, 1)
    assert state.stage is Stage.FAILED
    assert state.reason.endswith("no such column")
    assert state.export.done == 1


def test_with_fault_tolerance_an_evaluation_goes_on_without_a_task_and_not_without_all() -> None:
    rules = dataclasses.replace(RULES, goes_on_without=True, retries=0)
    state, task = ask(evaluating(), A)
    state, _ = transitions.report(state, rules, Outcome(task=task, owner=A, error="bad record"), now=1.0)
    assert not state.unevaluated
    state, task = ask(state, A)
    state, _ = transitions.report(state, rules, Outcome(task=task, owner=A, error="bad record"), now=1.0)
    assert state.unevaluated.endswith("bad record")
