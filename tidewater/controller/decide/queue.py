"""In which order the jobs of a queue start.

    admissions = admit(jobs, now)               # {("namespace", "name"): Admission.HEAD, ...}

A job is *whole* from when its minimum (of every replica type) has room until one of these pods loses it and finds no
other. A job that isn't whole is *short*. The rules:

1. Of the short jobs only one, the head, may have pods; it creates all of its minimum at once and nothing above it.
2. A whole job keeps what runs. While there is a head, none of its pods above the minimum may wait for room.
3. The head is the first short job by priority (the highest first), then by age.
4. A head that has not become whole for `queueTimeoutSeconds` gives up its pods and goes behind all jobs that are short
   at that time, whatever their priority. Jobs that arrive later pass it only with a higher priority.

So two short jobs never hold room that the other one needs for longer than the timeout, and each has its turn.

Everything is derived from the jobs' statuses, which `stand` brings up to date: a controller that has just started
decides the same. A queue's jobs are admitted anew whenever the status of one of them changes, and at the time that
`stand` names.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from tidewater.controller.decide.observed import Admission, JobView, is_finished
from tidewater.controller.decide.replica_groups import Crew
from tidewater.elasticjob import names
from tidewater.elasticjob.model import ElasticJob

ROOMLESS = timedelta(seconds=30)
"""A whole job becomes short when a pod of its minimum has found no room for this long: the pod that it replaces may
still be ending, or a node may be on its way."""

FIRST = datetime.min.replace(tzinfo=UTC)
LAST = datetime.max.replace(tzinfo=UTC)

Key = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Standing:
    """What the queue allows a job now, and what the status must remember of it.

    `admission` is None if the queue has not been asked since the job became short: until then nothing is changed.
    """

    admission: Admission | None
    whole_since: datetime | None = None
    queued_since: datetime | None = None
    turn_since: datetime | None = None
    turns_missed: int = 0
    again: datetime | None = None


def admit(jobs: Iterable[ElasticJob], now: datetime) -> dict[Key, Admission]:
    """Return what the jobs may have, by namespace and name; jobs without a queue are left out: they are FREE."""
    queues = defaultdict[str, list[ElasticJob]](list)
    admissions: dict[Key, Admission] = {}
    for job in jobs:
        if job.spec.scheduling_policy.queue is None:
            continue
        if job.deleting or job.spec.suspend or is_finished(job.status):
            admissions[job.namespace, job.name] = Admission.FREE
        else:
            queues[job.spec.scheduling_policy.queue].append(job)
    for queue in queues.values():
        admissions.update(_admit_queue(queue, now))
    return admissions


def _admit_queue(jobs: list[ElasticJob], now: datetime) -> dict[Key, Admission]:
    short = [job for job in jobs if job.status.whole_since is None]
    if not short:
        return {(job.namespace, job.name): Admission.FREE for job in jobs}
    admissions = {(job.namespace, job.name): Admission.HOLD for job in jobs}
    admissions.update(((job.namespace, job.name), Admission.WAIT) for job in short)
    head = _head(short)
    others = [job for job in short if job is not head]
    if others and _turn_ends(head) <= now:
        admissions[head.namespace, head.name] = Admission.YIELD
        head = _head(others)
    admissions[head.namespace, head.name] = Admission.HEAD
    return admissions


def _head(short: list[ElasticJob]) -> ElasticJob:
    """Return the short job that comes next.

    The first of the fresh jobs (those that have missed no turn) comes before the others unless one of these has waited
    for longer and would be before it by priority and age. In that case the others have their turns in the order in
    which they missed the last, so that each of them comes to the front.
    """
    fresh = [job for job in short if not job.status.turns_missed]
    passed = [job for job in short if job.status.turns_missed]
    if not fresh:
        return min(passed, key=lambda job: (_entered(job), _rank(job)))
    first = min(fresh, key=_rank)
    if all(_entered(first) <= _entered(job) or _rank(first) < _rank(job) for job in passed):
        return first
    return min(passed, key=lambda job: (_entered(job), _rank(job)))


def _rank(job: ElasticJob) -> tuple[int, datetime, str, str]:
    return -job.spec.scheduling_policy.priority, job.created or FIRST, job.namespace, job.name


def _entered(job: ElasticJob) -> datetime:
    """Return when the job came into the queue, or when it missed its last turn."""
    return job.status.queued_since or job.created or FIRST


def _turn_ends(head: ElasticJob) -> datetime:
    if head.status.turn_since is None:
        return LAST
    return head.status.turn_since + timedelta(seconds=head.spec.scheduling_policy.queue_timeout_seconds)


def next_end(jobs: Iterable[ElasticJob], now: datetime) -> datetime:
    """Return when the first of the jobs' turns ends that has not ended yet; LAST if there is none."""
    ends = (_turn_ends(job) for job in jobs if job.status.whole_since is None)
    return min((end for end in ends if end > now), default=LAST)


def need(job: ElasticJob, crew: Crew) -> int:
    """Return how many pods of the type must have room before the job starts."""
    available = job.spec.scheduling_policy.min_available if crew.type == names.WORKER else None
    return min(crew.wanted, max(crew.low, available or 0))


def stand(view: JobView, crews: Mapping[str, Crew], now: datetime) -> Standing:
    """Return the job's standing in its queue, from its admission and its pods; `now` is in whole seconds."""
    job, status = view.job, view.job.status
    if job.spec.scheduling_policy.queue is None or job.spec.suspend:
        return Standing(Admission.FREE)
    roomless = None if status.whole_since is None else _roomless(crews)
    lost = roomless is not None and roomless + ROOMLESS <= now
    if not lost and (status.whole_since or all(crew.placed >= need(job, crew) for crew in crews.values())):
        held = Admission.FREE if view.admission is Admission.FREE else Admission.HOLD
        return Standing(held, status.whole_since or now, again=None if roomless is None else roomless + ROOMLESS)
    since, missed = status.queued_since or now, status.turns_missed
    if view.admission is Admission.HEAD:
        turn = status.turn_since or now
        ends = turn + timedelta(seconds=job.spec.scheduling_policy.queue_timeout_seconds)
        return Standing(Admission.HEAD, None, since, turn, missed, ends if ends > now else None)
    if view.admission is Admission.YIELD and status.turn_since is not None:
        return Standing(Admission.WAIT, None, now, None, missed + 1)
    waits = view.admission in (Admission.WAIT, Admission.YIELD)
    return Standing(Admission.WAIT if waits else None, None, since, None, missed)


def _roomless(crews: Mapping[str, Crew]) -> datetime | None:
    """Return since when the job has less than its minimum for want of room; None if that is not so."""
    times = [
        pod.unschedulable_since
        for crew in crews.values()
        if crew.placed < crew.low
        for pod in crew.live
        if pod.unschedulable_since is not None
    ]
    return min(times, default=None)
