"""The whole decision about one job.

    decision = decide(view, now)

In this order: a job that is being deleted is left alone; a finished one is cleaned up; a job that has just succeeded or
failed ends; a suspended job, or one that waits in its queue or for its team's quota, gives up its pods; a job with a
changed template, or one that restarts as a whole, is made anew; every other job gets the pods that it aims for.

To decide again after the actions were carried out gives no further action: a controller may be stopped between any two
of them, and another one goes on from what it observes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Literal

from tidewater.controller.decide.actions import (
    Action,
    CreatePod,
    CreateService,
    Decision,
    DeleteJob,
    DeletePod,
    Emit,
    TaintNode,
)
from tidewater.controller.decide.assessment import RESTARTS, Assessment, assessed, following
from tidewater.controller.decide.conditions import (
    REASONS,
    conditions_of,
    next_told,
    of_finished,
    quota,
    sentence,
    state_of,
    waiting,
    warnings,
    with_devices,
)
from tidewater.controller.decide.displacement import departures
from tidewater.controller.decide.exits import failing, failure, in_one_line
from tidewater.controller.decide.finish import BY_FAILURES, Ended, Outcome, cleaning, deadline, outcome
from tidewater.controller.decide.observed import JobView, is_finished, lost, parted
from tidewater.controller.decide.pods import abandon, delete_all, fill, inherited, remaining, superfluous
from tidewater.controller.decide.queue import Standing
from tidewater.controller.decide.replica_groups import Crew, crews
from tidewater.controller.decide.replicas import noun, stragglers
from tidewater.controller.decide.sizes import settled
from tidewater.elasticjob import indexes, names
from tidewater.elasticjob.choices import Launcher, PodNames, RestartScope, State, SuccessPolicy
from tidewater.elasticjob.model import ElasticJob
from tidewater.elasticjob.names import ConditionType, Reason
from tidewater.elasticjob.status import Condition, ReplicaStatus, Status


@dataclass(frozen=True, slots=True)
class Plan:
    """The changes to the job's pods, and when to look again."""

    deletes: tuple[DeletePod, ...]
    creates: tuple[CreatePod, ...] = ()
    again: tuple[datetime | None, ...] = ()


@dataclass(frozen=True, slots=True)
class Fate:
    """What of a job's status depends on whether it goes on or has ended."""

    state: State
    conditions: tuple[Condition, ...]
    settled: int | None
    start_time: datetime | None
    completion_time: datetime | None = None
    waiting: str = ""


def decide(view: JobView, now: datetime) -> Decision:
    """Return what to do about the job now."""
    view = parted(view)
    if view.job.deleting:
        return Decision(view.job.status)
    if is_finished(view.job.status):
        return _after(view, now.replace(microsecond=0))
    situation = assessed(view, now)
    end = outcome(situation)
    if end is not None:
        return _finished(situation, end)
    situation = replace(situation, restart=following(situation))
    return _ongoing(situation, _plan(situation))


def _plan(situation: Assessment) -> Plan:
    sorted_, nodes = situation.crews.values(), situation.view.nodes
    lost = tuple(delete for crew in sorted_ for delete in abandon(crew, nodes))
    lost += delete_all(situation.strays, "it belongs to no replica type of the job")
    lost += departures(sorted_, nodes)
    lost += stragglers((pod for crew in sorted_ for pod in crew.failed()), situation.tally.counted)
    staying = (pod for crew in sorted_ for pod in crew.staying())
    if situation.job.spec.suspend:
        return Plan(lost + delete_all(staying, "the job is suspended"))
    if situation.outdated:
        return Plan(lost + delete_all(staying, "a template of the job has changed"), again=(deadline(situation),))
    if situation.restart.under_way:
        return Plan(lost + delete_all(staying, RESTARTS), again=(situation.restart.time, deadline(situation)))
    if situation.waits:
        kept = {pod.uid for crew in situation.kept.values() for pod in crew.staying()}
        rest = (pod for pod in staying if pod.uid not in kept)
        why = "its team's quota" if situation.over_quota else "its turn in its queue"
        return Plan(lost + delete_all(rest, f"the job waits for {why}"))
    if situation.standing.admission is None:
        return Plan(lost, again=(deadline(situation),))  # the queue decides next, when it sees that the job is short
    if situation.restart.time is not None:
        return Plan(lost, again=(situation.restart.time, situation.standing.again, deadline(situation)))
    site = situation.site
    changes = [fill(crew, situation.goal(crew), site, situation.now) for crew in sorted_]
    return Plan(
        deletes=lost + tuple(delete for change in changes for delete in change.deletes),
        creates=tuple(create for change in changes for create in change.creates),
        again=(
            *(change.again for change in changes),
            situation.aim.again,
            situation.standing.again,
            situation.again,
            deadline(situation),
            *(pod.unschedulable_until for crew in sorted_ for pod in crew.unplaced),
        ),
    )


def _ongoing(situation: Assessment, plan: Plan) -> Decision:
    """Return the decision about a job that goes on, with the status that holds once the plan is carried out."""
    job, view, old = situation.job, situation.view, situation.job.status
    completed = _completed(situation)
    gone = [delete for delete in plan.deletes if delete.uid not in completed]
    left = {type: remaining(crew, gone) for type, crew in situation.crews.items()}
    counts = {type: _count(crew, plan.creates) for type, crew in left.items()}
    state = state_of(situation, counts)
    now = situation.now
    fate = Fate(
        state=state,
        conditions=conditions_of(job, state, sentence(situation, state, left), now),
        # Not the size that it had or will have: a client that resumes the job and waits for that would not wait at all.
        settled=0 if job.spec.suspend else settled(job, left[names.WORKER], situation.aim),
        start_time=situation.start_time,
        waiting=waiting(situation, left),
    )
    exhausted, signals = situation.tally.out_of_memory, situation.tally.signals
    for crew in left.values():
        exhausted = inherited(exhausted, job.name, crew, plan.creates)
        signals = inherited(signals, job.name, crew, plan.creates)
    status = _status(situation, situation.standing, counts, fate)
    status = replace(status, out_of_memory=exhausted, signals=signals)
    serviceless = names.service_name(job.name) not in view.services
    service = serviceless and (plan.creates or any(crew.live for crew in left.values()))
    first: tuple[Action, ...] = (CreateService(),) if service else ()
    kept = {pod.uid for crew in left.values() for pod in crew.replaced}
    deletes = tuple({delete.uid: delete for delete in plan.deletes if delete.uid not in kept}.values())
    deletes += tuple(delete for crew in left.values() for delete in superfluous(crew))
    events = (*_events(situation, state), *_warnings(situation, left, status))
    actions = (*first, *_forced(deletes, view), *plan.creates, *_taints(situation), *events)
    return Decision(_dated(status, old, now), actions, _first(*plan.again, next_told(left, now)))


def _taints(situation: Assessment) -> tuple[TaintNode, ...]:
    """Return the taints of nodes on which devices fail, until they are seen; a person may take them away after that.

    Only of a node with more than half of the job's failures: a program that fails in this way does it on any node.
    """
    view, found = situation.view, situation.tally.nodes
    if not view.taints_nodes:
        return ()
    number = sum(each.device_failures for each in found.values())
    wrong = {name: found[name] for name in failing(found) if name in view.nodes}
    return tuple(
        TaintNode(name, each.uid)
        for name, each in wrong.items()
        if not each.tainted and 2 * each.device_failures > number
    )


def _completed(situation: Assessment) -> set[str]:
    """Return the uids of pods that a suspension deletes, although their work is not repeated after it.

    There are some only if each pod works for itself. Others need each other: after the job is resumed, those that had
    not finished would wait for ever for the ones that had.
    """
    spec = situation.job.spec
    if not spec.suspend or situation.outdated or spec.restart_scope is not RestartScope.POD:
        return set()
    if spec.launcher is not Launcher.NONE or spec.success_policy not in (
        SuccessPolicy.ALL_WORKERS,
        SuccessPolicy.ALL_PODS,
    ):
        return set()
    crews = (crew for crew in situation.kept.values() if crew.naming is not PodNames.SUCCESSIVE)
    return {pod.uid for crew in crews for pod in crew.done}


def _finished(situation: Assessment, end: Outcome) -> Decision:
    """Return the decision about a job that has just succeeded or failed."""
    job, now = situation.job, situation.now
    found, _ = crews(situation.view)  # a node's end no longer matters
    cleaned = cleaning(job, found.values(), Ended(now, failed=not end.succeeded), now)
    gone = {delete.uid for delete in cleaned.deletes}
    counts = {type: _last(crew, gone) for type, crew in found.items()}
    state = State.SUCCEEDED if end.succeeded else State.FAILED
    message = f"ElasticJob {job.name} has {state.lower()}{f' because {end.why}' if end.why else ''}."
    if end.reason in BY_FAILURES:
        words = failure(end.failed) if end.failed else situation.tally.last_failure
        message = f"{message} {in_one_line(words)}".strip()
    fate = Fate(
        state=state,
        conditions=conditions_of(job, state, message, now),
        settled=job.spec.worker.replicas if end.succeeded else job.status.settled_replicas,
        start_time=job.status.start_time or now,
        completion_time=now,
    )
    if end.succeeded:
        events = [Emit("Normal", Reason.SUCCEEDED, message)]
    else:
        why = f"{end.why[:1].upper()}{end.why[1:]}."
        events = [Emit("Warning", end.reason, why), Emit("Warning", Reason.FAILED, message)]
    ended = _status(situation, Standing(None), counts, fate)
    status = _dated(replace(ended, job_restarts=job.status.job_restarts, restart_time=None), job.status, now)
    actions: tuple[Action, ...] = (*_forced(cleaned.deletes, situation.view), *situation.tally.events, *events)
    return Decision(status, actions, _first(_expiry(job, now), cleaned.again))


def _after(view: JobView, now: datetime) -> Decision:
    """Return the decision about a job that finished earlier: its pods are cleaned up, and in the end it is deleted."""
    job, old = view.job, view.job.status
    completed = old.completion_time or now
    expiry = _expiry(job, completed)
    if expiry is not None and expiry <= now:
        return Decision(old, (DeleteJob(),))
    sorted_, _ = crews(view)
    failed = any(each.type == ConditionType.FAILED and each.status == "True" for each in old.conditions)
    cleaned = cleaning(job, sorted_.values(), Ended(completed, failed), now)
    gone = {delete.uid for delete in cleaned.deletes}
    counts = {type: _last(crew, gone, old.replica_statuses.get(type)) for type, crew in sorted_.items()}
    worker = counts[names.WORKER]
    state = State.FAILED if failed else State.SUCCEEDED  # the old controller wrote none
    status = replace(
        old,
        state=state,
        waiting="",
        conditions=of_finished(job, state, now),
        replica_statuses=counts,
        replicas=worker.active + worker.pending,
        completion_time=completed,
        observed_generation=job.generation,
        settled_replicas=old.settled_replicas if failed else job.spec.worker.replicas,
    )
    return Decision(_dated(status, old, now), _forced(cleaned.deletes, view), _first(expiry, cleaned.again))


def _forced(deletes: tuple[DeletePod, ...], view: JobView) -> tuple[DeletePod, ...]:
    """Return the deletions of the pods that exist.

    Those of pods on lost nodes are without a grace period: no kubelet there would end it.
    """
    if not deletes:
        return deletes
    unheard = {pod.uid: lost(pod, view.nodes) for pod in (*view.pods, *view.replaced)}
    there = (delete for delete in deletes if delete.uid in unheard)
    return tuple(replace(delete, grace=0) if unheard[delete.uid] else delete for delete in there)


def _status(situation: Assessment, standing: Standing, counts: Mapping[str, ReplicaStatus], fate: Fate) -> Status:
    job, tally, aim, worker = situation.job, situation.tally, situation.aim, counts[names.WORKER]
    labels = names.type_labels(job.name, names.WORKER)
    return Status(
        state=fate.state,
        waiting=fate.waiting,
        conditions=with_devices(fate.conditions, job, tally.nodes, situation.now),
        replica_statuses=counts,
        replicas=worker.active + worker.pending,
        selector=",".join(f"{key}={value}" for key, value in labels.items()),
        desired=aim.size,
        settled_replicas=fate.settled,
        restarts=tally.restarts,
        counted=tally.counted,
        out_of_memory=tally.out_of_memory,
        signals=tally.signals,
        last_failure=tally.last_failure,
        nodes=tally.nodes,
        job_restarts=situation.restart.number or None,
        restart_time=situation.restart.time,
        observed_generation=job.generation,
        start_time=fate.start_time,
        completion_time=fate.completion_time,
        last_reconcile_time=job.status.last_reconcile_time,
        last_failure_time=tally.last_failure_time,
        snoozed_until=aim.snoozed_until,
        whole_since=standing.whole_since,
        queued_since=standing.queued_since,
        turn_since=standing.turn_since,
        turns_missed=standing.turns_missed,
    )


def _count(crew: Crew, creates: Iterable[CreatePod] = ()) -> ReplicaStatus:
    created = {create.index // crew.each for create in creates if create.type == crew.type}
    created -= {pod.index for pod in crew.live}  # of a replica that lacks a pod
    successive = crew.naming is PodNames.SUCCESSIVE
    ended = crew.done or crew.permanent
    return ReplicaStatus(
        active=len(crew.active),
        pending=len(crew.live) - len(crew.active) + len(created),
        succeeded=len(crew.done),
        failed=len(crew.ended) + len(crew.permanent),
        completed_indexes=indexes.text(pod.index for pod in crew.done),
        failed_indexes=indexes.text(pod.index for pod in crew.permanent),
        template_hash=crew.template_hash if ended else "",
        yielded_at=crew.yielded_at,
        next_index=max(crew.next_index, max(created, default=-1) + 1) if successive else None,
        replaced_indexes=crew.replaced_indexes,
    )


def _last(crew: Crew, gone: Collection[str], old: ReplicaStatus | None = None) -> ReplicaStatus:
    """Return the counts of a finished job, which keeps those of ended pods after the pods are gone."""
    new = _count(crew)
    before = old or new
    ended = replace(new, succeeded=max(before.succeeded, new.succeeded), failed=max(before.failed, new.failed))
    left = [pod for pod in crew.unended() if pod.uid not in gone]
    active = {pod.index // crew.each for pod in left if pod.phase == "Running"}
    return replace(ended, active=len(active), pending=len({pod.index // crew.each for pod in left} - active))


def _events(situation: Assessment, state: State) -> tuple[Emit, ...]:
    job, old = situation.job, situation.job.status
    events = list(situation.tally.events)
    size = situation.aim.size
    if old.desired and old.desired != size:
        why = quota(situation.view) if size < old.desired else ""
        what = noun(job.spec.workers_per_replica)
        events.append(Emit("Normal", Reason.RESIZED, f"Resized from {old.desired} to {size} {what}.{why}"))
    if situation.standing.turns_missed > old.turns_missed:
        timeout = job.spec.scheduling_policy.queue_timeout_seconds
        events.append(Emit("Normal", Reason.QUEUED, f"Found no room in {timeout} s. It is the next job's turn."))
    if state is not State.CREATED and old.state is not state:
        why = quota(situation.view) if situation.over_quota else ""
        kind: Literal["Normal", "Warning"] = "Warning" if state is State.RESTARTING else "Normal"
        events.append(Emit(kind, REASONS[state], f"ElasticJob {job.name} is {state.lower()}.{why}"))
    if state is not State.SUSPENDED and old.state is State.SUSPENDED:
        events.append(Emit("Normal", Reason.RESUMED, f"ElasticJob {job.name} is resumed."))
    return tuple(events)


def _warnings(situation: Assessment, left: Mapping[str, Crew], status: Status) -> tuple[Emit, ...]:
    """Return the events on pods without room, and on pods that can't start, each time that their numbers change.

    They are also what `pulumi up` shows while it waits for the job's size.
    """
    if situation.job.spec.suspend or _told(status) == _told(situation.job.status):
        return ()
    return tuple(Emit("Warning", reason, why) for reason, why in warnings(situation, left).items())


def _told(status: Status) -> str:
    """Return what the job's condition says of its pods."""
    return next((each.message for each in status.conditions if each.type == ConditionType.RUNNING), "")


def _first(*times: datetime | None) -> datetime | None:
    """Return the earliest of these times; None if there is none."""
    return min((time for time in times if time is not None), default=None)


def _expiry(job: ElasticJob, completed: datetime) -> datetime | None:
    """Return when a finished job is to be deleted."""
    seconds = job.spec.ttl_seconds_after_finished
    return None if seconds is None else completed + timedelta(seconds=seconds)


def _dated(status: Status, old: Status, now: datetime) -> Status:
    """Return the old status if nothing changes, else the new one with the time of the change.

    The end of a pod with counted failures is no change: it is forgotten with the next one.
    """
    if status.counted != old.counted and status.counted.items() <= old.counted.items():
        kept = replace(status, counted=old.counted)
    else:
        kept = status
    return old if kept == old else replace(status, last_reconcile_time=now)
