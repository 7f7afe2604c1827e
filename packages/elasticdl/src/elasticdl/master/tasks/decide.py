"""What the master itself has to do next: a pure function of the job's state.

    decide(state, rules)      # Action.TAKE_SNAPSHOT

`acting.Actor` does it, tells the coordinator, and asks again.
"""

from __future__ import annotations

from enum import Enum

from elasticdl.master.tasks.state import JobState, Rules, Stage


class Action(Enum):
    """Something that concerns the parameter servers, the log, or the end."""

    WAIT = "for workers"
    TAKE_SNAPSHOT = "let all servers keep the present model"
    CONCLUDE = "combine the metrics of an evaluation, log them, and let the servers drop the snapshot"
    SAVE = "let all servers write a checkpoint"
    FLUSH = "let all servers apply what waits for more gradients"
    END = "let everybody go"


def decide(state: JobState, rules: Rules) -> Action:
    """Return what is to be done now; only one thing at a time is done."""
    if state.ended:
        return Action.END
    if state.evaluation is not None and not state.evaluation.ready:
        return Action.TAKE_SNAPSHOT
    if state.evaluation is not None and state.evaluation.queue.finished:
        return Action.CONCLUDE
    if state.stage is Stage.FLUSH:
        return Action.FLUSH
    if state.stage is Stage.SAVE or (state.stage is Stage.WORK and _checkpoint_is_due(state, rules)):
        return Action.SAVE
    return Action.WAIT


def _checkpoint_is_due(state: JobState, rules: Rules) -> bool:
    steps = rules.checkpoint_steps
    return bool(rules.trains and rules.servers and steps) and state.version // steps > max(0, state.saved) // steps
