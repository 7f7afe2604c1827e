"""When a job has succeeded or failed, and what is left to do after that.

    outcome(situation)                      # Outcome(succeeded=False, reason=..., why="...") or None
    cleaning(job, crews, ended, now)        # pods to delete, and when to look again

A job has succeeded when its success policy is met, even if other pods still run. By default that is the success of
pod 0. If pod 0 has failed for good, or has left by shrinking, it is that of the lowest index that is left: in elastic
training the others go on without it.

With `AllPods` every pod must have succeeded. One that has failed for good doesn't count, if its type has its minimum
without it.

A job has failed when fewer pods of a type than its minimum can ever run again, when a pod exhausts its memory again and
again, at its back-off limit, and at its deadline. A failed job keeps no pod running, whatever `cleanPodPolicy` says,
and of no finished job a pod starts: both would hold machines, or begin a training that has ended.

A pod that runs when the job ends may itself be about to end: it writes the last lines of its log, or a file. It is
deleted only if it still runs `GRACE_SECONDS` later: its log would go with it, and others would see it as killed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from tidewater.controller.decide.actions import DeletePod
from tidewater.controller.decide.assessment import Assessment
from tidewater.controller.decide.exits import MOST_OUT_OF_MEMORY
from tidewater.controller.decide.observed import ENDED, PodView
from tidewater.controller.decide.pods import delete_all
from tidewater.controller.decide.replica_groups import Crew
from tidewater.elasticjob import names
from tidewater.elasticjob.choices import CleanPodPolicy, PodNames, SuccessPolicy
from tidewater.elasticjob.model import ElasticJob
from tidewater.elasticjob.names import Reason

GRACE_SECONDS = 30
"""For which a pod that runs when its job ends may end by itself: as long as Kubernetes gives one that is deleted."""

BY_FAILURES = (Reason.BACKOFF_LIMIT, Reason.PERMANENT_FAILURE, Reason.TOO_FEW_WORKERS)
"""Reasons of a job that has failed because its pods have: it says how the last one did."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a job ended.

    Attributes:
        succeeded: whether it has.
        reason: in one word.
        why: the end of a sentence that begins with "because"; empty for a success.
        failed: the pod without which it can't go on; None: there is no such one.
    """

    succeeded: bool
    reason: Reason
    why: str = ""
    failed: PodView | None = None


@dataclass(frozen=True, slots=True)
class Ended:
    """A job that has ended: when, and whether it has failed."""

    time: datetime
    failed: bool


@dataclass(frozen=True, slots=True)
class Cleaning:
    """The deletions of pods that a finished job does not keep, and when others may be due; None: no other is left."""

    deletes: tuple[DeletePod, ...]
    again: datetime | None


def outcome(situation: Assessment) -> Outcome | None:
    """Return how the job has ended; None if it goes on."""
    if succeeded(situation):
        return Outcome(True, Reason.SUCCEEDED)
    if situation.job.spec.suspend:
        return None
    if (memory := _out_of_memory(situation)) is not None:
        return memory
    spec, restarts = situation.job.spec, situation.tally.restarts
    if restarts and restarts >= spec.backoff_limit:
        why = f"{restarts} failures were retried and backoffLimit is {spec.backoff_limit}"
        return Outcome(False, Reason.BACKOFF_LIMIT, why)
    end = deadline(situation)
    if end is not None and end <= situation.now:
        why = f"it was active for activeDeadlineSeconds ({spec.active_deadline_seconds})"
        return Outcome(False, Reason.DEADLINE, why)
    if situation.anew:
        return None
    return next((short for crew in situation.kept.values() if (short := _too_few(situation, crew))), None)


def succeeded(situation: Assessment) -> bool:
    """Return whether the job's success policy is met, by all pods or by those that are kept."""
    return _is_met(situation, situation.crews) or (
        situation.kept != situation.crews and _is_met(situation, situation.kept)
    )


def _is_met(situation: Assessment, crews: Mapping[str, Crew]) -> bool:
    policy, worker = situation.job.spec.success_policy, crews[names.WORKER]
    if policy is SuccessPolicy.ANY_WORKER:
        return bool(worker.done)
    if policy is SuccessPolicy.ALL_WORKERS:
        rest = worker.live or worker.ended or _awaited(situation, worker)
        return bool(worker.done) and not rest
    if policy is SuccessPolicy.ALL_PODS:
        return all(_all_are_done(situation, crew) for crew in crews.values())
    master = crews.get(names.MASTER)
    return _lead_is_done(situation, master if master is not None and master.wanted else worker)


def deadline(situation: Assessment) -> datetime | None:
    """Return when the job will have been active for too long; None if it may be active for ever, or is not active."""
    start, seconds = situation.start_time, situation.job.spec.active_deadline_seconds
    return None if start is None or not seconds else start + timedelta(seconds=seconds)


def cleaning(job: ElasticJob, crews: Iterable[Crew], ended: Ended, now: datetime) -> Cleaning:
    """Return what is to be done about the pods that a finished job does not keep."""
    policy, why = job.spec.clean_pod_policy, f"the job has {'failed' if ended.failed else 'succeeded'}"
    rest: list[PodView] = []
    running: list[PodView] = []
    for crew in crews:
        held = [*crew.staying(), *crew.ending, *crew.replaced]
        for pod in (each for every in held for each in every.parts if not each.terminating):
            live = pod.phase not in ENDED
            if pod.lingers or (live and pod.phase != "Pending"):
                running.append(pod)
            elif policy is CleanPodPolicy.ALL or live:
                rest.append(pod)
    if policy is CleanPodPolicy.NONE and not ended.failed:
        running = []
    due = ended.time + timedelta(seconds=GRACE_SECONDS)
    if running and now < due:
        return Cleaning(delete_all(rest, why), due)
    late = delete_all(running, f"{why}, and it still ran {GRACE_SECONDS} s later")
    return Cleaning(delete_all(rest, why) + late, None)


def _lead_is_done(situation: Assessment, crew: Crew) -> bool:
    if not crew.done:
        return False
    first = min(pod.index for pod in crew.done)
    if any(pod.index < first for pod in crew.live):
        return False
    if crew.naming is PodNames.SUCCESSIVE:
        return True  # pods that are still to be created, or to replace others, have higher indices
    if any(pod.index < first for pod, _ in crew.ended):
        return False
    if not _awaited(situation, crew):
        return True
    held = {pod.index for pod in crew.staying()}
    return all(index in held for index in range(first))


def _all_are_done(situation: Assessment, crew: Crew) -> bool:
    """Return whether all pods of the type have exited with 0, or failed for good if its minimum is left."""
    ended = len(crew.done) + len(crew.permanent)
    return len(crew.done) >= crew.low and ended == crew.size == situation.size(crew)


def _awaited(situation: Assessment, crew: Crew) -> bool:
    """Return whether pods of the type are still to be created, now or when the queue allows it."""
    return crew.size < situation.size(crew)


def _out_of_memory(situation: Assessment) -> Outcome | None:
    """Return the failure of a job with pods that repeatedly exceed their memory limit."""
    row = situation.tally.out_of_memory
    name = max(row, key=lambda name: row[name], default="")
    if not name or row[name] < MOST_OUT_OF_MEMORY:
        return None
    types = situation.job.spec.replica_specs
    heirs = [type for type, replica in types.items() if replica.pod_names is PodNames.SUCCESSIVE]
    inherits = any(name.startswith(names.pod_name(situation.job.name, type, 0)[:-1]) for type in heirs)
    pods = f"{name} and the pods that it replaced" if inherits else name
    why = f"pod {pods} used more memory than {'their' if inherits else 'its'} limit {row[name]} times in a row"
    return Outcome(False, Reason.OUT_OF_MEMORY, f"{why}; raise the limit in its template, or let its program use less")


def _too_few(situation: Assessment, crew: Crew) -> Outcome | None:
    """Return the failure of a job if fewer pods than the minimum can ever run again."""
    size, lost, worker = situation.size(crew), len(crew.permanent), crew.type == names.WORKER
    if not lost or size - lost >= crew.low:
        return None
    pod = crew.permanent[0]
    if crew.low == size == 1:
        failed = None if pod.gone else pod
        return Outcome(False, Reason.PERMANENT_FAILURE, f"pod {pod.name} failed for good", failed)
    why = f"{lost} of {size} {crew.noun} failed for good, among them {crew.permanent[-1].name}: at most"
    return Outcome(
        False,
        Reason.TOO_FEW_WORKERS if worker else Reason.PERMANENT_FAILURE,
        f"{why} {size - lost} can run and at least {crew.low} are needed",
    )
