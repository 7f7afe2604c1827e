"""States and conditions of a job, with the sentences that `kubectl describe` shows.

    state = state_of(situation, counts)
    conditions = conditions_of(situation.job, state, sentence(...), now)

Of Running, Restarting, Suspended, Succeeded and Failed at most one is true. Types, reasons and the sentence
"ElasticJob NAME is running." are the old controller's. DeviceFailing names nodes. Of Ready, Reconciling and Stalled
exactly one is true: tools that know no ElasticJob read them. A condition changes only if something in it does, so that
a status that is made again equals the one before.
https://github.com/kubernetes-sigs/cli-utils/blob/master/pkg/kstatus/README.md
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta

from tidewater.controller.decide.assessment import Assessment
from tidewater.controller.decide.exits import failing, in_one_line
from tidewater.controller.decide.observed import STARTING, Admission, JobView, PodView
from tidewater.controller.decide.queue import demand
from tidewater.controller.decide.replica_groups import Crew
from tidewater.controller.decide.replicas import noun
from tidewater.elasticjob import names
from tidewater.elasticjob.choices import State
from tidewater.elasticjob.model import ElasticJob
from tidewater.elasticjob.names import NODE_STARTING, ConditionType, Reason
from tidewater.elasticjob.status import Condition, NodeStatus, ReplicaStatus, Status

PATIENCE = timedelta(seconds=5)
"""So long a pod without room counts as one that starts, unless Karpenter says something of it. Karpenter collects pods
for a second and more before it does (its BATCH_IDLE_DURATION), and a warning on each resize would help no one."""

SLOW_START = timedelta(seconds=30)
"""A kubelet may start a pod for so long before the status says what it waits for. Mounts and pulls mostly take less."""

LONGEST_QUOTE = 1000
"""Characters of what the API server or Karpenter says that go into a condition."""

MOST_NODES = 20
"""Nodes that a condition names. A program's own error can concern a thousand nodes, and the API server refuses a status
with a sentence of that length."""

TYPES = {
    State.RUNNING: ConditionType.RUNNING,
    State.RESTARTING: ConditionType.RESTARTING,
    State.SUSPENDED: ConditionType.SUSPENDED,
    State.SUCCEEDED: ConditionType.SUCCEEDED,
    State.FAILED: ConditionType.FAILED,
}
HEALTH = {
    State.CREATED: ConditionType.RECONCILING,
    State.QUEUED: ConditionType.RECONCILING,
    State.RUNNING: ConditionType.READY,
    State.RESTARTING: ConditionType.RECONCILING,
    State.SUSPENDED: ConditionType.READY,
    State.SUCCEEDED: ConditionType.READY,
    State.FAILED: ConditionType.STALLED,
}
"""Which of the conditions for tools is true: the job is as its spec asks, is on its way there, or never will be."""

REASONS = {
    State.CREATED: Reason.CREATED,
    State.QUEUED: Reason.QUEUED,
    State.RUNNING: Reason.RUNNING,
    State.RESTARTING: Reason.RESTARTING,
    State.SUSPENDED: Reason.SUSPENDED,
    State.SUCCEEDED: Reason.SUCCEEDED,
    State.FAILED: Reason.FAILED,
}


def state_of(situation: Assessment, counts: Mapping[str, ReplicaStatus]) -> State:
    """Return the state of a job that has not finished.

    A job runs if it has at least its minimum of each type, and at least one of these pods still runs. If it ran and no
    longer does, it restarts.
    """
    if situation.job.spec.suspend:
        return State.SUSPENDED
    queued = situation.job.spec.scheduling_policy.queue is not None or situation.over_quota
    if queued and situation.standing.whole_since is None:
        return State.QUEUED
    enough = all(counts[type].active + counts[type].succeeded >= crew.low for type, crew in situation.crews.items())
    if enough and any(count.active for count in counts.values()):
        return State.RUNNING
    ran = situation.job.status.state in (State.RUNNING, State.RESTARTING)
    return State.RESTARTING if ran else State.CREATED


def sentence(situation: Assessment, state: State, crews: Mapping[str, Crew]) -> str:
    """Return what a person should know of a job that has not finished.

    Args:
        situation: the job's.
        state: as `state_of` returns it.
        crews: the pods that are left after the decision's deletions.
    """
    job = situation.job.name
    if state is State.SUSPENDED:
        return f"ElasticJob {job} is suspended."
    if state is State.QUEUED and situation.over_quota:
        return f"ElasticJob {job}{quota(situation.view, ' ')}"
    short = f"{quota(situation.view)}{shortfall(situation, crews)}"
    if state is State.RUNNING:
        early = " It runs ahead of its turn in its queue." if situation.standing.queued_since else ""
        return f"ElasticJob {job} is running.{early}{short}{_unready(situation, crews)}{situation.view.silence}"
    if state is State.RESTARTING and (time := situation.restart.time) is not None:
        return f"ElasticJob {job} is restarting: all pods are made anew at {time:%H:%M:%S} UTC."
    if state is State.RESTARTING:
        return f"ElasticJob {job} is restarting.{short}"
    if state is State.QUEUED:
        queue, missed = situation.job.spec.scheduling_policy.queue, situation.standing.turns_missed
        turns = f" It found no room in {missed} turns." if missed else ""
        turns += f" {room}" if (room := no_room(situation)) else ""
        if situation.view.admission is Admission.BACKFILL:
            return f"ElasticJob {job} waits in queue {queue}, and starts ahead of its turn.{turns}{short}"
        if situation.standing.turn_since is None:
            return f"ElasticJob {job} waits in queue {queue}.{turns}"
        return f"ElasticJob {job} is the first of queue {queue} and waits for room for its minimum.{turns}{short}"
    return f"ElasticJob {job} is starting.{short}"


def quota(view: JobView, subject: str = " It ") -> str:
    """Return a sentence on what the quotas of teams withhold from the job, after its subject; empty if nothing."""
    return f"{subject}{view.share.why}." if view.share is not None and view.share.why else ""


def no_room(situation: Assessment) -> str:
    """Return a sentence on what a job that waits in its queue must have room for; empty if it only waits its turn."""
    admission = situation.view.admission
    if not situation.waits or admission not in (Admission.ROOM, Admission.MISFIT):
        return ""
    # Of the whole minimum, so that the sentence doesn't change with each pod that has done its work.
    pods = ", ".join(map(str, demand(replace(situation.job, status=Status())) or ()))
    if admission is Admission.ROOM:
        return f"It starts when all of its minimum has room at once: {pods}."
    return f"Its minimum has no room even if the nodes are empty, so other jobs go first: {pods}."


def shortfall(situation: Assessment, crews: Mapping[str, Crew]) -> str:
    """Return sentences on what keeps the job from the number of pods aimed for; empty if it has them."""
    parts = []
    for crew in crews.values():
        if short := _short(crew, situation):
            slow = {f" {pod.stuck_why}" for pod in _stuck(crew, situation.now) if pod.stuck in STARTING}
            failed = f" {in_one_line(situation.tally.last_failure)}" if crew.ended or crew.permanent else ""
            parts += [short, failed.rstrip(), *_quotes(crew, situation.now), *sorted(slow)[:1]]
    if situation.view.refusal:
        parts.append(f" The API server refuses a pod: {situation.view.refusal[:LONGEST_QUOTE]}")
    if situation.view.service_refusal:
        parts.append(f" The API server refuses the service: {situation.view.service_refusal[:LONGEST_QUOTE]}")
    return "".join(parts)


def waiting(situation: Assessment, crews: Mapping[str, Crew]) -> str:
    """Return in one word what the job waits for, as `kubectl get` shows it; empty if all pods run or only start.

    Args:
        situation: the job's.
        crews: the pods that are left after the decision's deletions.
    """
    if situation.job.spec.suspend:
        return ""
    if situation.view.refusal:
        return Reason.FAILED_CREATE_POD.value
    if situation.over_quota:
        return Reason.QUOTA.value
    if no_room(situation):
        return Reason.UNSCHEDULABLE.value
    short = [crew for crew in crews.values() if len(crew.active) + len(crew.done) < situation.size(crew)]
    words = [pod.stuck for crew in short for pod in _stuck(crew, situation.now)]
    roomless = [pod for crew in short for pod in _roomless(crew, situation.now)]
    words += [pod.unschedulable_reason or Reason.UNSCHEDULABLE.value for pod in roomless]
    # That a node is on its way is the better news, and needs no action.
    limited = Reason.QUOTA.value if situation.aim.limited else ""
    silent = Reason.NO_STEP.value if situation.view.silence else limited
    return min(words, key=lambda word: word == NODE_STARTING, default=silent)


def warnings(situation: Assessment, crews: Mapping[str, Crew]) -> dict[Reason, str]:
    """Return sentences on a job that makes no step, and on the pods that the spec asks for and that find no room, or
    that a kubelet can't start.

    Workers that `autoscale` adds beyond that are not among them: it is for them to try. Nor are those for which a node
    is on its way.
    """
    found: defaultdict[Reason, list[str]] = defaultdict(list)
    if silence := situation.view.silence.strip():
        found[Reason.NO_STEP].append(silence)
    if room := no_room(situation):
        found[Reason.UNSCHEDULABLE].append(room)
    for crew in crews.values():
        if len(crew.active) + len(crew.done) >= min(crew.wanted, situation.size(crew)):
            continue
        short = _short(crew, situation).strip()
        roomless = [pod for pod in _roomless(crew, situation.now) if pod.unschedulable_reason != NODE_STARTING]
        if roomless:
            quotes = "".join(_quotes(crew, situation.now)).strip() or roomless[0].unschedulable_why
            found[Reason.UNSCHEDULABLE].append(f"{short} {quotes}".strip())
        if stuck := [pod for pod in _stuck(crew, situation.now) if pod.stuck not in STARTING]:
            found[Reason.PODS_NOT_STARTING].append(f"{short} {stuck[0].stuck_why}".strip())
    return {reason: " ".join(parts) for reason, parts in found.items()}


def next_told(crews: Mapping[str, Crew], now: datetime) -> datetime | None:
    """Return when another pod will no longer count as one that starts; None if there is no such time."""
    times = [_told_at(pod) for crew in crews.values() for pod in crew.unplaced]
    times += [_slow_at(pod) for crew in crews.values() for pod in crew.live if pod.stuck and pod.stuck in STARTING]
    return min((time for time in times if time is not None and time > now), default=None)


def _told_at(pod: PodView) -> datetime | None:
    if pod.unschedulable_since is None or pod.unschedulable_reason:
        return pod.unschedulable_since
    return pod.unschedulable_since + PATIENCE


def _roomless(crew: Crew, now: datetime) -> list[PodView]:
    told = [pod for pod in crew.unplaced if (time := _told_at(pod)) is not None and time <= now]
    return sorted(told, key=lambda pod: pod.index)


def _slow_at(pod: PodView) -> datetime:
    return (pod.started or pod.created) + SLOW_START


def _stuck(crew: Crew, now: datetime) -> list[PodView]:
    return [pod for pod in crew.live if pod.stuck and (pod.stuck not in STARTING or _slow_at(pod) <= now)]


def _short(crew: Crew, situation: Assessment) -> str:
    size, active, done = situation.size(crew), len(crew.active), len(crew.done)
    if active + done >= size:
        return ""
    roomless = Counter(_lacks(pod) for pod in _roomless(crew, situation.now))
    numbers = {
        **roomless,
        **Counter(_starts(pod) for pod in _stuck(crew, situation.now)),
        "failed for good": len(crew.permanent),
        "failed and will be replaced": len(crew.ended),
    }
    causes = [f"{number} {cause}" for cause, number in numbers.items() if number]
    starting = size - active - done - sum(numbers.values())
    if starting > 0:
        causes.append(f"{starting} starting")
    pods = noun(crew.each) if crew.type == names.WORKER else crew.noun
    return f" {active} of {size} {pods} run: {', '.join(causes)}."


def _unready(situation: Assessment, crews: Mapping[str, Crew]) -> str:
    """Return a sentence on workers that run and are not ready, until the job has had the number that is wanted."""
    worker, wanted = crews[names.WORKER], situation.job.spec.worker.replicas
    late = len(worker.active) + len(worker.done) - worker.serving
    if not late or situation.aim.settled == wanted:
        return ""
    what = f"{noun(worker.each)} run and {'are' if late > 1 else 'is'}"
    return f" {late} of {situation.size(worker)} {what} not ready yet."


def _starts(pod: PodView) -> str:
    """Return how a pod that has not started stands."""
    return f"still starting ({pod.stuck})" if pod.stuck in STARTING else f"can't start ({pod.stuck})"


def _lacks(pod: PodView) -> str:
    """Return what a pod lacks that no node has room for."""
    if pod.unschedulable_reason == NODE_STARTING:
        return "waiting for a new node"
    return f"found no room ({pod.unschedulable_reason})" if pod.unschedulable_reason else "found no room"


def _quotes(crew: Crew, now: datetime) -> list[str]:
    """Return what Karpenter says of the pods for which it brings no node, once for each reason.

    The scheduler's words are not quoted here: they change with every pod in the cluster, and the status with them.
    """
    why = {pod.unschedulable_reason: pod.unschedulable_why for pod in reversed(_roomless(crew, now))}
    told = [(reason, why[reason]) for reason in sorted(why) if reason not in ("", NODE_STARTING)]
    return [f" Karpenter: {text[:LONGEST_QUOTE].rstrip()}" + ("" if text.endswith(".") else ".") for _, text in told]


def conditions_of(job: ElasticJob, state: State, message: str, now: datetime) -> tuple[Condition, ...]:
    """Return the job's conditions.

    Created, Running and Ready are always there, the others from when they are true for the first time.
    """
    old = {condition.type: condition for condition in job.status.conditions}
    reason = REASONS[state]
    made = [_updated(old.get(ConditionType.CREATED), ConditionType.CREATED, True, _created(job), job.generation, now)]
    made += _health(job, state, message, now)  # before Running, which the documented `kubectl describe` ends with
    for of, type in TYPES.items():
        holds = of is state
        if holds or type in old or of is State.RUNNING:
            is_said = holds or of is State.RUNNING
            why = (reason, message if is_said else f"The state of ElasticJob {job.name} is {state}.")
            if type == ConditionType.SUSPENDED and not holds:
                why = (Reason.RESUMED, f"ElasticJob {job.name} is resumed.")
            made.append(_updated(old.get(type), type, holds, why, job.generation, now))
    known = {condition.type for condition in made}
    return (*made, *(condition for condition in job.status.conditions if condition.type not in known))


def with_devices(
    conditions: tuple[Condition, ...], job: ElasticJob, nodes: Mapping[str, NodeStatus], now: datetime
) -> tuple[Condition, ...]:
    """Return the conditions with DeviceFailing, from when it is true for the first time."""
    names_of = failing(nodes)
    old = next((each for each in conditions if each.type == ConditionType.DEVICE_FAILING), None)
    if not names_of and old is None:
        return conditions
    why = (Reason.NO_DEVICE_FAILING, "No node is known on which devices fail again and again.")
    if names_of:
        worst = sorted(names_of, key=lambda name: -nodes[name].device_failures)[:MOST_NODES]
        more = f", and on {len(names_of) - len(worst)} other nodes" if len(names_of) > len(worst) else ""
        found = ", ".join(f"{nodes[name].device_failures} on node {name}" for name in worst) + more
        tainted = [name for name in names_of if nodes[name].tainted]
        others = f" and {len(tainted) - MOST_NODES} others" if len(tainted) > MOST_NODES else ""
        away = f" New pods are kept away from {', '.join(tainted[:MOST_NODES])}{others} by a taint." if tainted else ""
        why = (
            Reason.DEVICE_FAILING,
            f"Workers have ended by an error of a device: {found}. Replace the node, or its device. If workers fail in"
            f" this way on most nodes, look at the program: an assertion that fails in a kernel does the same.{away}",
        )
    made = _updated(old, ConditionType.DEVICE_FAILING, bool(names_of), why, job.generation, now)
    return (*(each for each in conditions if each is not old), made)


def of_finished(job: ElasticJob, state: State, now: datetime) -> tuple[Condition, ...]:
    """Return the conditions of a job that finished earlier: its own, with those that an older controller didn't set."""
    message = next((each.message for each in job.status.conditions if each.type == TYPES[state]), "")
    made = {each.type: each for each in _health(job, state, message, now)}
    kept = {each.type: each for each in job.status.conditions}
    return tuple({**kept, **made}.values())


def _health(job: ElasticJob, state: State, message: str, now: datetime) -> list[Condition]:
    """Return the conditions for tools that know no ElasticJob."""
    old = {condition.type: condition for condition in job.status.conditions}
    made = []
    for type in (ConditionType.READY, ConditionType.RECONCILING, ConditionType.STALLED):
        holds = type is HEALTH[state]
        if holds or type in old or type is ConditionType.READY:
            is_said = holds and type is not ConditionType.READY  # Running has the sentence that says how it runs
            why = message if is_said else f"The state of ElasticJob {job.name} is {state}."
            made.append(_updated(old.get(type), type, holds, (REASONS[state], why), job.generation, now))
    return made


def _created(job: ElasticJob) -> tuple[Reason, str]:
    return Reason.CREATED, f"ElasticJob {job.name} is created."


def _updated(
    old: Condition | None, type: str, holds: bool, why: tuple[str, str], generation: int, now: datetime
) -> Condition:
    status = "True" if holds else "False"
    if old is not None and (old.status, old.reason, old.message, old.observed_generation) == (status, *why, generation):
        return old
    turned = None if old is None or old.status != status else old.last_transition_time
    return Condition(
        type=type,
        status=status,
        reason=why[0],
        message=why[1],
        observed_generation=generation,
        last_update_time=now,
        last_transition_time=turned or now,
    )
