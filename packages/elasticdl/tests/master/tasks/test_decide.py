"""What the master itself has to do, by the state of the job."""

from __future__ import annotations

import dataclasses

import pytest
from elasticdl.master.tasks import transitions
from elasticdl.master.tasks.decide import Action, decide
from elasticdl.master.tasks.state import JobState, Rules, Stage, begin
from elasticdl.master.tasks.task_queue import Queue

RULES = Rules(servers=2, evaluation_steps=100, evaluation_tasks=2, checkpoint_steps=30, exports=True)
NEW = begin(RULES, range(1, 5), plan="plan")
EVALUATING = transitions.reached(NEW, RULES, 100)
READY = transitions.snapshot_taken(EVALUATING, RULES, 100, ("a", "b"))


def finished(state: JobState) -> JobState:
    assert state.evaluation is not None
    done = dataclasses.replace(state.evaluation, queue=Queue(0, 2, 2))
    return dataclasses.replace(state, evaluation=done)


@pytest.mark.parametrize(
    ("state", "action"),
    [
        (NEW, Action.WAIT),
        (dataclasses.replace(NEW, version=29), Action.WAIT),
        (dataclasses.replace(NEW, version=30), Action.SAVE),
        (dataclasses.replace(NEW, version=59, saved=30), Action.WAIT),
        (dataclasses.replace(NEW, version=61, saved=31), Action.SAVE),
        (dataclasses.replace(NEW, version=20, saved=90), Action.WAIT),
        (EVALUATING, Action.TAKE_SNAPSHOT),
        (dataclasses.replace(READY, saved=100), Action.WAIT),
        (dataclasses.replace(READY, saved=10), Action.SAVE),
        (finished(READY), Action.CONCLUDE),
        (dataclasses.replace(NEW, stage=Stage.FLUSH), Action.FLUSH),
        (dataclasses.replace(NEW, stage=Stage.SAVE), Action.SAVE),
        (dataclasses.replace(NEW, stage=Stage.EXPORT), Action.WAIT),
        (dataclasses.replace(NEW, stage=Stage.DONE), Action.END),
        (dataclasses.replace(READY, stage=Stage.FAILED), Action.END),
    ],
)
def test_the_next_action(state: JobState, action: Action) -> None:
    assert decide(state, RULES) is action


@pytest.mark.parametrize(
    "rules",
    [
        dataclasses.replace(RULES, servers=0),
        dataclasses.replace(RULES, trains=False),
        dataclasses.replace(RULES, checkpoint_steps=0),
    ],
    ids=["no-servers", "no-training", "no-checkpoints"],
)
def test_nothing_is_saved_where_no_checkpoints_are_written(rules: Rules) -> None:
    assert decide(dataclasses.replace(NEW, version=1000), rules) is Action.WAIT
