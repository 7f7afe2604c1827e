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

With fixed nodes, where no node comes for a pod that waits, it is known in advance whether a job fits (`Site`):

5. The head has no pods until all of its minimum has room at once. Its turn begins then.
6. While the head waits for room, short jobs behind it that fit go *ahead* of their turn, in order, with their minimum.
   As soon as the head would fit without them, as many of them as needed give their pods up, the last ones first, and
   keep their places. So they delay it by their grace period at most. This holds for any job that is before them.
7. A job that wouldn't fit on empty nodes is behind all others that would.

A job that can't be computed (`demand`), and one that holds pods already, is the head as under the rules above.

Everything is derived from the jobs' statuses, which `stand` brings up to date: a controller that has just started
decides the same. A queue's jobs are admitted anew whenever the status of one of them changes, and at the time that
`stand` names.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import islice

from tidewater.controller.decide.observed import Admission, JobView, is_finished, over_quota
from tidewater.controller.decide.replica_groups import Crew, limits
from tidewater.controller.room.packing import Demand, Free, Room, part
from tidewater.elasticjob import names
from tidewater.elasticjob.model import ElasticJob

ROOMLESS = timedelta(seconds=30)
"""A whole job becomes short when a pod of its minimum has found no room for this long: the pod that it replaces may
still be ending, or a node may be on its way."""

DEPTH = 100
"""So many jobs that wait are looked at for one that fits, each time that the queue is asked."""

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


@dataclass(frozen=True, slots=True)
class Site:
    """Fixed nodes.

    Attributes:
        room: what is on them.
        demands: the jobs' minimums, by namespace and name; None: it can't be said where they fit.
        firm: jobs of other queues that may have their minimum.
    """

    room: Room
    demands: Mapping[Key, Demand | None]
    firm: tuple[ElasticJob, ...] = ()

    def rest(self, job: ElasticJob) -> Demand:
        """Return the pods of the job's minimum that have no node yet; none if it can't be said where they fit."""
        return self.room.rest(self.demands.get(_key(job)) or (), job.uid)

    def demand(self, job: ElasticJob) -> Demand | None:
        """Return what the job must have room for before it gets pods; None if it begins without an answer."""
        return None if begun(job) else self.demands.get(_key(job))

    def misfits(self, jobs: Iterable[ElasticJob]) -> set[Key]:
        """Return those of the jobs that wouldn't fit on empty nodes."""
        wanted = {_key(job): self.demand(job) for job in jobs if self.room.known}
        return {key for key, demand in wanted.items() if demand is not None and self.room.never(demand)}


def admit(jobs: Iterable[ElasticJob], now: datetime, site: Site | None = None) -> dict[Key, Admission]:
    """Return what the jobs may have, by namespace and name; jobs without a queue are left out: they are FREE."""
    queues = defaultdict[str, list[ElasticJob]](list)
    admissions: dict[Key, Admission] = {}
    for job in jobs:
        if job.spec.scheduling_policy.queue is None:
            continue
        if not contends(job):
            admissions[_key(job)] = Admission.FREE
        else:
            queues[job.spec.scheduling_policy.queue].append(job)
    for queue in queues.values():
        admissions.update(_admit_queue(queue, now, site))
    return admissions


def contends(job: ElasticJob) -> bool:
    """Return whether the job has pods, or is to get some."""
    return not (job.deleting or job.spec.suspend or is_finished(job.status))


def _admit_queue(jobs: list[ElasticJob], now: datetime, site: Site | None) -> dict[Key, Admission]:
    short = [job for job in jobs if job.status.whole_since is None]
    if not short:
        return {_key(job): Admission.FREE for job in jobs}
    admissions = {_key(job): Admission.HOLD for job in jobs}
    admissions.update((_key(job), Admission.WAIT) for job in short)
    misfits = set[Key]() if site is None else site.misfits(short)
    admissions.update(dict.fromkeys(misfits, Admission.MISFIT))
    fitting = [job for job in short if _key(job) not in misfits]
    head, *others = _first(fitting or short)
    if others and _turn_ends(head) <= now:
        admissions[_key(head)] = Admission.YIELD
        head, *others = _first(others)
    admissions[_key(head)] = Admission.HEAD
    if site is not None:
        whole = [job for job in jobs if job.status.whole_since is not None]
        contest = _Contest.of(head, others, whole, site)
        # If none would fit on empty nodes, some of these may be away for a while only.
        ahead = {_key(job): Admission.BACKFILL for job in contest.ahead}
        admissions.update(contest.admissions(now) if fitting else ahead)
    return admissions


@dataclass(frozen=True, slots=True)
class _Contest:
    """A queue on fixed nodes.

    Attributes:
        head: the first short job.
        others: the other short jobs.
        whole: the whole jobs.
        ahead: those of both that went ahead of the head, in order; of short ones, those that can be computed.
        site: the nodes.
    """

    head: ElasticJob
    others: list[ElasticJob]
    whole: list[ElasticJob]
    ahead: list[ElasticJob]
    site: Site

    @classmethod
    def of(cls, head: ElasticJob, others: list[ElasticJob], whole: list[ElasticJob], site: Site) -> _Contest:
        """Return the queue with the jobs that went ahead of its head."""
        early = [job for job in whole if job.status.queued_since is not None and _head([head, job]) is head]
        early += [job for job in others if begun(job) and site.demands.get(_key(job)) is not None]
        return cls(head, others, whole, list(_in_order(early)), site)

    def admissions(self, now: datetime) -> dict[Key, Admission]:
        """Return what the head, and those behind it, may have in view of the room that there is."""
        head, room = self.head, self.site.room
        rest = self.site.demand(head) or self.site.rest(head)
        begins = Admission.HEAD if begun(head) else Admission.ROOM
        found = {_key(job): Admission.BACKFILL for job in self.ahead}
        found.update((_key(job), Admission.YIELD) for job in self.ahead if _turn_ends(job) <= now)
        if not room.known:
            return {**found, _key(head): Admission.HEAD if begun(head) else Admission.WAIT}
        above = room.above(rest)
        if self._free(above=above, reserve=self.ahead).place(rest):
            return {**found, _key(head): Admission.HEAD}
        given = self._given_back(rest, above)
        if given is not None:
            found.update((_key(job), Admission.GIVE_BACK) for job in given)
        elif begins is Admission.ROOM:
            found.update((_key(job), Admission.BACKFILL) for job in self._fitting())
        return {**found, _key(head): begins}

    def _fitting(self) -> Iterator[ElasticJob]:
        """Yield the jobs that go ahead now."""
        free, refused = self._free(reserve=self.ahead), set[Demand]()
        demands = {_key(job): found for job in self.others if (found := self.site.demand(job)) is not None}
        waiting = (job for job in self.others if _key(job) in demands)
        for job in islice(_in_order(waiting), DEPTH):
            demand = demands[_key(job)]
            if demand not in refused and free.place(demand):
                yield job
            else:
                refused.add(demand)

    def _given_back(self, rest: Demand, above: int | None) -> list[ElasticJob] | None:
        """Return the jobs ahead without which the head would fit; None if it would not without all of them.

        Pods that are ending, and those of jobs that may have none, are as good as gone.
        """
        given = {job.uid for job in self.ahead}
        leave = {job.uid for job in self.others} - given

        def fits(gone: set[str]) -> bool:
            reserve = [job for job in self.ahead if job.uid not in gone]
            return self._free(gone=gone | leave, ending=False, above=above, reserve=reserve).place(rest)

        if not fits(given):
            return None
        for job in self.ahead:
            less = given - {job.uid}
            given = less if fits(less) else given
        return [job for job in self.ahead if job.uid in given]

    def _free(
        self,
        *,
        gone: Collection[str] = (),
        ending: bool = True,
        above: int | None = None,
        reserve: Iterable[ElasticJob] = (),
    ) -> Free:
        """Return the room that whole jobs, and those in `reserve`, leave once they have their minimum.

        `gone` are the uids of jobs that count as if they had no pods.
        """
        free = self.site.room.free(gone, ending=ending, above=above)
        for job in (*self.site.firm, *self.whole, *reserve):
            if job.uid not in gone:
                free.reserve(self.site.rest(job))
        return free


def _key(job: ElasticJob) -> Key:
    return job.namespace, job.name


def begun(job: ElasticJob) -> bool:
    """Return whether a short job has its turn, or has pods."""
    counts = job.status.replica_statuses.values()
    return job.status.turn_since is not None or any(each.active or each.pending for each in counts)


def _head(short: Iterable[ElasticJob]) -> ElasticJob:
    return next(_in_order(short))


def _first(short: list[ElasticJob]) -> list[ElasticJob]:
    """Return the jobs with the head first."""
    head = _head(short)
    return [head, *(job for job in short if job is not head)]


def _in_order(short: Iterable[ElasticJob]) -> Iterator[ElasticJob]:
    """Yield the short jobs in the order in which they are the head.

    The first of the fresh jobs (those that have missed no turn) comes before the others unless one of these has waited
    for longer and would be before it by priority and age. In that case the others have their turns in the order in
    which they missed the last, so that each of them comes to the front.
    """
    ranked = sorted(short, key=_rank)
    fresh = deque(job for job in ranked if not job.status.turns_missed)
    passed = deque(sorted((job for job in ranked if job.status.turns_missed), key=_entered))
    while fresh or passed:
        first = fresh[0] if fresh else None
        if first and all(_entered(first) <= _entered(job) or _rank(first) < _rank(job) for job in passed):
            yield fresh.popleft()
        else:
            yield passed.popleft()


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


def need(job: ElasticJob, type: str) -> int:
    """Return how many pods of the type must have room before the job starts; with workersPerReplica, replicas."""
    low, _, wanted = limits(job, type)
    available = job.spec.scheduling_policy.min_available if type == names.WORKER else None
    return min(wanted, max(low, available or 0))


def demand(job: ElasticJob) -> Demand | None:
    """Return the pods of the job's minimum that have not done their work; None if it can't be said where they fit."""
    policy, parts = job.spec.scheduling_policy, []
    for type, replica in job.spec.replica_specs.items():
        least, status = need(job, type), job.status.replica_statuses.get(type)
        classes = [policy.core_priority_class_name]
        if least > limits(job, type)[0]:
            classes.append(policy.surge_priority_class_name)
        left = max(0, least - (0 if status is None else status.succeeded))
        parts.append(part(type, left * job.spec.pods_each(type), replica.template, classes))
    if job.spec.topology_required:
        return None  # where a pod fits depends on where the others of its replica are
    found = [each for each in parts if each is not None]
    return tuple(each for each in found if each.count) if len(found) == len(parts) else None


def stand(view: JobView, crews: Mapping[str, Crew], now: datetime) -> Standing:
    """Return the job's standing, from its admission, its share and its pods; `now` is in whole seconds."""
    job, status = view.job, view.job.status
    if job.spec.suspend:
        return Standing(Admission.FREE)
    if job.spec.scheduling_policy.queue is None:
        return Standing(Admission.WAIT if over_quota(view) else Admission.FREE)
    since, missed = status.queued_since or now, status.turns_missed
    if over_quota(view) or view.admission is Admission.GIVE_BACK:
        return Standing(Admission.WAIT, None, since, None, missed)
    roomless = None if status.whole_since is None else _roomless(crews)
    lost = roomless is not None and roomless + ROOMLESS <= now
    if not lost and (status.whole_since or all(crew.placed >= need(job, crew.type) for crew in crews.values())):
        held = Admission.FREE if view.admission is Admission.FREE else Admission.HOLD
        again = None if roomless is None else roomless + ROOMLESS
        if view.admission is Admission.BACKFILL:
            return Standing(held, status.whole_since or now, since, None, missed, again)
        return Standing(held, status.whole_since or now, again=again)
    if view.admission in (Admission.HEAD, Admission.BACKFILL):
        turn = status.turn_since or now
        ends = turn + timedelta(seconds=job.spec.scheduling_policy.queue_timeout_seconds)
        return Standing(Admission.HEAD, None, since, turn, missed, ends if ends > now else None)
    if view.admission is Admission.YIELD and status.turn_since is not None:
        return Standing(Admission.WAIT, None, now, None, missed + 1)
    waits = view.admission in (Admission.WAIT, Admission.YIELD, Admission.ROOM, Admission.MISFIT)
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
