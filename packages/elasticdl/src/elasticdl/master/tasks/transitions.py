"""What may happen to a job, each as a pure function from its state to the next one.

    state, task = hand_out(state, owner, now=12.0)
    state, counted = report(state, rules, Outcome(task, owner, records=4096), now=15.0)
    state = lost(state, rules, owner)          # its tasks are to do again

Every function ends with `settle`, which takes the steps that need no further event: an evaluation that is due begins
when none is under way; when all work is done, the next stage begins.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from elasticdl.master.tasks.plan import EVALUATIONS, EXPORTS
from elasticdl.master.tasks.state import Evaluation, JobState, Rules, Stage, evaluation_tasks
from elasticdl.master.tasks.task_queue import Owner, Queue, Status

LEAST_LIMIT_SECONDS = 300.0
SLOWER = 3
"""A task is late after `LEAST_LIMIT_SECONDS`, or after so many times the seconds of the slowest one of its type."""
KEPT_CREDITS = 256
KEPT_SEEN = 4096
ENOUGH = "a script has said that it is enough"
WORK, EVALUATION, EXPORT = "work", "evaluation", "export"


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """How a task has ended, as its worker says."""

    task: int
    owner: Owner
    records: int = 0
    version: int = 0
    """Of a script: updates of the model with which the task is final."""
    error: str = ""
    given_back: bool = False


def kind_of(task: int) -> str:
    """Return which queue a task belongs to."""
    return EXPORT if task >= EXPORTS else EVALUATION if task >= EVALUATIONS else WORK


def queue_of(state: JobState, task: int) -> Queue | None:
    """Return the queue that a task is in; None if its evaluation is over or the number is of no task."""
    kind = kind_of(task)
    if kind == EVALUATION:
        queue = state.evaluation.queue if state.evaluation else None
    else:
        queue = state.export if kind == EXPORT else state.work
    return queue if queue and queue.status(task) is not Status.UNKNOWN else None


def hand_out(
    state: JobState, owner: Owner, *, now: float, holding: Collection[int] = (), present: Collection[str] = ()
) -> tuple[JobState, int | None]:
    """Give the process a task; None if there is none now. `present` are the processes that may take tasks.

    A task that is this process's, and that it does not hold, was lost on its way: it is given again. One that came
    back, and that it holds, is its own again: else it would do it twice.
    """
    if state.ended:
        return state, None
    state = _each(state, lambda queue: queue.claimed(holding, owner, now))
    for queue in _queues(state).values():
        for task in queue.held_by(owner):
            if task not in holding:
                return state, task
    # An evaluation first: its snapshot takes memory on the servers.
    for kind, queue in _open_queues(state).items():
        taken, found = queue.take(owner, now, present, limit_seconds(state, kind))
        if found is not None:
            return _with(state, kind, taken), found
    return state, None


def report(state: JobState, rules: Rules, outcome: Outcome, *, now: float) -> tuple[JobState, bool]:
    """Take in how a task has ended; False if it was not this process's, so that nothing is changed."""
    task, owner = outcome.task, outcome.owner
    queue = queue_of(state, task)
    done = not (outcome.error or outcome.given_back)
    if queue is None or queue.status(task) is not Status.DOING or queue.doing[task].owner != owner:
        return state, done and state.credited.get(owner.process) == task
    kind, seconds = kind_of(task), now - queue.doing[task].since
    if outcome.given_back:
        return settle(_with(state, kind, queue.put_back([task])), rules), True
    if outcome.error:
        failed = queue.fail(task, owner, outcome.error, retries=rules.retries, now=now)
        why = f"task {task} failed {rules.retries + 1} times, at last on {owner.worker}: {outcome.error}"
        return settle(_left_out(_with(state, kind, failed or queue), rules, {task: why}), rules), True
    credited = {**{process: last for process, last in state.credited.items() if process != owner.process}}
    credited = dict([*credited.items(), (owner.process, task)][-KEPT_CREDITS:])
    counted = dataclasses.replace(
        _with(state, kind, queue.finish(task, owner) or queue),
        records=state.records + (outcome.records if kind == WORK else 0),
        slowest={**state.slowest, kind: max(seconds, state.slowest.get(kind, 0.0))},
        credited=credited,
    )
    return settle(_seen(counted, outcome), rules), True


def _seen(state: JobState, outcome: Outcome) -> JobState:
    """Remember with which update a task of a script was final."""
    if not outcome.version:
        return state
    seen = sorted({**state.seen, outcome.task: outcome.version}.items(), key=lambda item: item[1])
    before = max([state.seen_before, *(version for _, version in seen[:-KEPT_SEEN])])
    version = max(state.version, outcome.version)
    return dataclasses.replace(state, version=version, seen=dict(seen[-KEPT_SEEN:]), seen_before=before)


def begun_from(state: JobState, rules: Rules, version: int, generation: int) -> JobState:
    """Take in that the model of a script's workers has had so many updates when a generation of them began.

    If it had more when the last task was reported, then all workers with that model were lost: these begin with a
    checkpoint, anew, or with the model of a worker that was left behind. What the model has not seen is to do again. If
    that is not known, the job fails. What a worker of an older generation says counts no more.
    """
    if state.ended or generation < state.generation:
        return state
    state = dataclasses.replace(state, generation=generation)
    if version >= state.version:
        return state
    if version == 0:
        work, records = Queue.of(range(state.work.first, state.work.end)), 0
    elif version >= state.seen_before:
        unseen = [task for task, last in state.seen.items() if last > version]
        work, records = state.work.again(unseen), state.records
    else:
        why = f"all workers with the newest model were lost, and the model of update {version} is older than the last"
        remedy = "Give --checkpoint_dir and a smaller --checkpoint_steps"
        return failed(state, f"{why} {KEPT_SEEN} tasks: what it has not seen is not known. {remedy}")
    seen = {task: last for task, last in state.seen.items() if last <= version}
    before = min(state.seen_before, version)
    state = dataclasses.replace(state, work=work, records=records, version=version, seen=seen, seen_before=before)
    return settle(state, rules)


def enough(state: JobState, rules: Rules) -> JobState:
    """Take in that a script wants no more tasks."""
    return settle(dataclasses.replace(state, stopped=state.stopped or ENOUGH), rules)


def attend(state: JobState, rules: Rules, owner: Owner, tasks: Collection[int], *, now: float) -> JobState:
    """Take in that a process is there and works on these tasks.

    Tasks that came back and on which it still works are its own again. Those that it does not name are to do again, and
    so are those of another process of the same worker: a name has one process.
    """

    def reconciled(queue: Queue) -> Queue:
        queue = queue.claimed(tasks, owner, now)
        return queue.put_back(task for task in queue.held_by(owner) if task not in tasks)

    def replaced(held: Owner) -> bool:
        return held.worker == owner.worker and held != owner

    return _lose(_each(state, reconciled), rules, replaced)


def lost(state: JobState, rules: Rules, owner: Owner, *, left: bool = False) -> JobState:
    """Put back the tasks of a process that is gone.

    Args:
        state: The state.
        rules: The job's rules.
        owner: The process.
        left: Whether it had said so, and did not die: that says nothing about its tasks.
    """
    if left:
        return settle(_each(state, lambda queue: queue.put_back(queue.held_by(owner))), rules)
    return _lose(state, rules, lambda held: held == owner)


def lost_all_but(state: JobState, rules: Rules, present: Collection[Owner]) -> JobState:
    """Put back the tasks of every process that is not there."""
    return _lose(state, rules, lambda held: held not in present)


def expire(state: JobState, rules: Rules, *, now: float) -> tuple[JobState, dict[int, Owner]]:
    """Put back the tasks that take too long; return them with those that did them."""
    late: dict[int, Owner] = {}
    for kind, queue in _queues(state).items():
        tasks = queue.late(now, limit_seconds(state, kind))
        late |= {task: queue.doing[task].owner for task in tasks}
        state = _without(state, rules, kind, tasks)
    return (settle(state, rules) if late else state), late


def limit_seconds(state: JobState, kind: str) -> float:
    """Return after how many seconds a task is late."""
    return max(LEAST_LIMIT_SECONDS, SLOWER * state.slowest.get(kind, 0.0))


def reached(state: JobState, rules: Rules, version: int) -> JobState:
    """Take in that the model has this version. It may be lower than the last one: a server came back from a checkpoint.

    Evaluations that fall due while one is under way are one, which begins after it, with the version of then.
    """
    state = dataclasses.replace(state, version=version)
    if state.stage is not Stage.WORK:
        return state
    steps = rules.evaluation_steps
    evaluates = rules.evaluation_tasks and steps and not state.unevaluated
    if evaluates and version // steps > state.triggered // steps:
        state = dataclasses.replace(state, due=True, triggered=version)
    if rules.max_step is not None and version >= rules.max_step and not state.stopped:
        state = dataclasses.replace(state, stopped=f"the model has reached max_step {rules.max_step}")
    return settle(state, rules)


def joined(before: JobState, after: JobState, rules: Rules) -> range:
    """Return the steps at which an evaluation fell due between two states, and that get none of their own."""
    if after.triggered == before.triggered:
        return range(0)
    steps = rules.evaluation_steps
    first, last = (before.triggered // steps + 1) * steps, after.triggered // steps * steps
    # The evaluation of the last step has begun, unless another one is under way.
    return range(first, last + 1 if after.due else last, steps)


def snapshot_taken(state: JobState, rules: Rules, step: int, servers: tuple[str, ...]) -> JobState:
    """Take in that all servers have the snapshot of the evaluation that is under way."""
    if state.evaluation is None:
        return state
    ready = dataclasses.replace(state.evaluation, ready=True, step=step, servers=servers)
    return settle(dataclasses.replace(state, evaluation=ready), rules)


def evaluation_begun_anew(state: JobState, rules: Rules) -> JobState:
    """Begin the evaluation again: a server has lost its snapshot, so its parts would be of two models."""
    return settle(dataclasses.replace(state, evaluation=None, due=True), rules)


def evaluation_concluded(state: JobState, rules: Rules) -> JobState:
    """Take in that the metrics are known."""
    evaluated = state.evaluation.step if state.evaluation else state.evaluated
    return settle(dataclasses.replace(state, evaluation=None, evaluated=evaluated), rules)


def evaluation_failed(state: JobState, rules: Rules, reason: str) -> JobState:
    """Take in that an evaluation can't be completed. What is to do of it is left out, and no other one begins."""
    return settle(dataclasses.replace(state, unevaluated=state.unevaluated or reason), rules)


def flushed(state: JobState, rules: Rules, version: int) -> JobState:
    """Take in that the servers have applied all gradients."""
    return settle(dataclasses.replace(state, version=version, stage=Stage.SAVE), rules)


def saved(state: JobState, rules: Rules, version: int) -> JobState:
    """Take in that there is a checkpoint of this version."""
    stage = Stage.EXPORT if state.stage is Stage.SAVE else state.stage
    return settle(dataclasses.replace(state, saved=version, stage=stage), rules)


def failed(state: JobState, reason: str) -> JobState:
    """End the job."""
    return state if state.ended else dataclasses.replace(state, stage=Stage.FAILED, reason=reason)


def settle(state: JobState, rules: Rules) -> JobState:
    """Return the state after all steps that need no further event."""
    while (after := _step(state, rules)) != state:
        state = after
    return state


def _step(state: JobState, rules: Rules) -> JobState:
    if state.ended:
        return state
    if state.stopped and state.work.todo:
        return dataclasses.replace(state, work=state.work.cancel(state.stopped))
    if state.unevaluated and state.evaluation and state.evaluation.queue.todo:
        return _with(state, EVALUATION, state.evaluation.queue.cancel(state.unevaluated))
    if state.due and state.evaluation is None and not state.unevaluated:
        queue = Queue.of(evaluation_tasks(rules, state.evaluations))
        begun = Evaluation(state.evaluations, max(state.version, state.snapshot + 1), queue)
        return dataclasses.replace(
            state, due=False, evaluation=begun, evaluations=begun.number + 1, snapshot=begun.snapshot
        )
    return _next_stage(state, rules)


def _next_stage(state: JobState, rules: Rules) -> JobState:
    """Return the state in the next stage if there is nothing to do in this one; an evaluation may be under way."""
    if state.stage is Stage.WORK and state.work.finished and (state.plan or state.stopped):
        if state.work.left_out and not state.work.done and not state.stopped:
            task, reason = min(state.work.left_out.items())
            return failed(state, f"not one task was done; task {task} failed with: {reason}")
        flushes = rules.trains and rules.servers
        return dataclasses.replace(state, stage=Stage.FLUSH if flushes else Stage.SAVE)
    if state.stage is Stage.SAVE and (not rules.checkpoint_steps or state.saved == state.version):
        return dataclasses.replace(state, stage=Stage.EXPORT)
    if state.stage is Stage.EXPORT and state.export.finished:
        return dataclasses.replace(state, stage=Stage.EVALUATE)
    if state.stage is Stage.EVALUATE and state.evaluation is None:
        if state.unevaluated:
            return failed(state, state.unevaluated)
        if rules.evaluation_tasks and not state.closing and state.evaluated != state.version:
            return dataclasses.replace(state, due=True, closing=True)
        return dataclasses.replace(state, stage=Stage.DONE)
    return state


def _lose(state: JobState, rules: Rules, chosen: Callable[[Owner], bool]) -> JobState:
    """Return the state in which the tasks of these processes were lost."""
    for kind, queue in _queues(state).items():
        state = _without(state, rules, kind, [task for task, held in queue.doing.items() if chosen(held.owner)])
    return settle(state, rules)


def _without(state: JobState, rules: Rules, kind: str, tasks: Collection[int]) -> JobState:
    """Return the state in which these tasks of one type were lost."""
    queue = _queues(state)[kind].lose(tasks)
    why = {task: f"task {task}: {queue.left_out[task]}" for task in tasks if task in queue.left_out}
    return _left_out(_with(state, kind, queue), rules, why)


def _left_out(state: JobState, rules: Rules, why: Mapping[int, str]) -> JobState:
    """Return the state after tasks went wrong: the job, or its evaluation, fails if one is left out.

    With `goes_on_without` it goes on; a job does not without its export, nor an evaluation without all of its tasks.
    """
    for task, reason in why.items():
        queue, kind = queue_of(state, task), kind_of(task)
        if queue is None or queue.status(task) is not Status.LEFT_OUT:
            continue
        if kind == EVALUATION and (not rules.goes_on_without or len(queue.left_out) == queue.end - queue.first):
            state = evaluation_failed(state, rules, reason)
        elif kind == EXPORT or (kind == WORK and not rules.goes_on_without):
            return failed(state, reason)
    return state


def _queues(state: JobState) -> dict[str, Queue]:
    """Return the queues: the model is stored before anything else is done, and a snapshot takes memory of servers."""
    evaluation = {EVALUATION: state.evaluation.queue} if state.evaluation else {}
    return {EXPORT: state.export, **evaluation, WORK: state.work}


def _open_queues(state: JobState) -> dict[str, Queue]:
    """Return the queues with tasks that may be handed out now, in order of preference."""
    queues = _queues(state)
    if not (state.evaluation and state.evaluation.ready):
        queues.pop(EVALUATION, None)
    if state.stage is not Stage.WORK:
        del queues[WORK]
    if state.stage is not Stage.EXPORT:
        del queues[EXPORT]
    return queues


def _each(state: JobState, change: Callable[[Queue], Queue]) -> JobState:
    for kind, queue in _queues(state).items():
        state = _with(state, kind, change(queue))
    return state


def _with(state: JobState, kind: str, queue: Queue) -> JobState:
    if kind == WORK:
        return dataclasses.replace(state, work=queue)
    if kind == EXPORT:
        return dataclasses.replace(state, export=queue)
    assert state.evaluation is not None
    return dataclasses.replace(state, evaluation=dataclasses.replace(state.evaluation, queue=queue))
