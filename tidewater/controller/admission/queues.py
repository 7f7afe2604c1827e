"""The queues of jobs: which job may have which pods, and which jobs a change in the queue concerns.

    queues = Queues(due=work.add_after, rooms=None)
    queues.put(key, job)                       # whenever a job appears or changes; None: it is gone
    queues.admission(key, now)                 # Admission.WAIT

The rules are in `decide.queue`, which looks at all jobs of a queue. This module remembers the answers, since one change
often concerns one job and not the thousand others of its queue.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from tidewater.controller.cluster.mirror import Key
from tidewater.controller.decide.observed import Admission
from tidewater.controller.decide.queue import LAST, Site, admit, contends, demand, next_end
from tidewater.controller.room.packing import Demand
from tidewater.controller.room.watch import RoomWatch
from tidewater.elasticjob.model import ElasticJob

SETTLE_SECONDS = 0.1
"""How long to wait for further changes of a queue before its jobs are looked at again."""

FRESH = timedelta(seconds=1)
"""How long an answer holds if nothing changes: times in the future are in whole seconds."""

_FIRM = (Admission.FREE, Admission.HOLD, Admission.HEAD, Admission.BACKFILL)


@dataclass
class _Queue:
    """One queue: its jobs without their templates, and the last answers.

    Attributes:
        jobs: By key.
        demands: With fixed nodes: their minimums.
        admissions: Who was admitted.
        answered: When; None if the jobs have changed since.
        ends: When the first turn ends after that.
    """

    jobs: dict[Key, ElasticJob] = field(default_factory=dict)
    demands: dict[tuple[str, str], Demand | None] = field(default_factory=dict)
    admissions: dict[Key, Admission] = field(default_factory=dict)
    answered: datetime | None = None
    ends: datetime = LAST

    def holds(self, now: datetime) -> bool:
        """Return whether the answers still hold.

        At the end of a turn they don't, however fresh they are: its job looks at them only once then.
        """
        return self.answered is not None and timedelta() <= now - self.answered < FRESH and now < self.ends

    def firm(self) -> Iterator[ElasticJob]:
        """Yield the jobs that may have their minimum by the last answers."""
        jobs = (job for key, job in self.jobs.items() if self.admissions.get(key) in _FIRM)
        yield from filter(contends, jobs)


class Queues:
    """All queues, by name.

    Args:
        due: Called with a job's key and the seconds after which it is due.
        rooms: The room on the nodes, if they are fixed; None: nodes come for pods that wait.
        may: Returns whether a job may have pods as far as the quotas of teams allow. One that may not waits, and stands
            in the way of no other. When that changes, so does its status, and with it the queue.
    """

    def __init__(
        self,
        due: Callable[[Key, float], None],
        rooms: RoomWatch | None = None,
        may: Callable[[Key], bool] = lambda key: True,
    ) -> None:
        self._due = due
        self._rooms = rooms
        self._may = may
        self._queues: dict[str, _Queue] = {}
        self._queue_of: dict[Key, str] = {}
        self._short: set[Key] = set()

    def put(self, key: Key, job: ElasticJob | None) -> None:
        """Note a job as it is now; None if it is gone, has no queue, or can't be read."""
        self._short.discard(key)
        before = self._queue_of.pop(key, None)
        name = None if job is None else job.spec.scheduling_policy.queue
        if before is not None and before != name:
            del self._queues[before].jobs[key]
            self._queues[before].demands.pop(key, None)
            self._changed(before)
        if job is not None and name is not None:
            # Of a queue's jobs all are kept, so without what no rule of the queue reads.
            kept = replace(job, spec=replace(job.spec, replica_specs={}))
            self._queue_of[key] = name
            queue = self._queues.setdefault(name, _Queue())
            queue.jobs[key] = kept
            if job.status.whole_since is None and contends(job):
                self._short.add(key)
            if self._rooms is not None:
                queue.demands[key] = demand(job)
            self._changed(name)
        if self._rooms is not None:
            self._rooms.want(bool(self._short))

    def admission(self, key: Key, now: datetime) -> Admission:
        """Return what a job may have. Jobs for which the answer is another than before become due."""
        name = self._queue_of.get(key)
        if name is None:
            return Admission.FREE
        queue = self._queues[name]
        if not queue.holds(now):
            before = queue.admissions
            jobs = [job for each, job in queue.jobs.items() if self._may(each)]
            found = admit(jobs, now, self._site(queue))
            queue.admissions = {Key(*each): admission for each, admission in found.items()}
            queue.answered = now
            queue.ends = next_end(queue.jobs.values(), now)
            for other, admission in queue.admissions.items():
                if other != key and before.get(other) is not admission:
                    self._due(other, 0.0)
        return queue.admissions.get(key, Admission.WAIT)

    def room_changed(self) -> None:
        """Forget the answers of all queues with a job that is short: the room on the nodes may have changed."""
        for name in {self._queue_of[key] for key in self._short}:
            self._changed(name)

    def _site(self, queue: _Queue) -> Site | None:
        """Return the fixed nodes; None if nodes come for pods that wait, or what is on them can't be known."""
        room = None if self._rooms is None else self._rooms.room()
        if room is None:
            return None
        firm = tuple(job for other in self._queues.values() if other is not queue for job in other.firm())
        demands = {key: found for each in self._queues.values() for key, found in each.demands.items()}
        return Site(room, demands, firm)

    def _changed(self, name: str) -> None:
        """Forget a queue's answers, and make one of its jobs due, which asks anew."""
        queue = self._queues[name]
        queue.answered = None
        if queue.jobs:
            self._due(next(iter(queue.jobs)), SETTLE_SECONDS)
        else:
            del self._queues[name]
