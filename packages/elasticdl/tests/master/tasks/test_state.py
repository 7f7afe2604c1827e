"""The master's record: what is written is read back, and what can't be read is said."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest
from elasticdl.errors import ElasticDLError
from elasticdl.master.tasks import transitions
from elasticdl.master.tasks.state import JobState, Rules, Script, begin
from elasticdl.master.tasks.task_queue import Owner
from elasticdl.master.tasks.transitions import Outcome

RULES = Rules(servers=2, evaluation_steps=10, evaluation_tasks=3, exports=True)
A = Owner("worker-0", "a")


def full_state() -> JobState:
    """Return a state in which every field says something, but for times: clocks of two processes differ."""
    state = begin(RULES, range(1, 9), plan="digest")
    for outcome in ({"records": 5}, {"error": "no"}, {"given_back": True}):
        state, task = transitions.hand_out(state, A, now=0.0)
        assert task
        state, _ = transitions.report(state, RULES, Outcome(task=task, owner=A, **outcome), now=2.5)
    state = transitions.snapshot_taken(transitions.reached(state, RULES, 10), RULES, 10, ("s0", "s1"))
    for owner in (A, Owner("worker-1", "b")):
        state, _ = transitions.hand_out(state, owner, now=0.0)
    left_out = dataclasses.replace(state.work, left_out={8: "bad"}, losses={3: 2}, pauses={})
    script = Script(100, 2, 5, 4, True)
    return dataclasses.replace(state, due=True, work=left_out, script=script, stopped="enough", reason="why")


@pytest.mark.parametrize("state", [begin(RULES, range(1, 9)), full_state()], ids=["new", "full"])
def test_a_state_survives_json(state: JobState) -> None:
    assert JobState.from_fields(json.loads(json.dumps(state.to_fields()))) == state


def test_tasks_under_way_count_as_begun_when_they_are_read() -> None:
    state = JobState.from_fields(full_state().to_fields(), now=77.0)
    assert state.evaluation is not None
    assert {held.since for held in state.evaluation.queue.doing.values()} == {77.0}


def test_the_record_of_a_long_job_is_small() -> None:
    state = begin(RULES, range(1, 1_000_001))
    work = dataclasses.replace(state.work, cursor=900_000)
    assert len(json.dumps(dataclasses.replace(state, work=work).to_fields())) < 2000


@pytest.mark.parametrize(
    "change",
    [
        lambda fields: fields.pop("work"),
        lambda fields: fields.update(colour="blue"),
        lambda fields: fields.update(stage="resting"),
        lambda fields: fields.update(work=5),
        lambda fields: fields["work"].pop("cursor"),
        lambda fields: fields.update(script={"records": 1}),
    ],
    ids=["field-missing", "field-unknown", "stage-unknown", "no-queue", "queue-damaged", "script-damaged"],
)
def test_a_record_that_can_not_be_read_is_an_error_with_a_remedy(change: Any) -> None:
    fields = json.loads(json.dumps(full_state().to_fields()))
    change(fields)
    with pytest.raises(ElasticDLError, match="the master's record in etcd can't be read"):
        JobState.from_fields(fields)
