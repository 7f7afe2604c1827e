"""The tasks of a script go together with its model: what the model has not seen is done again."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from elasticdl.master.coordinator import Coordinator
from elasticdl.master.resume import prepared, resumed
from elasticdl.master.store import MemoryStore
from elasticdl.master.tasks import transitions
from elasticdl.master.tasks.state import JobState, Rules, Stage
from elasticdl.master.tasks.transitions import Outcome

from packages.elasticdl.tests.master.jobs import write_job
from packages.elasticdl.tests.master.tasks.test_transitions import A, B, ask, new

RULES = Rules()


def trained(rules: Rules, *versions: int, tasks: int = 5) -> JobState:
    """Return the state after tasks that were final with these updates, with the next one under way."""
    state = new(rules, tasks)
    for version in versions:
        state, task = ask(state, A)
        state, _ = transitions.report(state, rules, Outcome(task=task, owner=A, records=10, version=version), now=1.0)
    return ask(state, A)[0]


def test_all_tasks_begin_anew_with_the_model() -> None:
    state = transitions.begun_from(trained(RULES, 3, 6), RULES, 0, 1)
    assert (state.work.todo, state.work.done, state.records, state.version) == (5, 0, 0, 0)
    assert ask(state, B)[1] == 1


def test_the_tasks_that_the_model_of_a_checkpoint_or_a_survivor_has_not_seen_are_done_again() -> None:
    state = trained(RULES, 3, 6, 9)
    state = JobState.from_fields(json.loads(json.dumps(state.to_fields())))
    state = transitions.begun_from(state, RULES, 6, 1)
    assert (state.work.done_tasks(), state.work.returned, state.version) == ([1, 2], (3, 4), 6)
    assert transitions.begun_from(state, RULES, 6, 1) == state, "of the next worker"


def test_a_worker_that_joins_others_changes_nothing() -> None:
    state = trained(RULES, 3, 6)
    joined = [transitions.begun_from(state, RULES, version, 0) for version in (6, 7)]
    assert joined == [state, state]


def test_what_a_worker_says_that_has_not_noticed_a_newer_generation_changes_nothing() -> None:
    state = transitions.begun_from(trained(RULES, 3, 6), RULES, 6, 2)
    state = JobState.from_fields(json.loads(json.dumps(state.to_fields())))
    assert transitions.begun_from(state, RULES, 3, 1) == state
    assert transitions.begun_from(state, RULES, 3, 2).work.done_tasks() == [1]


def test_a_checkpoint_that_is_too_old_fails_the_job(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transitions, "KEPT_SEEN", 2)
    state = trained(RULES, 3, 6, 9)
    assert transitions.begun_from(state, RULES, 3, 1).work.done_tasks() == [1]
    state = transitions.begun_from(state, RULES, 2, 1)
    assert state.stage is Stage.FAILED
    assert "the model of update 2 is older than" in state.reason


@pytest.mark.parametrize(("version", "again"), [(0, 2), (3, 1)], ids=["no-model", "checkpoint"])
def test_the_master_says_that_tasks_begin_anew(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, version: int, again: int
) -> None:
    job = prepared(write_job(tmp_path), servers=0)
    one = Coordinator(job.setup, job.plans, MemoryStore(), resumed(None, job)[0])
    one.attend(A, [], A)
    for final in (3, 6):
        task = one.hand_out(A, []).task
        assert one.report(Outcome(task=task, owner=A, records=10, version=final), {})
    one.begun_from(6, 1)
    assert caplog.messages == [], "a worker of the others joined, and the model is the newest"
    one.begun_from(version, 2)
    lost = "All workers with the newest model were lost"
    assert caplog.messages == [f"{lost}. The model is that of update {version}; {again} tasks begin anew"]


def test_after_enough_nothing_is_handed_out_and_the_job_succeeds_when_all_is_given_back() -> None:
    state = transitions.enough(trained(RULES, 3), RULES)
    assert transitions.hand_out(state, B, now=0.0)[1] is None
    state, _ = transitions.report(state, RULES, Outcome(task=2, owner=A, given_back=True), now=1.0)
    assert (state.stage, state.work.done) == (Stage.DONE, 1)


@pytest.mark.parametrize(("everyone", "stage"), [(True, Stage.DONE), (False, Stage.FAILED)])
def test_a_job_ends_with_its_last_worker_that_has_ended_by_itself(
    tmp_path: Path, *, everyone: bool, stage: Stage
) -> None:
    job = prepared(write_job(tmp_path), servers=0)
    one = Coordinator(job.setup, job.plans, MemoryStore(), resumed(None, job)[0])
    for owner in (A, B):
        one.attend(owner, [], owner)
        one.hand_out(owner, [])
    one.gone(A, A)
    one.ended(B, everyone=everyone)
    assert not one.state.ended
    one.gone(B, B)
    assert one.state.stage is stage
    assert everyone or one.state.reason.startswith("all workers have ended, and 10 tasks are not done")


def test_a_job_goes_on_without_the_worker_that_has_ended_by_itself(tmp_path: Path) -> None:
    job = prepared(write_job(tmp_path), servers=0)
    one = Coordinator(job.setup, job.plans, MemoryStore(), resumed(None, job)[0])
    for owner in (A, B):
        one.attend(owner, [], owner)
    one.ended(A, everyone=False)
    one.gone(A, A)
    one.gone(B, B)
    assert not one.state.ended, "another pod takes the place of the lost one"
